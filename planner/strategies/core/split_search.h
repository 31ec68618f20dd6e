// SplitSearch: finds the numbers of prefill and decode workers by simulation. Shared by Splitwise's provisioning (Patel et al.,
// ISCA 2024, Section IV-D) and TetriInfer.
//
// A design states the kinds of workers of the two phases and how requests are assigned; the search chooses the two numbers.
// Goals cost and power: the least that is feasible at the problem's rate. Goal throughput: with limited room (GPUs, cost,
// power) the most requests per second within it, otherwise the fewest GPUs. A deployment is feasible if it meets the objectives
// in each of `seeds` trials. Trials end as soon as the verdict is certain. They run in parallel on the effort's executor, in
// groups whose size does not depend on its threads, and count against the step budget in order: one seed and budget give one
// plan.
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
  int seeds = 3;         // trials per deployment, with the problem's seed and the following ones
  double trial_s = 120;  // seconds of arrivals per trial (Splitwise: a 2-minute trace), ...
  // ... but at least Problem::requests_per_trial requests, and at most this many.
  std::int64_t max_requests = 20'000;
  double max_power_watts = std::numeric_limits<double>::infinity();  // for the whole plan
  double tolerance = 0.02;                                           // relative tolerance of a largest rate
};

struct SplitDesign {
  std::string name;  // "h100-80gb-8 for prompts, a100-80gb-8 for tokens"
  std::function<Deployment(const PhaseCounts&)> deploy;
  bool unified = false;        // one kind, counted as prefill workers
  PhaseCounts guess = {1, 1};  // starting point at the problem's rate
};

// Workers that each phase keeps busy at the problem's rate, by closed forms: prompts run alone, decodes in batches that fill
// most of the memory.
struct PhaseLoads {
  double prefill = 0;
  double decode = 0;
};
[[nodiscard]] PhaseLoads phase_loads(const Problem& problem, const planner::IterationModel& prefill, const WorkerKind& decode);
// Initial number of workers for a load.
[[nodiscard]] int workers_for(double load);

class SplitSearch {
 public:
  // Borrows both. REQUIRES: validate(problem).
  SplitSearch(const Problem& problem, const Effort& effort, const SplitOptions& options);

  // Searches this design for something better than the best so far. Errors: of try_out(); Cancelled by the stop or the step
  // budget, in which case the best so far is kept.
  [[nodiscard]] Result<void> look(const SplitDesign& design);

  struct Found {
    SplitDesign design;
    PhaseCounts counts;
    double requests_per_s = 0;  // a rate at which it is known to be feasible
    double worth = 0;           // for throughput with limited room: minus the rate
  };
  [[nodiscard]] const std::optional<Found>& best() const { return best_; }

  // Replaces the best's design with one that is known to be feasible with the same workers.
  void adopt(const SplitDesign& design) { best_->design = design; }

  // The worst ratio of a figure to its objective at a rate, over all seeds.
  [[nodiscard]] Result<double> worst_of(const Deployment& deployment, double requests_per_s);

  // The plan, after all designs were searched. If nothing is feasible, the nearest deployment that has room. `stopped`: whether
  // look() was cancelled. Errors: kNotFound if no design has room for one worker of each kind; Cancelled if stopped before
  // anything was found.
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
  // The largest feasible rate of a deployment that is feasible at `holds_at`.
  [[nodiscard]] Result<double> rate_of(const Deployment& deployment, double holds_at);
  [[nodiscard]] bool max_throughput() const { return problem_.goal == Goal::kThroughput && bounded_; }
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
  std::vector<Candidate> asked_;     // per design, in order: what was best and feasible, or failed last
  std::vector<SplitDesign> looked_;  // designs with room for one worker of each kind
  std::vector<std::string> notes_;
  std::int64_t trials_ = 0;
  std::int64_t iterations_ = 0;
};

// The best of these designs. Errors as of Strategy.
[[nodiscard]] Result<Offer> plan_of_designs(const Problem& problem, const Effort& effort, const SplitOptions& options,
                                            const std::string& strategy, std::vector<SplitDesign> designs);

}  // namespace windlass::search
