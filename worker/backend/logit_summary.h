// LogitSummary: a short replacement for a row of logits: its likeliest tokens and the total weight of all. The sampler rarely
// needs more, and a row is a thousand times larger. Plain data, also written by kernels.
#pragma once

#include <cstdint>
#include <span>

namespace windlass::worker {

inline constexpr int kMaxLikeliest = 64;

// What the sampler needs of a row.
struct RowNeed {
  std::int32_t likeliest = 0;  // number of tokens in a sufficient summary, at most kMaxLikeliest; 0: the full row
  float steepness = 1;         // 1 / temperature, for LogitSummary::tempered; finite
};

// Covers the finite logits of a row, or of part of it. A sum is over e^((logit - highest) * steepness).
struct LogitSummary {
  std::int32_t count = 0;                // of likeliest tokens: as requested, or all if there are fewer
  float highest = 0;                     // valid if count > 0
  float total = 0;                       // sum with steepness 1
  float tempered = 0;                    // sum with the requested steepness
  std::int32_t ids[kMaxLikeliest] = {};  // likeliest first; ties by lower id
  float logits[kMaxLikeliest] = {};
};

// The summary of a whole from those of its parts. REQUIRES: all were made for the same need.
[[nodiscard]] LogitSummary merged(std::span<const LogitSummary> parts, const RowNeed& need);

}  // namespace windlass::worker
