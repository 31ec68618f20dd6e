// LogitSummary: what a backend may give of a row of logits instead of the row: its likeliest tokens and how much all of them
// weigh. For most requests the sampler needs no more, and a row is a thousand times larger. Plain data: kernels write it, too.
#pragma once

#include <cstdint>
#include <span>

namespace windlass::worker {

inline constexpr int kMaxLikeliest = 64;

// What the sampler needs of a row.
struct RowNeed {
  std::int32_t likeliest = 0;  // tokens of a summary that is enough, at most kMaxLikeliest; 0: the row itself
  float steepness = 1;         // 1 / temperature, for LogitSummary::tempered; finite
};

// Of a row's finite logits, or of some part's. A sum is over e^((logit - highest) * steepness).
struct LogitSummary {
  std::int32_t count = 0;                // of the likeliest: as many as were asked for, or all that there are
  float highest = 0;                     // where count > 0
  float total = 0;                       // the sum with a steepness of 1
  float tempered = 0;                    // with the steepness that was asked for
  std::int32_t ids[kMaxLikeliest] = {};  // the likeliest first, the lower id first among equals
  float logits[kMaxLikeliest] = {};
};

// The whole's summary, of its parts'. REQUIRES: they were made for the same need.
[[nodiscard]] LogitSummary merged(std::span<const LogitSummary> parts, const RowNeed& need);

}  // namespace windlass::worker
