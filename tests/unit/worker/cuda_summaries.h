// Checks of summaries, and of a backend that makes them.
#pragma once

#include <numeric>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/worker/logit_summaries.h"
#include "tests/unit/worker/random_model.h"
#include "worker/backend/backend.h"

namespace windlass::worker::testing {

inline void expect_summary(const LogitSummary& found, const LogitSummary& expected) {
  ASSERT_EQ(found.count, expected.count);
  for (int i = 0; i < expected.count; ++i) {
    EXPECT_EQ(found.ids[i], expected.ids[i]) << i;
    EXPECT_EQ(found.logits[i], expected.logits[i]) << i;
  }
  if (expected.count == 0) return;
  EXPECT_EQ(found.highest, expected.highest);
  EXPECT_NEAR(found.total, expected.total, 1e-5 * static_cast<double>(expected.total));
  EXPECT_NEAR(found.tempered, expected.tempered, 1e-5 * static_cast<double>(expected.tempered));
}

// Checks one batch of six single tokens, each in its own cache block. `tolerance`: between the logits of two runs.
inline void expect_rows_by_need(Rng& rng, const ModelConfig& config, Backend& backend, float tolerance = 0) {
  const auto tokens = random_tokens(rng, config, 6);
  std::vector<std::int32_t> blocks(6);
  std::iota(blocks.begin(), blocks.end(), 0);
  std::vector<SequenceChunk> chunks;
  for (std::size_t i = 0; i < 6; ++i) {
    chunks.push_back({std::span(tokens).subspan(i, 1), 0, std::span(blocks).subspan(i, 1), i != 1});
  }
  const auto vocab = static_cast<std::size_t>(config.vocab_size);
  std::vector<float> whole;
  for (int time = 0; time < 6; ++time) {
    std::vector<RowNeed> needs;
    for (SequenceChunk& chunk : chunks) {
      if (time > 0) chunk.need = {static_cast<std::int32_t>(rng.uniform() < 0.4 ? 0 : rng.integer(1, 64)), 1.5F};
      if (chunk.wants_logits) needs.push_back(chunk.need);
    }
    const auto rows = backend.forward(chunks);
    ASSERT_TRUE(rows.ok()) << rows.error().message;
    ASSERT_EQ(rows->size(), needs.size() * vocab);
    if (time == 0) whole.assign(rows->begin(), rows->end());
    for (std::size_t i = 0; i < needs.size(); ++i) {
      SCOPED_TRACE(::testing::Message() << "time " << time << ", row " << i);
      const auto expected = std::span(whole).subspan(i * vocab, vocab);
      auto row = rows->subspan(i * vocab, vocab);
      const LogitSummary* summary = backend.summary(i);
      ASSERT_EQ(summary != nullptr, needs[i].likeliest > 0);
      if (summary != nullptr) {
        const auto fetched = backend.row(i);
        ASSERT_TRUE(fetched.ok()) << fetched.error().message;
        row = *fetched;
        expect_summary(*summary, summary_of(row, needs[i]));
      }
      for (std::size_t id = 0; id < vocab; ++id) ASSERT_NEAR(row[id], expected[id], tolerance) << id;
    }
    EXPECT_EQ(backend.summary(needs.size()), nullptr);
  }
}

}  // namespace windlass::worker::testing
