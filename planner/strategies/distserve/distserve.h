// DistServe's placement (Zhong et al., OSDI 2024, Section 4): chooses prefill and decode workers for the most goodput per GPU
// (here: per worth, in dollars, watts or GPUs by the problem's goal).
//
// - Algorithm 1, high node affinity: finds the best prefill instance and the best decoding instance independently. The best one
//   has the largest rate at which its phase alone meets the objectives in the simulator.
// - Algorithm 2, low node affinity: caches may not leave a node. So the unit is a pair of one prefill and one decoding instance
//   whose stages share nodes, simulated together, with cache transfers inside a node.
//
// The unit is then replicated: n = ceil(rate / goodput). Prefill instances batch up to L_m tokens; the decoding instance pulls
// caches when it has room. Finally the whole deployment is simulated at the rate with another seed. Phases that each just meet
// their objective may miss it together; then instances are added to the phase that lags.
//
// See docs/algorithms/distserve.md. Pure.
#pragma once

#include <cstdint>
#include <string>

#include "planner/strategies/core/strategy.h"
#include "planner/strategies/distserve/distserve_search.h"

namespace windlass::search {

enum class NodeAffinity {
  kAuto,  // low if a mean prompt's cache takes more than a tenth of the TTFT objective between nodes
  kHigh,
  kLow,
};

struct DistServeOptions {
  NodeAffinity affinity = NodeAffinity::kAuto;
  std::int64_t requests_per_probe = 0;  // 0: Problem::requests_per_trial
  double tolerance = 0.02;              // relative tolerance of a goodput; above 0, at most 1
  int prefill_batch_tokens = 0;         // L_m; 0: critical_prompt_tokens() for each kind's latency
  double saturation = 0.85;             // share of the maximum tokens per second that L_m must reach; above 0, at most 1
  bool prune = true;                    // false: also bisect units that cannot win
  int finals = 2;                       // UnitSearchOptions::finals
};

[[nodiscard]] Result<Offer> distserve_plan(const Problem& problem, const Effort& effort);
[[nodiscard]] Result<Offer> distserve_plan(const Problem& problem, const Effort& effort, const DistServeOptions& options);

// Result of Algorithm 1 or 2 without replication: one prefill and one decoding instance, and their goodputs.
struct DistServeChoice {
  NodeAffinity affinity = NodeAffinity::kHigh;  // never kAuto
  std::string why;                              // reason for this affinity
  int prefill_kind = 0, decode_kind = 0;
  // Requests per second of one instance; for a pair, both are the pair's. 0: feasible at no rate.
  double prefill_per_s = 0, decode_per_s = 0;
  Deployment one;  // one instance of each
  std::int64_t trials = 0;
  std::int64_t iterations = 0;

  // Requests per second per worth, with both phases in proportion to their goodputs.
  [[nodiscard]] double goodput_per_worth(double prefill_worth, double decode_worth) const;
};
[[nodiscard]] Result<DistServeChoice> distserve_choice(const Problem& problem, const Effort& effort,
                                                       const DistServeOptions& options = {});

}  // namespace windlass::search
