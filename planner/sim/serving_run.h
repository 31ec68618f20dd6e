// ServingRun: one run of the serving simulator, its state and the events that change it. Only for serving_run_*.cc and
// serving_simulation.cc; serving_simulation.h describes what is simulated.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "planner/base/rng.h"
#include "planner/dispatch/waiting_line.h"
#include "planner/dispatch/weighted_turns.h"
#include "planner/sim/serving_figures.h"
#include "planner/sim/serving_simulation.h"
#include "planner/sim/serving_worker.h"
#include "planner/sim/worker_chooser.h"

namespace windlass::sim {

// Where a request is now.
enum class RequestStage {
  kQueued,    // in the central queue
  kPrefill,   // waiting for its prefill, or in it
  kHanded,    // prefilled; its cache waits for room in the decode worker
  kTransfer,  // its cache is being transferred
  kDecode,
  kGone,
};

struct LiveRequest {
  std::int64_t number = 0;
  std::int64_t arrival_ns = 0;
  std::int64_t dispatched_ns = 0;  // last dispatch
  std::int64_t started_ns = -1;
  std::int64_t first_ns = 0;
  std::int64_t prefill_ns = 0;  // duration of the iteration that made the first token
  std::int64_t transfer = -1;   // id of the event that ends the transfer
  int service = 0;
  int input = 0;
  int output = 0;
  int prefix = -1;
  int prefix_tokens = 0;
  int attempts = 0;    // dispatches undone by a worker's failure
  int predicted = 0;   // output tokens known to admission
  bool heavy = false;  // predicted to be a heavy decode
  RequestStage stage = RequestStage::kGone;
  int prefill_worker = -1;
  int decode_worker = -1;                   // -1: not chosen yet
  int pair = -1;                            // index in the service's `pairs`; -1: none
  int lane = 0;                             // lane of the prefill worker until it is decoded, then of the decode worker
  int decode_lane = 0;                      // lane reserved while its cache is transferred
  SimulatedEngine::Sequence held = -1;      // at the prefill worker
  SimulatedEngine::Sequence reserved = -1;  // at the decode worker
};

enum class ServingEventKind : std::int16_t {
  kIterationEnd,
  kStageFree,
  kTransferEnd,
  kReady,
  kFail,
  kFlipCheck,
  kFlipped,
  kRepurposeCheck,
  kTick
};

struct ServingEvent {
  std::int64_t time_ns;
  std::int64_t id;
  int index;  // worker, request or service
  std::int16_t lane;
  ServingEventKind kind;

  bool operator>(const ServingEvent& other) const { return time_ns != other.time_ns ? time_ns > other.time_ns : id > other.id; }
};

// The state of one model's service.
struct ServiceState {
  ServiceState(const ServingService& of, std::size_t index, std::uint64_t seed)
      : options(&of),
        first(of.dispatch.policy, seed, stream("prefill", index), rules_of(of, false)),
        second(of.dispatch.policy, seed, stream("decode", index), rules_of(of, true)),
        queue(of.dispatch.queue_order),
        choice(seed, stream("two-choice", index)),
        prediction(seed, stream("length prediction", index)),
        turns(weights_of(of)),
        pair_free_ns(of.pairs.size(), 0),
        figures(of) {}

  static std::vector<double> weights_of(const ServingService& of) {
    std::vector<double> weights;
    for (const PoolPair& pair : of.pairs) weights.push_back(pair.weight);
    return weights;
  }

  static dispatch::PolicyRules rules_of(const ServingService& of, bool decode) {
    const bool two_roles =
        std::any_of(of.pools.begin(), of.pools.end(), [](const auto& pool) { return pool.role != dispatch::Role::kUnified; });
    const auto phase = !two_roles ? dispatch::PackingPhase::kBoth
                       : decode   ? dispatch::PackingPhase::kDecode
                                  : dispatch::PackingPhase::kPrefill;
    const ServingObjectives objectives = of.objectives.value_or(ServingObjectives{});
    dispatch::PolicyRules rules = dispatch::rules_of(of.dispatch, objectives.ttft_s, objectives.tpot_s, phase);
    rules.huawei.drawn_outputs = of.dispatch.drawn_outputs;
    return rules;
  }

