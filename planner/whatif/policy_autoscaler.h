// PolicyAutoscaler runs the controller's decisions inside a simulation. It learns from the counters of workers with the
// controller's code, builds the Snapshot that windlass-controller would build from what it can see, and calls make_plan(). It
// applies the plan as the controller does: surplus workers drain, the least useful first. New workers start once their
// accelerators are free; until then their pods wait. The pool's model defines how workers really behave; the plan may use a
// different one.
//
// Not simulated: drainTimeout (requests always finish), and everything that can fail in a cluster.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "planner/base/result.h"
#include "planner/perf/iteration_learner.h"
#include "planner/policy/plan.h"
#include "planner/policy/snapshot.h"
#include "planner/sim/cluster_controller.h"
#include "planner/whatif/offer_book.h"

namespace windlass::sim {

// The engine whose metrics page a worker shows.
enum class MetricSet { kWindlass, kVllm, kSglang, kTensorRtLlm, kLlamaCpp };

const char* to_string(MetricSet set);  // "windlass", "vllm", "sglang", "tensorrt-llm", "llama.cpp"

struct PolicyAutoscalerOptions {
  MetricSet metrics = MetricSet::kWindlass;
  bool measures_itself = true;  // as our worker does before it is ready
  bool searches = false;        // asks the strategies, as the controller does; answers come at once
  struct Gap {
    double from_s = 0, until_s = 0;
  };
  std::vector<Gap> no_metrics;                 // no readings during these gaps
  std::vector<planner::WorkerEstimate> known;  // PerformanceProfiles, for every service, before the run
  double interval_s = 1;                       // the controller's --tick
  double metrics_age_s = 1;                    // age of readings at a decision: the scrape period
  double arrivals_window_s = 10;               // as in controller/reconcile/signals.h
  double lengths_window_s = 300;
  double min_measured = 5;  // completed requests required before mean lengths are used
  std::vector<planner::AcceleratorState> accelerators;
  // One per service of the run, in order, as the controller derives them from a ModelService. The autoscaler sets demand,
  // workers and memory.
  std::vector<planner::Service> services;
  // Makes a pool of workers that a plan requests, with the latency model of this accelerator and number of GPUs. The autoscaler
  // sets its name, the engine's max_sequences and workers.
  std::function<Result<ServingPool>(int service, const std::string& accelerator, int gpus_per_worker)> pool;
};

class PolicyAutoscaler final : public ClusterController {
 public:
  explicit PolicyAutoscaler(PolicyAutoscalerOptions options);

  // At most one second, the controller's scrape period; decisions follow their own interval.
  [[nodiscard]] double interval_s() const override;
  [[nodiscard]] ClusterOrders decide(const ClusterObservation& observation) override;

  // A change of the desired workers, and why.
  struct Decision {
    double time_s = 0;
    int service = 0;
    std::string pool;
    int workers = 0;
    std::vector<planner::Reason> reasons;
  };
  [[nodiscard]] const std::vector<Decision>& decisions() const { return decisions_; }
  // Denied workers over time: worker-seconds by the reason's code.
  [[nodiscard]] const std::map<std::string, double>& denied_worker_s() const { return denied_worker_s_; }
  // The first pool that could not be made; its request was skipped.
  [[nodiscard]] const Result<void>& problem() const { return problem_; }

  // The last snapshot and its plan: for tests and `windlass plan --snapshot`.
  [[nodiscard]] const planner::Snapshot& last_snapshot() const { return snapshot_; }
  [[nodiscard]] const planner::Plan& last_plan() const { return plan_; }

 private:
  struct Look {
    double time_s = 0;
    ObservedService seen;  // its workers are removed once the look is too old to be read
  };

  void look(const ClusterObservation& observation);
  void learn(std::size_t service, const Look& look);
  void measure_starts(std::size_t service, const ObservedService& seen);
  // The latest look that is at least as old as readings are; null if there is none yet.
  [[nodiscard]] const Look* readable(std::size_t service, double now_s) const;
  // The latest look that is at least this much older than `look`, otherwise the oldest.
  [[nodiscard]] const Look& before(std::size_t service, const Look& look, double seconds) const;
  [[nodiscard]] planner::Demand demand(std::size_t service, const Look& now) const;
  [[nodiscard]] std::vector<planner::Worker> workers(const ObservedService& seen, const Look* read) const;
  const ServingPool* find_or_make(int service, const planner::Pool& plan);
  // Removes starts for which no accelerators are free yet; the next decision requests them again.
  void wait_for_gpus(const ClusterObservation& observation, ClusterOrders& orders) const;
  void carry_out(int service, const planner::ServicePlan& plan, const ObservedService& seen, ClusterOrders& orders);

  PolicyAutoscalerOptions options_;
  planner::Snapshot snapshot_;
  planner::Plan plan_;
  search::OfferBook book_{1};
  std::vector<std::deque<Look>> history_;  // per service, oldest first
  struct Starts {
    std::set<int> under_way;        // workers seen while starting
    std::deque<double> measured_s;  // seconds from created to ready; latest last
  };
  std::vector<Starts> starts_;                                                       // per service
  std::map<std::tuple<int, std::string, int>, planner::IterationLearner> learners_;  // by service, accelerator and GPUs
  double next_decision_s_ = 0;
  std::map<std::pair<int, std::string>, std::unique_ptr<ServingPool>> pools_;
  std::map<std::pair<int, std::string>, int> slots_;
  std::vector<Decision> decisions_;
  std::map<std::pair<int, std::string>, int> desired_;
  std::map<std::string, double> denied_worker_s_;
  Result<void> problem_;
};

}  // namespace windlass::sim
