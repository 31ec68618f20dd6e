// Mix: the cheapest workers of several kinds for requests of several sizes, several models sharing the GPUs.
//
// The idea is Melange's (Griggs et al. 2024, "Melange: Cost Efficient Large Language Model Serving by Exploiting GPU
// Heterogeneity"): requests are cut into buckets by size, a request of a bucket takes a share of a worker of each kind, and the
// fewest dollars of workers that carry all shares are an integer program. Here a bucket may be split between kinds in any
// shares, not in slices, and there are several models, GPU and cost budgets, priorities, and an answer where not all can be
// served.
//
//   least  sum_k price_k n_k                             n_k whole workers of a kind
//   with   sum_k x_bk + unserved_b = 1                   the shares of a bucket b
//          sum_b rate_b load_bk x_bk <= n_k              load_bk: the worker's time that a request of b takes, 1 / capacity
//          the workers' GPUs inside each accelerator's, max_gpus and max_cost_per_hour
//
// First the least is unserved, of higher priorities first, then the cost counts. Loads come from elsewhere (mix_capacity.h);
// nothing here knows of models or accelerators but their numbers. Pure; one problem has one answer, but for `stop`.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "planner/base/executor.h"
#include "planner/base/result.h"

namespace windlass::search {

// A worker that a model may be served by.
struct MixKind {
  std::string name;     // for people
  int accelerator = 0;  // index in MixProblem::accelerators
  int gpus = 1;
  double price_per_hour = 0;  // of the worker
};

// Requests of similar size.
struct MixBucket {
  double requests_per_s = 0;
  // By kind: seconds of a worker that one request takes. Infinite: not on this kind, such as where a request alone is outside
  // the objectives.
  std::vector<double> load_s;
};

struct MixModel {
  std::string name;
  int priority = 0;  // higher goes first where not all can be served
  std::vector<MixKind> kinds;
  std::vector<MixBucket> buckets;
};

struct MixAccelerator {
  std::string name;
  int gpus = std::numeric_limits<int>::max();  // that all models together may use
};

struct MixProblem {
  std::vector<MixAccelerator> accelerators;
  std::vector<MixModel> models;
  int max_gpus = std::numeric_limits<int>::max();
  double max_cost_per_hour = std::numeric_limits<double>::infinity();
};

// Names the model, kind or bucket, what was found and what is allowed: no model, a kind without GPUs or on an accelerator that
// is not there, a price, rate or load that is negative or no number, loads that are not one for each kind.
[[nodiscard]] Result<void> validate(const MixProblem& problem);

struct MixShares {
  std::vector<int> workers;                 // by kind
  std::vector<std::vector<double>> shares;  // by bucket and kind: of the bucket's requests; they add up to what is served
  double unserved_per_s = 0;
};

struct Mix {
  std::vector<MixShares> models;
  double cost_per_hour = 0;
  double unserved_per_s = 0;  // of all models
  // No mix that serves as much costs less; nothing is known where requests stay unserved: then 0.
  double bound_per_hour = 0;
  // No mix inside the budgets leaves less unserved.
  double unserved_bound_per_s = 0;
  bool optimal = false;  // proven
  bool stopped = false;  // before the search was through
  // Where requests stay unserved: a sentence for each thing that is missing.
  std::vector<std::string> missing;
  std::int64_t programs = 0;  // linear and integer programs that were solved
  std::int64_t nodes = 0;     // of branch and bound

  // What it may be above the least cost, as a share of that; 0 where it costs nothing.
  [[nodiscard]] double gap() const { return bound_per_hour > 0 ? cost_per_hour / bound_per_hour - 1 : 0; }
};

struct MixEffort {
  std::int64_t most_nodes = 10'000'000;  // of branch and bound, in all
  StopCheck stop;                        // asked between programs; the best so far is given
};

// Requests that stay unserved count as served below this share of all: programs are solved in floating point.
inline constexpr double kMixTolerance = 1e-6;

// The integer program, by Cbc, in rounds of more and more nodes, so that `stop` is heard. Begins with the heuristic's answer.
// Errors: those of validate(); kInternal when Cbc gives up on the numbers.
[[nodiscard]] Result<Mix> exact_mix(const MixProblem& problem, const MixEffort& effort = {});

struct MixHeuristicOptions {
  int most_programs = 2000;       // linear programs that the local search asks
  int bound_rounds = 12;          // programs over the counts alone that lift the bound
  long nodes_of_a_round = 2'000;  // of branch and bound
};

// Rounds the linear relaxation, then exchanges up to three workers for up to three others while that is better, then lifts the
// bound (docs/algorithms/mix.md). Errors: those of validate().
[[nodiscard]] Result<Mix> heuristic_mix(const MixProblem& problem, const MixHeuristicOptions& options = {},
                                        const MixEffort& effort = {});

}  // namespace windlass::search