  static std::string stream(const char* what, std::size_t index) {
    return index == 0 ? what : fmt::format("{}/{}", what, index);
  }

  const ServingService* options;
  bool two_roles = false;
  WorkerChooser first;          // unified or prefill workers
  WorkerChooser second;         // decode workers
  dispatch::WaitingLine queue;  // requests that no worker takes yet; a place is a request's number
  dispatch::FirstTokenTail first_token;
  std::deque<int> orphans;           // prefilled requests without a decode worker
  std::map<std::string, int> slots;  // by pool name, as ordered by the controller; otherwise what the engines hold
  Rng choice;
  Rng prediction;
  dispatch::WeightedTurns turns;           // order in which pairs take turns
  std::vector<std::int64_t> pair_free_ns;  // when the path of each pair is next free
  ServingFigures figures;
  std::int64_t input_tokens = 0, output_tokens = 0;
  std::int64_t last_arrival_ns = -1;

  [[nodiscard]] double ttft_objective_s() const {
    return options->objectives ? options->objectives->ttft_s : std::numeric_limits<double>::infinity();
  }
};

class ServingRun {
 public:
  ServingRun(workload::RequestSource& source, const std::vector<const ServingService*>& services, const RunOptions& options);
  std::vector<ServingResult> run();

 private:
  struct Arrival {
    std::int64_t arrival_ns;
    workload::Request request;
  };

  ServingWorker& worker(int w) { return *workers_[static_cast<std::size_t>(w)]; }
  SimulatedEngine& engine(int w, int lane) { return worker(w).lanes[static_cast<std::size_t>(lane)].engine; }
  LiveRequest& live(int request) { return live_[static_cast<std::size_t>(request)]; }
  ServiceState& service(int s) { return services_[static_cast<std::size_t>(s)]; }
  ServiceState& service_of(const ServingWorker& of) { return service(of.service); }
  [[nodiscard]] const planner::KvTransferPath& path_of(const LiveRequest& of) {
    const ServingService& options = *service(of.service).options;
    return of.pair < 0 ? options.link.path : options.pairs[static_cast<std::size_t>(of.pair)].path;
  }

  // The event loop.
  std::int64_t push(std::int64_t time_ns, ServingEventKind kind, int index, int lane = 0);
  void handle(const ServingEvent& event);
  // Records that requests arrived or moved on.
  void progress() {
    idle_looks_ = 0;
    progress_ns_ = now_ns_;
  }
  // No more requests will arrive, and the waiting ones have waited too long without progress.
  [[nodiscard]] bool hopeless() const;
  // The verdict so far, if only a verdict is required.
  [[nodiscard]] EarlyVerdict early_verdict() const;
  // Samples show the state before the event at their time.
  void advance(std::int64_t to_ns);
  void sample();
  std::optional<Arrival> take();

  // Workers.
  int create(int s, const ServingPool& pool);
  void start_worker(int s, const ServingPool& pool);
  void become_ready(int w);
  void ready(int w);
  // Called when the service has gained workers: requests that waited for workers are dispatched first.
  void welcome(int s);
  void find_candidates(int s);
  void pair_workers(int s);
  void drain(int w);
  void end_worker(int w);
  // Ends a draining worker that has no work left, or gives a flipping one its new role.
  void leave_if_empty(int w);
  void fail(int w);
  // Handles the failure of one of a request's workers. Returns whether to dispatch the request again.
  [[nodiscard]] bool interrupt(int request, int failed);
  // Removes the request from its decode worker, if it has one.
  void leave_decode_worker(int request);
  void join_decode_worker(int request, int decode);
  // A single token needs no decode worker if the roles are separate.
  [[nodiscard]] bool counts_as_decode(const LiveRequest& of) { return of.output > 1 || !service(of.service).two_roles; }
  // A request that ends without an answer: failed, or refused.
  void lose(int request) { end_unanswered(request, &ServingResult::failed, &ServedRequest::failed); }
  void refuse(int request) { end_unanswered(request, &ServingResult::refused, &ServedRequest::refused); }
  void end_unanswered(int request, std::int64_t ServingResult::*count, bool ServedRequest::*what);
  // Drops the requests that no worker takes; returns whether there were any.
  bool give_up();
  void check_flips(int s);
  void flipped(int w);
  void check_repurposing(int s);
  void take_other_role(ServingWorker& at);
  void tick();

