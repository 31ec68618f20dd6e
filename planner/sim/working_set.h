// WorkingSet predicts how many more pages of a KV cache the decoding sequences will need, for admission that looks ahead.
//
// TetriInfer Section 3.4, "working-set-aware scheduling policies", names the rules but gives no formula. We read them as
// follows:
// - reserve-static, "only if its predicted memory usage is smaller than the available accelerator memory": all running
//   sequences grow to their predicted ends. The predicted whole length of the new one must fit next to them.
// - reserve-dynamic, "only if there is still spare memory when the shortest remaining job in the batch finishes": the job with
//   the fewest predicted tokens left, including the new one, ends r iterations from now. By then every sequence is r tokens
//   longer. The pages of all must fit at that time, before those of the ended one are freed.
//
// Incoming sequences (a cache in transfer, a prompt in prefill) count with the length at which they will begin to decode, and
// for reserve-dynamic as if they decoded from now on. A sequence that has outlived its prediction is assumed to need no further
// page (reserve-static), or to keep growing without being the shortest job (reserve-dynamic). Admission is also limited by the
// pages actually free, so a wrong prediction only costs preemptions. O(log n) per sequence that joins or leaves, O(1) per
// iteration, O(1) or O(block_tokens) per query. Pure; not thread-safe.
#pragma once

#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "planner/deployment/engine_settings.h"

namespace windlass::sim {

class WorkingSet {
 public:
  WorkingSet(planner::DecodeAdmission admission, int block_tokens);

  [[nodiscard]] bool empty() const { return members_ == 0; }

  // Pages needed beyond those held now if another sequence joins, which begins to decode with `tokens` in its cache and then
  // makes `tokens_left` by prediction (0 or less: it has outlived the prediction).
  [[nodiscard]] std::int64_t growth(std::int64_t tokens, std::int64_t tokens_left) const;

  // Adds a sequence that holds the pages of this many tokens and does not decode yet. REQUIRES: it is not in the set.
  void add(int sequence, std::int64_t tokens, std::int64_t tokens_left);
  // It decodes from the next iteration on. REQUIRES: it was added; no iteration is running.
  void start(int sequence);
  // Removes a sequence that has freed its pages; no effect if it is not in the set.
  void remove(int sequence);

  // Call around each decode iteration: before it, all decoding sequences have the page for one more token; after it, those that
  // ended in it have been removed.
  void begin_iteration();
  void end_iteration();

 private:
  struct Member {
    std::int64_t tokens = 0;       // in its cache when it began to decode
    std::int64_t tokens_left = 0;  // predicted, at that time
    std::int64_t started = 0;      // iteration
    bool present = false;
    bool decoding = false;
    bool outlived = false;  // its prediction was exceeded
  };

  [[nodiscard]] std::int64_t blocks_of(std::int64_t tokens) const { return (tokens + block_tokens_ - 1) / block_tokens_; }
  [[nodiscard]] std::int64_t promised(const Member& member) const;
  [[nodiscard]] std::size_t phase(const Member& member) const;
  [[nodiscard]] std::int64_t shortest() const;  // predicted tokens left of the shortest job; 0: unknown for all

  planner::DecodeAdmission admission_;
  std::int64_t block_tokens_;
  std::vector<Member> by_sequence_;
  int members_ = 0;
  std::int64_t iteration_ = 0;      // the next one
  std::int64_t promised_ = 0;       // pages up to the predicted ends, for all that have not outlived them
  std::vector<int> due_;            // [p]: decoding sequences that need a page in iterations i with (p + i) % block_tokens = 0
  std::vector<int> due_in_time_;    // part of due_ that has not outlived its prediction
  std::vector<int> length_on_way_;  // [l]: sequences not decoding, with tokens % block_tokens = l
  std::set<std::pair<std::int64_t, int>> ends_;    // (iteration after the predicted last one, sequence) of decoding sequences
                                                   // that have not outlived it
  std::set<std::pair<std::int64_t, int>> on_way_;  // (tokens left, sequence) of sequences not decoding that have not outlived
                                                   // it
};

}  // namespace windlass::sim
