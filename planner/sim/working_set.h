// WorkingSet: how many pages of a KV cache the decoding sequences are predicted to need still, for admission that looks ahead.
//
// TetriInfer Section 3.4, "working-set-aware scheduling policies", which name a rule but give no formula. How it is read here:
// - reserve-static: "only if its predicted memory usage is smaller than the available accelerator memory": all that run grow to
//   their predicted ends, and the new one's predicted whole length must fit beside them.
// - reserve-dynamic: "only if there is still spare memory when the shortest remaining job in the batch finishes": the job with
//   the fewest predicted tokens left, the new one among them, ends r iterations from now; the pages of all of them, each r
//   tokens longer, must fit at that moment, before the ended one's are given back.
// What is on its way (a cache under transfer, a prompt in prefill) counts with the length that it will begin to decode with,
// and for reserve-dynamic as if it decoded from now on. Who has outlived its prediction is taken to need no further page
// (reserve-static), or to grow on without being anybody's shortest job (reserve-dynamic). Admission takes the pages that are
// really free as its other limit, so a wrong prediction costs preemptions and nothing else.
// O(log n) per sequence that comes or goes, O(1) per iteration, O(1) or O(block_tokens) per question. Pure, not thread-safe.
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

  // Pages beyond those held now that must be left when one more joins which begins to decode with `tokens` in its cache, and
  // then makes `tokens_left` by prediction (0 or less: it has outlived that).
  [[nodiscard]] std::int64_t growth(std::int64_t tokens, std::int64_t tokens_left) const;

  // A sequence holds the pages of so many tokens and does not decode yet. REQUIRES: it is not in the set.
  void add(int sequence, std::int64_t tokens, std::int64_t tokens_left);
  // It decodes from the next iteration on. REQUIRES: it was added; no iteration is under way.
  void start(int sequence);
  // It gave its pages back. Nothing if it is not in the set.
  void remove(int sequence);

  // Around each decode iteration: all that decode have the page for one token more; the iteration is over and who ended with it
  // was removed.
  void begin_iteration();
  void end_iteration();

 private:
  struct Member {
    std::int64_t tokens = 0;       // in its cache when it began to decode
    std::int64_t tokens_left = 0;  // predicted, at that time
    std::int64_t started = 0;      // iteration
    bool present = false;
    bool decoding = false;
    bool outlived = false;  // its prediction
  };

  [[nodiscard]] std::int64_t blocks_of(std::int64_t tokens) const { return (tokens + block_tokens_ - 1) / block_tokens_; }
  [[nodiscard]] std::int64_t promised(const Member& member) const;
  [[nodiscard]] std::size_t phase(const Member& member) const;
  [[nodiscard]] std::int64_t shortest() const;  // predicted tokens left; 0: nobody's is known

  planner::DecodeAdmission admission_;
  std::int64_t block_tokens_;
  std::vector<Member> by_sequence_;
  int members_ = 0;
  std::int64_t iteration_ = 0;      // the next one
  std::int64_t promised_ = 0;       // pages to the predicted ends, of all that have not outlived them
  std::vector<int> due_;            // [p]: decoding, a page falls due in iterations i with (p + i) % block_tokens = 0
  std::vector<int> due_in_time_;    // of these, not outlived
  std::vector<int> length_on_way_;  // [l]: not decoding, tokens % block_tokens = l
  std::set<std::pair<std::int64_t, int>> ends_;    // predicted iteration after the last, sequence; decoding, not outlived
  std::set<std::pair<std::int64_t, int>> on_way_;  // tokens left, sequence; not decoding, not outlived
};

}  // namespace windlass::sim
