// PolicyAutoscaler: the controller in the loop. Learns from workers' counters with the controller's code, makes the same
// Snapshot as windlass-controller does from what it may see, asks the same make_plan(), and carries the plan out as the
// controller does: surplus workers drain, those first that give least; missing ones start once their accelerators are free, for
// which their pods wait. What workers really are is the pool's model, and need not be what the plan is made with.
//
// What it leaves out of the controller: drainTimeout (requests always finish), and everything that can fail in a cluster.
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

namespace windlass::sim {

// Whose metrics page a worker shows.
enum class MetricSet { kWindlass, kVllm, kSglang, kTensorRtLlm, kLlamaCpp };

const char* to_string(MetricSet set);  // "windlass", "vllm", "sglang", "tensorrt-llm", "llama.cpp"

struct PolicyAutoscalerOptions {
  MetricSet metrics = MetricSet::kWindlass;
  bool measures_itself = true;  // as our worker does before it is ready
  struct Gap {
    double from_s = 0, until_s = 0;
  };
  std::vector<Gap> no_metrics;                 // nothing can be read meanwhile
  std::vector<planner::WorkerEstimate> known;  // of every service, before the run: its PerformanceProfiles
  double interval_s = 1;                       // the controller's --tick
  double metrics_age_s = 1;                    // of readings when a decision is made: its scrape period
  double arrivals_window_s = 10;               // as controller/reconcile/signals.h has them
  double lengths_window_s = 300;
  double min_measured = 5;  // completed requests before their mean lengths say anything
  std::vector<planner::AcceleratorState> accelerators;
  // One for each service of the run, in their order, as the controller makes them of a ModelService; demand, workers and memory
  // are the autoscaler's.
  std::vector<planner::Service> services;
  // A pool of workers that a plan asks for: with the latency model of this accelerator and number of GPUs. Its name, engine's
  // max_sequences and workers are set by the autoscaler.
  std::function<Result<ServingPool>(int service, const std::string& accelerator, int gpus_per_worker)> pool;
};

class PolicyAutoscaler final : public ClusterController {
 public:
  explicit PolicyAutoscaler(PolicyAutoscalerOptions options);

  // Looks at least every second, as the controller scrapes, and decides on its own interval.
  [[nodiscard]] double interval_s() const override;
  [[nodiscard]] ClusterOrders decide(const ClusterObservation& observation) override;

  // A change of what is desired, and why.
  struct Decision {
    double time_s = 0;
    int service = 0;
    std::string pool;
    int workers = 0;
    std::vector<planner::Reason> reasons;
  };
  [[nodiscard]] const std::vector<Decision>& decisions() const { return decisions_; }
  // GPUs that were wanted and not given, over time: worker-seconds by the reason's code.
  [[nodiscard]] const std::map<std::string, double>& denied_worker_s() const { return denied_worker_s_; }
  // The first pool that could not be made; what asked for it was left undone.
  [[nodiscard]] const Result<void>& problem() const { return problem_; }

  // What was decided on last, and the plan: for tests and `windlass plan --snapshot`.
  [[nodiscard]] const planner::Snapshot& last_snapshot() const { return snapshot_; }
  [[nodiscard]] const planner::Plan& last_plan() const { return plan_; }

 private:
  struct Look {
    double time_s = 0;
    ObservedService seen;  // its workers only while the look may still be read
  };

  void look(const ClusterObservation& observation);
  void learn(std::size_t service, const Look& look);
  void measure_starts(std::size_t service, const ObservedService& seen);
  // The youngest look that is as old as readings are; null: there is none yet.
  [[nodiscard]] const Look* readable(std::size_t service, double now_s) const;
  // The youngest that is at least so much older than `look`, or else the oldest.
  [[nodiscard]] const Look& before(std::size_t service, const Look& look, double seconds) const;
  [[nodiscard]] planner::Demand demand(std::size_t service, const Look& now) const;
  [[nodiscard]] std::vector<planner::Worker> workers(const ObservedService& seen, const Look* read) const;
  const ServingPool* find_or_make(int service, const planner::Pool& plan);
  // Leaves out starts for which no accelerators are free yet: the next decision asks for them again.
  void wait_for_gpus(const ClusterObservation& observation, ClusterOrders& orders) const;
  void carry_out(int service, const planner::ServicePlan& plan, const ObservedService& seen, ClusterOrders& orders);

  PolicyAutoscalerOptions options_;
  planner::Snapshot snapshot_;
  planner::Plan plan_;
  std::vector<std::deque<Look>> history_;  // of each service, oldest first
  struct Starts {
    std::set<int> under_way;        // workers that were seen starting
    std::deque<double> measured_s;  // from created to ready; the youngest last
  };
  std::vector<Starts> starts_;                                                       // of each service
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
