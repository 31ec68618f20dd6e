// DistServe's placement (Zhong et al., OSDI 2024, Section 4): which workers prefill and which decode, for the most goodput per
// GPU (here: for its worth, which is dollars, watts or GPUs as the problem's goal has it).
//
// - Algorithm 1, high node affinity: the best prefill instance and the best decoding instance by themselves, each by the
// largest
//   rate at which its phase alone holds the objectives in the simulator
// - Algorithm 2, low node affinity: caches may not leave a node, so the unit is a pair of one prefill and one decoding instance
//   whose stages stand on the same nodes, simulated together, with caches inside a node
// Then replication: n = ceil(rate / goodput). Prefill instances batch up to L_m; caches are pulled by the decoding instance
// when it has room. The whole deployment is then simulated at the rate with another seed; where goodputs of phases that are
// each just inside their objective do not hold together, instances are added to the phase that lags.
//
// docs/algorithms/distserve.md says more. Pure.
#pragma once

#include <cstdint>
#include <string>

#include "planner/strategies/core/strategy.h"
#include "planner/strategies/distserve/distserve_search.h"

namespace windlass::search {

enum class NodeAffinity {
  kAuto,  // low where a mean prompt's cache takes more than a tenth of the TTFT objective from node to node
  kHigh,
  kLow,
};

struct DistServeOptions {
  NodeAffinity affinity = NodeAffinity::kAuto;
  std::int64_t requests_per_probe = 0;  // 0: Problem::requests_per_trial
  double tolerance = 0.02;              // of a goodput, relative; above 0, at most 1
  int prefill_batch_tokens = 0;         // L_m; 0: of each kind's latency, critical_prompt_tokens()
  double saturation = 0.85;             // of the tokens a second that L_m is to make; above 0, at most 1
  bool prune = true;                    // false: bisects units that cannot win, too
};

[[nodiscard]] Result<Offer> distserve_plan(const Problem& problem, const Effort& effort);
[[nodiscard]] Result<Offer> distserve_plan(const Problem& problem, const Effort& effort, const DistServeOptions& options);

// Algorithm 1 or 2 without replication: one prefill and one decoding instance, and their goodput.
struct DistServeChoice {
  NodeAffinity affinity = NodeAffinity::kHigh;  // never kAuto
  std::string why;                              // this affinity
  int prefill_kind = 0, decode_kind = 0;
  // Requests a second of one instance; of a pair both are the pair's. 0: holds at no rate.
  double prefill_per_s = 0, decode_per_s = 0;
  Deployment one;  // one instance of each
  std::int64_t trials = 0;
  std::int64_t iterations = 0;

  // Requests a second for a worth of 1, both phases in the proportion of their goodputs.
  [[nodiscard]] double goodput_per_worth(double prefill_worth, double decode_worth) const;
};
[[nodiscard]] Result<DistServeChoice> distserve_choice(const Problem& problem, const Effort& effort,
                                                       const DistServeOptions& options = {});

}  // namespace windlass::search
