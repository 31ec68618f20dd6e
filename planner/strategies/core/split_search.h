// SplitSearch: how many prefill and how many decode workers, by simulation: what Splitwise's provisioning (Patel et al., ISCA
// 2024, Section IV-D) and TetriInfer's counts have in common.
//
// A design says which kinds of workers the two phases have and how requests find them; the search chooses the two counts.
// Goals cost and power: the least that holds at the problem's rate. Goal throughput: where the room is bounded (GPUs, cost,
// power) the most requests a second inside it, else the fewest GPUs. A deployment holds when the objectives do in each of
// `seeds` trials; trials end as soon as that is sure, run side by side on the effort's executor in groups whose size does not
// depend on its threads, and are counted in the step budget in their order: one seed and budget, one plan.
#pragma once

#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "planner/strategies/core/phase_counts.h"
#include "planner/strategies/core/problem.h"
#include "planner/strategies/core/strategy.h"
#include "planner/strategies/core/trial.h"

namespace windlass::search {

struct SplitOptions {
  int seeds = 3;         // trials of each deployment, with the problem's seed and those after it
  double trial_s = 120;  // of arrivals in a trial (Splitwise: a 2-minute trace), ...
  // ... but no fewer than Problem::requests_per_trial, and no more than this.
  std::int64_t most_requests = 20'000;
  double most_power_watts = std::numeric_limits<double>::infinity();  // of the whole plan
  double tolerance = 0.02;                                            // of a largest rate, relative
};

struct SplitDesign {
  std::string name;  // "h100-80gb-8 for prompts, a100-80gb-8 for tokens"
  std::function<Deployment(const PhaseCounts&)> deploy;
  bool unified = false;        // one kind, counted as prefill workers
  PhaseCounts guess = {1, 1};  // where to begin at the problem's rate
};

// Workers that each phase keeps busy at the problem's rate, by closed forms: each prompt alone, decodes in batches that fill
// most of the memory.
struct PhaseLoads {
  double prefill = 0;
  double decode = 0;
};
[[nodiscard]] PhaseLoads phase_loads(const Problem& problem, const planner::IterationModel& prefill, const WorkerKind& decode);
// Workers for a load, where a search begins.
[[nodiscard]] int workers_for(double load);

class SplitSearch {
 public:
  // Borrows both. REQUIRES: validate(problem).
  SplitSearch(const Problem& problem, const Effort& effort, const SplitOptions& options);

  // Looks for something better than the best so far in this design. Errors: of try_out(); Cancelled by the stop or the step
  // budget, after which the best so far stands.
  [[nodiscard]] Result<void> look(const SplitDesign& design);

  struct Found {
    SplitDesign design;
    PhaseCounts counts;
    double requests_per_s = 0;  // that it is known to hold at
    double worth = 0;           // for throughput inside a bounded room: minus the rate
  };
  [[nodiscard]] const std::optional<Found>& best() const { return best_; }

  // The best's workers serve in this design from now on, which is known to hold with them.
  void adopt(const SplitDesign& design) { best_->design = design; }

  // The furthest objective of a deployment at a rate, as a share of what is allowed, the worst of all seeds.
  [[nodiscard]] Result<double> worst_of(const Deployment& deployment, double requests_per_s);

  // The plan, once all designs have been looked at; where nothing holds, the nearest of what there is room for. `stopped` as
  // told by look(). Errors: kNotFound when there is no room for one worker of each kind in any design; Cancelled when it was
  // stopped before anything was found.
  [[nodiscard]] Result<Offer> plan(const std::string& strategy, bool stopped);

 private:
  struct Probe {
    Deployment deployment;
    double requests_per_s = 0;
  };
  struct Candidate {
    SplitDesign design;
    PhaseCounts counts;
    bool held = false;
    double requests_per_s = 0;
  };

  [[nodiscard]] std::int64_t requests_at(double requests_per_s) const;
  [[nodiscard]] Result<std::vector<char>> hold(std::span<const Probe> probes);
  [[nodiscard]] Result<std::vector<sim::ServingResult>> whole(const Deployment& deployment, double requests_per_s);
  [[nodiscard]] Result<void> go_on() const;
  [[nodiscard]] bool fits(const Deployment& deployment) const;
  [[nodiscard]] Result<bool> holds_alone(const SplitDesign& design);
  [[nodiscard]] Result<void> look_for_least(const SplitDesign& design);
  [[nodiscard]] Result<void> look_for_most(const SplitDesign& design);
  // The largest rate of a deployment that holds at `holds_at`.
  [[nodiscard]] Result<double> rate_of(const Deployment& deployment, double holds_at);
  [[nodiscard]] bool most_throughput() const { return problem_.goal == Goal::kThroughput && bounded_; }
  [[nodiscard]] Result<Candidate> nearest();
  [[nodiscard]] Result<void> say_why(Offer& plan, const std::string& name, const std::vector<sim::ServingResult>& runs);
  [[nodiscard]] Result<Rejection> consider(const Candidate& asked, const Offer& plan);

  const Problem& problem_;
  const Effort& effort_;
  SplitOptions options_;
  SerialExecutor serial_;
  Executor& executor_;
  bool bounded_ = false;
  std::optional<Found> best_;
  std::vector<Candidate> asked_;     // of each design, in their order: what held best, or failed last
  std::vector<SplitDesign> looked_;  // designs with room for one worker of each kind
  std::vector<std::string> notes_;
  std::int64_t trials_ = 0;
  std::int64_t iterations_ = 0;
};

// The best of these designs. Errors as of a Strategy.
[[nodiscard]] Result<Offer> plan_of_designs(const Problem& problem, const Effort& effort, const SplitOptions& options,
                                            const std::string& strategy, std::vector<SplitDesign> designs);

}  // namespace windlass::search
