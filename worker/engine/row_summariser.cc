// Uses the sampler's own passes, so that both see the same order and weights.
#include "worker/engine/row_summariser.h"

#include <algorithm>
#include <cassert>

namespace windlass::worker {

LogitSummary RowSummariser::summary_of(std::span<const float> logits, const RowNeed& need) {
  assert(need.likeliest >= 1 && need.likeliest <= kMaxLikeliest);
  LogitSummary summary;
  find_maxima(logits, maxima_);
  find_likeliest(logits, maxima_, static_cast<std::size_t>(need.likeliest), highest_maxima_, likeliest_);
  std::sort(likeliest_.begin(), likeliest_.end(), likelier);
  for (const TokenWeight& each : likeliest_) {
    summary.ids[summary.count] = each.id;
    summary.logits[summary.count++] = static_cast<float>(each.weight);
  }
  if (summary.count == 0) return summary;
  summary.highest = summary.logits[0];
  weights_.resize(logits.size());
  const auto total = [&](float steepness) {
    return static_cast<float>(weigh(logits, summary.highest, steepness, 0, weights_.data()));
  };
  summary.total = total(1);
  summary.tempered = need.steepness == 1 ? summary.total : total(need.steepness);
  return summary;
}

}  // namespace windlass::worker