  // Assigning requests to workers.
  //
  // The worker of one role for a request, or with a mixed pool perhaps one of the other role (planner/dispatch/mixed_pool.h).
  WorkerChooser::Choice route(const LiveRequest& of, WorkerChooser& own, WorkerChooser& other, std::int64_t tokens);
  // The decode worker with the least promised memory, or with a mixed pool perhaps a prefill worker (same file).
  int least_memory(const LiveRequest& of);
  // -1: none can hold it now. REQUIRES: its prefill worker is known.
  int choose_decode(int request);
  // The next pair in turn whose workers can hold the request, among all pairs or those of its prefill worker.
  struct PairedWorkers {
    int pair = -1, prefill = -1, decode = -1;
    bool wait = false;  // no such pair now, but workers may join one
  };
  PairedWorkers choose_pair(const LiveRequest& of);
  [[nodiscard]] int pool_of(const ServingWorker& of) {
    return static_cast<int>(of.pool - service_of(of).options->pools.data());
  }
  // Among the workers that exist at the start; -1: none.
  [[nodiscard]] int partner_of(int prefill) const;
  void arrive(const Arrival& arrival);
  void predict(LiveRequest& of);
  // Sends the request to its worker or workers; false if it has to wait. Refuses a request that no worker can hold.
  bool dispatch(int request);
  SequenceSpec spec_of(int request);
  dispatch::RequestLengths lengths_of(const LiveRequest& of);  // as the dispatch policy sees them
  void wait(int request);                                      // in the central queue
  void serve_queue(int s);
  ServedRequest described(const LiveRequest& of);

  // Iterations.
  void start(int w);
  bool begin(int w, int lane);
  void end_iteration(int w, int lane);
  // Makes a prefilled request's cache available to its decode worker, which is chosen now if it has none.
  void offer_cache(int request);
  void offer_orphans(int s);
  // In a mixed pool, two workers may both be full of caches waiting to move to the other. A worker that has nothing to run and
  // blocks others decodes its oldest request itself.
  bool keep_oldest(int w);
  // Frees the cache of a handed-over request at its prefill worker.
  void release_held(int request);
  // The prefill worker of a handed-over request decodes it itself.
  void keep(int request);
  // Starts transfers of the caches that this worker has room for, in the order in which they were ready.
  void pull(int w);
  // A layer-by-layer transfer could begin during the prefill, if there was room then.
  [[nodiscard]] double transfer_s(const LiveRequest& of);
  // Arrival time of a cache whose transfer begins now, or after those before it on its pair's path.
  std::int64_t arrival_of_cache_ns(const LiveRequest& of);
  void end_transfer(int request, std::int64_t id);
  void finish(int request);
  int new_live();
  void forget(int request);
  std::vector<ServingResult> results();

  workload::RequestSource& source_;
  const RunOptions& options_;
  ServingWorkers workers_;
  std::map<int, int> partners_;  // decode worker by prefill worker, if the decode choice is pairs
  std::vector<ServiceState> services_;
  std::vector<LiveRequest> live_;
  std::vector<int> unused_;
  Rng failures_;
  std::priority_queue<ServingEvent, std::vector<ServingEvent>, std::greater<>> events_;
  std::int64_t next_id_ = 0;
  std::int64_t now_ns_ = 0;
  std::int64_t next_sample_ns_ = std::numeric_limits<std::int64_t>::max();  // never, by default
  std::int64_t arrived_ = 0;                                                // taken from the source
  std::int64_t arrived_total_ = 0;                                          // those whose time has come
  std::int64_t in_system_ = 0;
  std::optional<Arrival> next_;
  int idle_looks_ = 0;            // consecutive looks at waiting requests since the last progress
  std::int64_t progress_ns_ = 0;  // time of the last progress
  double longest_start_s_ = 0;
  std::int64_t completed_ = 0;
};

}  // namespace windlass::sim
