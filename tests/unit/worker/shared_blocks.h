// A batch in which two sequences continue after blocks that a third one computes in the same batch, for every kind of backend:
// the first with a single token, as in decode, the second with several.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/base/rng.h"
#include "tests/unit/worker/random_model.h"
#include "tests/unit/worker/reference_model.h"
#include "worker/backend/backend.h"

namespace windlass::worker::testing {

class SharedBlocks {
 public:
  static constexpr std::int64_t kBlocks = 5;  // minimum size of the cache
  static constexpr std::int64_t kTokens = 46;
  static constexpr std::int64_t kRows = 3;

  SharedBlocks(Rng& rng, const ModelConfig& config) : whole_(random_tokens(rng, config, 39)) {
    for (std::vector<std::int32_t>* other : {&single_, &several_}) {
      const auto tail = random_tokens(rng, config, other == &single_ ? 1 : 6);
      other->assign(whole_.begin(), whole_.begin() + kShared);
      other->insert(other->end(), tail.begin(), tail.end());
    }
  }

  [[nodiscard]] std::vector<SequenceChunk> batch() const {
    return {{std::span(single_).subspan(kShared), kShared, of_single_, true},
            {whole_, 0, of_whole_, true},
            {std::span(several_).subspan(kShared), kShared, of_several_, true}};
  }
  // The reference's logits for the last token of each sequence.
  [[nodiscard]] std::vector<Row> expected(const ModelConfig& config, const ModelWeights& weights) const {
    std::vector<Row> rows;
    for (const auto* tokens : {&single_, &whole_, &several_}) rows.push_back(reference_logits(config, weights, *tokens).back());
    return rows;
  }

 private:
  static constexpr std::size_t kShared = 2 * kKvBlockTokens;

  std::vector<std::int32_t> whole_, single_, several_;
  std::vector<std::int32_t> of_whole_{3, 1, 2}, of_single_{3, 1, 4}, of_several_{3, 1, 0};
};

}  // namespace windlass::worker::testing
