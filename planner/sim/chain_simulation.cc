// The event loop of simulate_chains(). A request's times are known when its service starts (nothing interrupts it), so it is
// recorded then, and its completion event only needs to name its chain.
#include "planner/sim/chain_simulation.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstddef>
#include <deque>
#include <queue>

#include "planner/sim/event_time.h"

namespace windlass::sim {
namespace {

constexpr std::int64_t kArrivalsPerProgress = 1 << 18;

struct Job {
  workload::Request request;
  std::int64_t arrived_ns = 0;
  std::int64_t measured = -1;  // index among the measured requests; negative: warm-up
};

struct Completion {
  std::int64_t time_ns = 0;
  std::uint64_t id = 0;
  std::size_t chain = 0;

  bool operator>(const Completion& other) const { return time_ns != other.time_ns ? time_ns > other.time_ns : id > other.id; }
};

class ChainSimulation {
 public:
  ChainSimulation(std::span<const SimulatedChain> chains, workload::RequestSource& source, dispatch::DispatchPolicy& policy,
                  const ChainSimulationOptions& options)
      : chains_(chains),
        source_(source),
        policy_(policy),
        options_(options),
        queues_(chains.size()),
        recorder_(options.max_requests - options.warm_up_requests) {
    for (const SimulatedChain& chain : chains) {
      assert(std::isfinite(chain.service_time_s) && chain.service_time_s > 0 && chain.capacity >= 0);
      states_.push_back({1 / chain.service_time_s, chain.capacity, 0, false});
    }
    policy_.reset(states_);
  }

  SimulationResult run() {
    take_next_arrival();
    while (arrival_due_ || !completions_.empty()) {
      if (arrival_due_ && (completions_.empty() || completions_.top() > next_arrival_)) {
        arrive();
      } else {
        complete();
      }
    }
    return recorder_.result(now_ns_);
  }

 private:
  void take_next_arrival() {
    arrival_due_ = false;
    if (arrivals_ == options_.max_requests) return;
    const auto request = source_.next();
    if (!request) return;
    next_arrival_.time_ns = after(0, request->arrival_s);
    next_arrival_.id = next_id_++;
    assert(next_arrival_.time_ns >= now_ns_);
    if (next_arrival_.time_ns == kEndOfTimeNs) return;
    next_job_ = {*request, next_arrival_.time_ns, arrivals_ - options_.warm_up_requests};
    arrival_due_ = true;
  }

  void arrive() {
    now_ns_ = next_arrival_.time_ns;
    ++arrivals_;
    const Job job = next_job_;
    // Requests in the central queue go first.
    const auto chain = waiting_jobs_.empty() ? policy_.choose() : std::nullopt;
    if (chain) {
      send(job, *chain);
    } else {
      waiting_jobs_.push_back(job);
    }
    if (options_.progress && arrivals_ % kArrivalsPerProgress == 0) options_.progress(arrivals_);
    take_next_arrival();
  }

  void complete() {
    now_ns_ = completions_.top().time_ns;
    const std::size_t chain = completions_.top().chain;
    completions_.pop();
    if (auto& queue = queues_[chain]; !queue.empty()) {
      start(queue.front(), chain);
      queue.pop_front();
    }
    --states_[chain].in_flight;
    policy_.update(chain, states_[chain]);
    while (!waiting_jobs_.empty()) {
      const auto next = policy_.choose();
      if (!next) return;
      send(waiting_jobs_.front(), *next);
      waiting_jobs_.pop_front();
    }
  }

  void send(const Job& job, std::size_t chain) {
    dispatch::ChainState& state = states_[chain];
    if (state.has_free_slot()) {
      start(job, chain);
    } else {
      queues_[chain].push_back(job);
    }
    ++state.in_flight;
    policy_.update(chain, state);
  }

  void start(const Job& job, std::size_t chain) {
    const std::int64_t end_ns = after(now_ns_, chains_[chain].service_time_of(job.request));
    completions_.push({end_ns, next_id_++, chain});
    if (job.measured >= 0) recorder_.observe(job.measured, job.arrived_ns, now_ns_, end_ns);
  }

  std::span<const SimulatedChain> chains_;
  workload::RequestSource& source_;
  dispatch::DispatchPolicy& policy_;
  const ChainSimulationOptions& options_;

  std::int64_t now_ns_ = 0;
  std::uint64_t next_id_ = 0;
  std::int64_t arrivals_ = 0;
  bool arrival_due_ = false;
  Completion next_arrival_;  // its time and id
  Job next_job_;
  std::priority_queue<Completion, std::vector<Completion>, std::greater<>> completions_;
  std::vector<dispatch::ChainState> states_;
  std::deque<Job> waiting_jobs_;         // the central queue
  std::vector<std::deque<Job>> queues_;  // at the chains

  RunRecorder recorder_;
};

}  // namespace

double SimulatedChain::service_time_of(const workload::Request& request) const {
  if (!token_time || (request.input_tokens == 0 && request.output_tokens == 0)) return request.size * service_time_s;
  return token_time->base_s + token_time->s_per_input_token * request.input_tokens +
         token_time->s_per_output_token * std::max(0, request.output_tokens - 1);
}

std::optional<TokenServiceTime> token_service_time(const chain::Instance& instance, std::span<const int> servers,
                                                   std::span<const int> blocks) {
  TokenServiceTime sum;
  for (std::size_t i = 0; i < servers.size(); ++i) {
    const auto& times = instance.servers[static_cast<std::size_t>(servers[i])].token_times;
    if (!times) return std::nullopt;
    sum.base_s += times->communication_first_s + blocks[i] * times->block_overhead_s;
    sum.s_per_input_token += blocks[i] * times->block_prefill_s_per_token;
    sum.s_per_output_token += times->communication_s_per_token + blocks[i] * times->block_decode_s_per_token;
  }
  return sum;
}

SimulatedChain simulated_chain(const chain::Instance& instance, const chain::ServerChain& chain) {
  return {chain.service_time_s, chain.capacity, token_service_time(instance, chain.servers, chain.blocks)};
}

std::vector<SimulatedChain> simulated_chains(const chain::Instance& instance, std::span<const chain::ServerChain> chains) {
  std::vector<SimulatedChain> simulated;
  simulated.reserve(chains.size());
  for (const chain::ServerChain& chain : chains) simulated.push_back(simulated_chain(instance, chain));
  return simulated;
}

SimulationResult simulate_chains(std::span<const SimulatedChain> chains, workload::RequestSource& source,
                                 dispatch::DispatchPolicy& policy, const ChainSimulationOptions& options) {
  return ChainSimulation(chains, source, policy, options).run();
}

}  // namespace windlass::sim
