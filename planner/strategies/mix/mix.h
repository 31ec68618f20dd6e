// Mix: the cheapest mix of worker kinds for requests of different sizes; several models may share the GPUs.
//
// The idea is from Melange (Griggs et al. 2024, "Melange: Cost Efficient Large Language Model Serving by Exploiting GPU
// Heterogeneity"): requests are grouped into buckets by size, each request takes a share of a worker's time depending on the
// kind, and an integer program finds the cheapest workers that carry all shares. Differences: a bucket may be split between
// kinds in any proportion, not in slices; there are several models, GPU and cost budgets, and priorities; and there is an
// answer if not everything can be served.
//
//   minimise    sum_k price_k n_k                           n_k: whole workers of a kind
//   subject to  sum_k x_bk + unserved_b = 1                 shares of a bucket b
//               sum_b rate_b load_bk x_bk <= n_k            load_bk: a worker's time per request of b, 1 / capacity
//               the workers' GPUs within each accelerator's, max_gpus and max_cost_per_hour
//
// Unserved requests are minimised first, highest priority first, and then the cost. Loads come from mix_capacity.h; this file
// knows models and accelerators only as numbers. Pure; one problem has one answer, except for `stop`.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "planner/base/executor.h"
#include "planner/base/result.h"

namespace windlass::search {

// A kind of worker that can serve a model.
struct MixKind {
  std::string name;     // for people
  int accelerator = 0;  // index in MixProblem::accelerators
  int gpus = 1;
  double price_per_hour = 0;  // per worker
};

// Requests of similar size.
struct MixBucket {
  double requests_per_s = 0;
  // By kind: seconds of a worker per request. Infinite: not possible on this kind, for example because a request alone misses
  // the objectives.
  std::vector<double> load_s;
};

struct MixModel {
  std::string name;
  int priority = 0;  // higher is served first if not everything can be served
  std::vector<MixKind> kinds;
  std::vector<MixBucket> buckets;
};

struct MixAccelerator {
  std::string name;
  int gpus = std::numeric_limits<int>::max();  // for all models together
};

struct MixProblem {
  std::vector<MixAccelerator> accelerators;
  std::vector<MixModel> models;
  int max_gpus = std::numeric_limits<int>::max();
  double max_cost_per_hour = std::numeric_limits<double>::infinity();
};

// Errors name the model, kind or bucket and the rule: no model, a kind without GPUs or on a missing accelerator, a negative or
// invalid price, rate or load, or a number of loads that differs from the number of kinds.
[[nodiscard]] Result<void> validate(const MixProblem& problem);

struct MixShares {
  std::vector<int> workers;                 // by kind
  std::vector<std::vector<double>> shares;  // by bucket and kind: share of the bucket's requests; they add up to the served
                                            // share
  double unserved_per_s = 0;
};

struct Mix {
  std::vector<MixShares> models;
  double cost_per_hour = 0;
  double unserved_per_s = 0;  // over all models
  // Lower bound: no mix that serves as much costs less. 0 if requests stay unserved, since then no bound is known.
  double bound_per_hour = 0;
  // Lower bound: no mix within the budgets leaves fewer requests unserved.
  double unserved_bound_per_s = 0;
  bool optimal = false;  // proven optimal
  bool stopped = false;  // stopped before the search was complete
  // If requests stay unserved: one sentence per missing resource.
  std::vector<std::string> missing;
  std::int64_t programs = 0;  // linear and integer programs solved
  std::int64_t nodes = 0;     // of branch and bound

  // Largest possible excess over the least cost, relative; 0 if it costs nothing.
  [[nodiscard]] double gap() const { return bound_per_hour > 0 ? cost_per_hour / bound_per_hour - 1 : 0; }
};

struct MixEffort {
  std::int64_t max_nodes = 10'000'000;  // total branch-and-bound nodes
  StopCheck stop;                       // checked between programs; returns the best so far
};

// Unserved requests below this share of all count as served: programs are solved in floating point.
inline constexpr double kMixTolerance = 1e-6;

// Solves the integer program with Cbc, in rounds of increasing size so that `stop` is checked. Starts from the heuristic's
// answer. Errors: those of validate(); kInternal if Cbc fails numerically.
[[nodiscard]] Result<Mix> exact_mix(const MixProblem& problem, const MixEffort& effort = {});

struct MixHeuristicOptions {
  int max_programs = 2000;        // linear programs of the local search
  int bound_rounds = 12;          // programs over counts only, which raise the bound
  long nodes_of_a_round = 2'000;  // branch-and-bound nodes
};

// Rounds the linear relaxation, then exchanges up to three workers for up to three others while that improves, then raises the
// bound (docs/algorithms/mix.md). Errors: those of validate().
[[nodiscard]] Result<Mix> heuristic_mix(const MixProblem& problem, const MixHeuristicOptions& options = {},
                                        const MixEffort& effort = {});

}  // namespace windlass::search
