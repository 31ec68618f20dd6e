// Merges summaries: each round takes the likeliest of the parts' next tokens.
#include "worker/backend/logit_summary.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace windlass::worker {

LogitSummary merged(std::span<const LogitSummary> parts, const RowNeed& need) {
  LogitSummary whole;
  std::vector<std::int32_t> next(parts.size());
  while (whole.count < need.likeliest) {
    std::size_t best = parts.size();
    for (std::size_t i = 0; i < parts.size(); ++i) {
      if (next[i] == parts[i].count) continue;
      if (best < parts.size()) {
        const float logit = parts[i].logits[next[i]], highest = parts[best].logits[next[best]];
        if (logit < highest || (logit == highest && parts[i].ids[next[i]] > parts[best].ids[next[best]])) continue;
      }
      best = i;
    }
    if (best == parts.size()) break;
    whole.ids[whole.count] = parts[best].ids[next[best]];
    whole.logits[whole.count++] = parts[best].logits[next[best]++];
  }
  if (whole.count == 0) return whole;
  whole.highest = whole.logits[0];
  for (const LogitSummary& part : parts) {
    if (part.count == 0) continue;
    const float below = part.highest - whole.highest;
    whole.total += part.total * std::exp(below);
    whole.tempered += part.tempered * std::exp(below * need.steepness);
  }
  return whole;
}

}  // namespace windlass::worker
