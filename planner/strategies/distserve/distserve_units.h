// DistServeUnits: what DistServe's search replicates: prefill instances, decoding instances, and pairs of both on the same
// nodes, each with the requests that it sees, its engine, and what closed forms say of it. Owns what the units borrow. Pure.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "planner/strategies/distserve/distserve.h"
#include "planner/strategies/distserve/distserve_queueing.h"
#include "planner/strategies/distserve/distserve_search.h"

namespace windlass::search {

// What the objectives bound, as one number each; infinite where they do not.
struct PhaseBounds {
  double ttft_s = 0;
  double tpot_s = 0;
  double share = 0;  // of the requests that are to be inside
};
[[nodiscard]] PhaseBounds phase_bounds(const Objectives& objectives);

class DistServeUnits {
 public:
  // Borrows the problem. `requests`: of a probe.
  DistServeUnits(const Problem& problem, const DistServeOptions& options, std::int64_t requests);
  DistServeUnits(const DistServeUnits&) = delete;  // units point into it
  DistServeUnits& operator=(const DistServeUnits&) = delete;

  // Of each kind, in their order. A prefill instance sees prompts whose answers are one token; a decoding instance gets caches
  // that a prefill instance of no latency hands to it, over the real link.
  [[nodiscard]] std::vector<Unit> prefill() const;
  [[nodiscard]] std::vector<Unit> decode() const;

  // Pairs of kinds whose stages fit side by side: cut into `segments` equal parts, of which each node holds one of both.
  struct Pair {
    int prefill = 0, decode = 0;
    int segments = 1;  // nodes that it stands on: the fewest
  };
  [[nodiscard]] const std::vector<Pair>& pairs() const { return pairs_; }
  [[nodiscard]] std::vector<Unit> pair_units() const;

  [[nodiscard]] Deployment deployment(int prefill_kind, int decode_kind, int prefill_workers, int decode_workers,
                                      bool pairs) const;
  // All GPUs that a plan may use stand on one node: every cache stays on it, whatever the pairs.
  [[nodiscard]] bool one_node() const { return one_node_; }
  [[nodiscard]] double worth(int kind) const;  // of a worker; its GPUs where the goal's is not known
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
  Problem decode_problem_;  // with a kind more, of instant_
  WorkerSpec instant_;
  PhaseLengths lengths_;
  std::vector<int> batch_tokens_;
  std::vector<PhaseScreen> prefill_screens_, decode_screens_;
  std::vector<Pair> pairs_;
  bool one_node_ = false;
};

}  // namespace windlass::search
