// The simulator and the gateway give the same requests to the same workers: equal DispatchSettings, once in the simulator's
// chooser and once in a router that read them from a routing table's JSON, see the same events.
#include <deque>
#include <map>
#include <memory>
#include <set>

#include <gtest/gtest.h>

#include "gateway/router.h"
#include "planner/base/rng.h"
#include "planner/sim/packing_model.h"
#include "planner/sim/serving_run.h"
#include "tests/effort.h"
#include "tests/unit/planner/sim/serving_fixture.h"

namespace windlass::gateway {
namespace {

using dispatch::PolicyKind;

constexpr int kWorkers = 4;
constexpr int kBytesPerToken = 4;

// Workers of two kinds, the first with larger batches and caches.
class SameChoices {
 public:
  SameChoices(const dispatch::DispatchSettings& settings, std::uint64_t seed)
      : rng_(seed, "events"), seed_(seed), router_({1'000'000, 1e6, 1e6, {}, seed, 1e6, dispatch::QueueOrder::kArrival}) {
    service_.dispatch = settings;
    service_.objectives = sim::ServingObjectives{0.5, 0.05};
    models_[0].per_context_token_s = 1e-6;
    models_[0].capacity_tokens = 20'000;
    models_[1].base_s = 0.015;
    models_[1].per_prompt_token_s = 3e-4;
    models_[1].per_context_token_s = 2e-6;
    models_[1].capacity_tokens = 6'000;
    for (int kind = 0; kind < 2; ++kind) {
      service_.pools.push_back(sim::pool_of(models_[kind], dispatch::Role::kUnified, kWorkers / 2));
      service_.pools.back().spec.engine.max_sequences = kind == 0 ? 8 : 3;
    }
    chooser_ = std::make_unique<sim::WorkerChooser>(settings.policy, seed_, "dispatch of tiny",
                                                    sim::ServiceState::rules_of(service_, false));
    std::vector<sim::WorkerChooser::Candidate> candidates;
    for (int w = 0; w < kWorkers; ++w) {
      const sim::ServingPool& pool = service_.pools[static_cast<std::size_t>(w * 2 / kWorkers)];
      workers_.push_back(std::make_unique<sim::ServingWorker>(w, 0, pool, 0));
      candidates.push_back({w, pool.spec.engine.max_sequences, 0});
    }
    chooser_->reset(workers_, candidates);
    const auto table = dispatch::routing_table_from_json(dispatch::to_json(table_of(settings)));
    EXPECT_TRUE(table.ok() && router_.table_changed(0, *table).accepted);
    EXPECT_EQ(router_.policies().at("tiny"), settings.policy);
  }

  void run(int events) {
    arrive(0, 100);  // a guess of its length is unknown; from its answer the router learns what a token takes
    end(1);
    for (int i = 0; i < events && !::testing::Test::HasFailure(); ++i) {
      now_s_ += 0.01 * rng_.uniform();
      const auto what = rng_.integer(0, 9);
      if (what < 3) {
        const auto tokens = static_cast<int>(rng_.integer(1, 400));
        arrive(tokens, tokens);
      } else if (what < 8) {
        iterate(static_cast<int>(rng_.integer(0, kWorkers - 1)));
      } else if (!at_.empty()) {
        end(std::next(at_.begin(), rng_.integer(0, static_cast<std::int64_t>(at_.size()) - 1))->first);
      }
      serve();
      take(router_.tick(now_s_));
      compare();
    }
  }

  // Workers that got a request, and requests that had to wait.
  [[nodiscard]] std::size_t workers_used() const { return used_.size(); }
  [[nodiscard]] int waited() const { return waited_; }

 private:
  dispatch::RoutingTable table_of(const dispatch::DispatchSettings& settings) {
    dispatch::ModelRoute route;
    route.served_name = "tiny";
    route.ttft_slo_s = service_.objectives->ttft_s;
    route.tpot_slo_s = service_.objectives->tpot_s;
    route.max_queued = 1'000'000;
    route.dispatch = dispatch::at_gateway(settings);
    const auto form = settings.policy == PolicyKind::kHuawei ? planner::LinearForm::kHuawei : planner::LinearForm::kAladdin;
    for (const auto& pool : service_.pools) {
      const auto& engine = pool.spec.engine;
      const auto blocks = workers_[static_cast<std::size_t>(&pool - service_.pools.data()) * kWorkers / 2]->kv_blocks();
      route.latencies.push_back(sim::packing_model(*pool.model, static_cast<double>(blocks * engine.block_tokens),
                                                   engine.block_tokens, engine.max_sequences, form)
                                    .model);
    }
    for (int w = 0; w < kWorkers; ++w) {
      const int kind = w * 2 / kWorkers;
      const sim::ServingPool& pool = service_.pools[static_cast<std::size_t>(kind)];
      dispatch::Chain chain;
      chain.id = std::to_string(w);
      chain.hops = {chain.id + ":80"};
      chain.service_rate_per_s = 1 / pool.model->iteration_s(planner::decode_batch(1, 1024));
      chain.capacity = pool.spec.engine.max_sequences;
      chain.latency = kind;
      route.chains.push_back(chain);
    }
    return {{1, 1}, {route}};
  }

