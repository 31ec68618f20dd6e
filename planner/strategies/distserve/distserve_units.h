// DistServeUnits: the units that DistServe's search replicates. They are prefill instances, decoding instances, and pairs of
// both on the same nodes, each with its requests, engine and closed-form estimates. Owns what the units borrow. Pure.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "planner/strategies/distserve/distserve.h"
#include "planner/strategies/distserve/distserve_queueing.h"
#include "planner/strategies/distserve/distserve_search.h"

namespace windlass::search {

// The objectives as one number each; infinite without one.
struct PhaseBounds {
  double ttft_s = 0;
  double tpot_s = 0;
  double share = 0;  // share of the requests that must meet it
};
[[nodiscard]] PhaseBounds phase_bounds(const Objectives& objectives);

class DistServeUnits {
 public:
  // Borrows the problem. `requests`: per trial.
  DistServeUnits(const Problem& problem, const DistServeOptions& options, std::int64_t requests);
  DistServeUnits(const DistServeUnits&) = delete;  // units hold pointers into it
  DistServeUnits& operator=(const DistServeUnits&) = delete;

  // One unit per kind, in order. A prefill instance gets prompts with answers of one token. A decoding instance gets caches
  // from a prefill instance that takes no time, over the real link.
  [[nodiscard]] std::vector<Unit> prefill() const;
  [[nodiscard]] std::vector<Unit> decode() const;

  // Pairs of kinds whose stages fit on the same nodes: each is cut into `segments` equal parts, and each node holds one part of
  // both.
  struct Pair {
    int prefill = 0, decode = 0;
    int segments = 1;  // number of nodes it uses: the minimum
  };
  [[nodiscard]] const std::vector<Pair>& pairs() const { return pairs_; }
  [[nodiscard]] std::vector<Unit> pair_units() const;

  [[nodiscard]] Deployment deployment(int prefill_kind, int decode_kind, int prefill_workers, int decode_workers,
                                      bool pairs) const;
  // Whether all GPUs that a plan may use are on one node; then no cache leaves it, whatever the pairs.
  [[nodiscard]] bool one_node() const { return one_node_; }
  [[nodiscard]] double worth(int kind) const;  // per worker; its GPUs if the goal's figure is unknown
  [[nodiscard]] int batch_tokens(int kind) const { return batch_tokens_[static_cast<std::size_t>(kind)]; }  // L_m
  [[nodiscard]] const PhaseLengths& lengths() const { return lengths_; }
  [[nodiscard]] const PhaseScreen& prefill_screen(int kind) const { return prefill_screens_[static_cast<std::size_t>(kind)]; }
  [[nodiscard]] const PhaseScreen& decode_screen(int kind) const { return decode_screens_[static_cast<std::size_t>(kind)]; }

 private:
  [[nodiscard]] Pool prefill_pool(int kind, dispatch::Role role, int workers) const;
  [[nodiscard]] Pool decode_pool(int kind, int workers) const;

  const Problem& problem_;
  std::unique_ptr<const Requests> prompts_;  // with answers of one token
  Problem prefill_problem_;
  Problem decode_problem_;  // with an additional kind that takes no time
  WorkerSpec instant_;
  PhaseLengths lengths_;
  std::vector<int> batch_tokens_;
  std::vector<PhaseScreen> prefill_screens_, decode_screens_;
  std::vector<Pair> pairs_;
  bool one_node_ = false;
};

}  // namespace windlass::search
