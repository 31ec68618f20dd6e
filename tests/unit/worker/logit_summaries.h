// Random rows of logits, and their summaries computed by sorting.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "planner/base/rng.h"
#include "worker/backend/logit_summary.h"

namespace windlass::worker::testing {

// Many are equal, some are not finite.
inline std::vector<float> random_logits(Rng& rng, std::int64_t count) {
  std::vector<float> logits;
  for (std::int64_t i = 0; i < count; ++i) {
    const double logit = rng.uniform(-8, 8);
    logits.push_back(static_cast<float>(rng.uniform() < 0.5 ? std::round(logit) : logit));
    if (rng.uniform() < 0.02) logits.back() = std::numeric_limits<float>::quiet_NaN();
    if (rng.uniform() < 0.02) logits.back() = (rng.uniform() < 0.5 ? 1.0F : -1.0F) * std::numeric_limits<float>::infinity();
  }
  return logits;
}

inline LogitSummary summary_of(std::span<const float> logits, const RowNeed& need, std::int32_t first_id = 0) {
  std::vector<std::int32_t> order;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (std::isfinite(logits[i])) order.push_back(static_cast<std::int32_t>(i));
  }
  const auto logit = [&](std::int32_t id) { return logits[static_cast<std::size_t>(id)]; };
  std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) { return logit(a) > logit(b); });
  LogitSummary summary;
  if (order.empty()) return summary;
  summary.highest = logit(order.front());
  double total = 0, tempered = 0;
  for (const std::int32_t id : order) {
    const double below = static_cast<double>(logit(id)) - static_cast<double>(summary.highest);
    total += std::exp(below);
    tempered += std::exp(below * static_cast<double>(need.steepness));
    if (summary.count == need.likeliest) continue;
    summary.ids[summary.count] = first_id + id;
    summary.logits[summary.count++] = logit(id);
  }
  summary.total = static_cast<float>(total);
  summary.tempered = static_cast<float>(tempered);
  return summary;
}

}  // namespace windlass::worker::testing