  // `guess`: the input as both know it at arrival; 0: not at all.
  void arrive(int guess, int input_tokens) {
    const RequestId id = next_id_++;
    guess_[id] = guess;
    input_[id] = input_tokens;
    queue_.push_back(id);
    serve();
    take(router_.arrived(now_s_, id, "tiny", true, static_cast<std::size_t>(input_tokens) * kBytesPerToken));
    waited_ += at_.contains(id) ? 0 : 1;
  }

  // The simulator's central queue.
  void serve() {
    while (!queue_.empty()) {
      const dispatch::RequestLengths request{queue_.front(), guess_.at(queue_.front()), 0};
      const auto chosen = chooser_->choose(workers_, request, now_s_, true, [](const auto&) { return true; });
      if (chosen.wait) return;
      queue_.pop_front();
      chosen_[request.id] = chosen.worker;
      chooser_->changed(chosen.worker, 1);
      chooser_->placed(chosen.worker, request);
    }
  }

  void take(const Actions& actions) {
    for (const Action& action : actions) {
      const auto* sent = std::get_if<Dispatch>(&action);
      if (sent == nullptr) continue;
      at_[sent->id] = std::stoi(sent->chain);
      used_.insert(sent->chain);
    }
  }

  // Both have given these requests to the same workers; in the simulator they also wait there.
  void compare() {
    for (const auto& [id, worker] : at_) {
      ASSERT_TRUE(chosen_.contains(id)) << id << " still waits in the simulator";
      ASSERT_EQ(worker, chosen_.at(id)) << "request " << id;
    }
    ASSERT_EQ(router_.open_requests(), chosen_.size() + queue_.size());
    if (dispatch::keeps_requests_back(*service_.dispatch.policy)) {
      ASSERT_EQ(at_.size(), chosen_.size()) << "one waits at the gateway only";
    }
  }

  // One iteration of a worker: a token for each of its requests, a first one for those that have none.
  void iterate(int worker) {
    std::vector<RequestId> decoding, prompts;
    for (const auto& [id, w] : at_) {
      if (w == worker) (made_[id] > 0 ? decoding : prompts).push_back(id);
    }
    if (!decoding.empty()) chooser_->iterated(worker);
    for (const RequestId id : prompts) chooser_->first_token(id, now_s_);
    for (const auto* of : {&decoding, &prompts}) {
      for (const RequestId id : *of) {
        router_.tokens_sent(now_s_, id, 1);
        ++made_[id];
      }
    }
  }

  void end(RequestId id) {
    if (made_[id] == 0) {
      chooser_->first_token(id, now_s_);
      router_.tokens_sent(now_s_, id, 1);
      made_[id] = 1;
    }
    chooser_->changed(chosen_.at(id), -1);
    chooser_->ended(id, made_.at(id));
    at_.erase(id);
    chosen_.erase(id);
    serve();
    take(router_.completed(now_s_, id, {200, input_.at(id), made_.at(id)}));
  }

  Rng rng_;
  std::uint64_t seed_;
  sim::Line models_[2];
  sim::ServingService service_;
  sim::ServingWorkers workers_;
  std::unique_ptr<sim::WorkerChooser> chooser_;
  Router router_;
  double now_s_ = 0;
  RequestId next_id_ = 1;
  std::map<RequestId, int> guess_, input_, made_;  // tokens
  std::map<RequestId, int> chosen_, at_;           // workers, in the simulator and at the gateway
  std::deque<RequestId> queue_;
  std::set<std::string> used_;
  int waited_ = 0;
};

// Given random requests, iterations and ends under every policy of the gateway, with its usual parameters and with others;
// expects simulator and gateway to give each request to the same worker, or to keep it waiting.
TEST(SameChoices, InSimulatorAndGateway) {
  for (const PolicyKind kind : dispatch::kGatewayPolicies) {
    int waited = 0;
    for (std::uint64_t seed = 1; seed <= effort(12U, 400U); ++seed) {
      SCOPED_TRACE(std::string(dispatch::to_string(kind)) + ", seed " + std::to_string(seed));
      dispatch::DispatchSettings settings;
      settings.policy = kind;
      if (seed % 2 == 0) {
        settings.placement = {.gamma = 0.75, .theta = 0.6, .ttft_s = 0.1, .tpot_s = 0.03};
        settings.huawei = {.theta = 0.5, .assumed_output_tokens = 30};
      }
      SameChoices play(settings, seed);
      play.run(1000);
      if (::testing::Test::HasFailure()) return;
      EXPECT_EQ(play.workers_used(), 4U);
      waited += play.waited();
    }
    EXPECT_GT(waited, 0) << dispatch::to_string(kind);
  }
}

}  // namespace
}  // namespace windlass::gateway
