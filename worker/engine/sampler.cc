// Argmax, or inversion over the (perhaps truncated) softmax.
#include "worker/engine/sampler.h"

#include <algorithm>
#include <cmath>

namespace windlass::worker {

Result<std::int32_t> Sampler::sample(std::span<const float> logits) {
  std::int32_t best = -1;
  for (std::size_t id = 0; id < logits.size(); ++id) {
    if (std::isfinite(logits[id]) && (best < 0 || logits[id] > logits[static_cast<std::size_t>(best)]))
      best = static_cast<std::int32_t>(id);
  }
  if (best < 0) return Error{ErrorCode::kInternal, "the model gave no finite logit; its weights are damaged"};
  if (params_.temperature <= 0) return best;

  const double highest = logits[static_cast<std::size_t>(best)];
  candidates_.clear();
  double total = 0;
  for (std::size_t id = 0; id < logits.size(); ++id) {
    if (!std::isfinite(logits[id])) continue;
    const double weight = std::exp((logits[id] - highest) / params_.temperature);
    candidates_.push_back({weight, static_cast<std::int32_t>(id)});
    total += weight;
  }
  if (params_.top_p < 1) {
    std::sort(candidates_.begin(), candidates_.end(),
              [](const Candidate& a, const Candidate& b) { return a.weight != b.weight ? a.weight > b.weight : a.id < b.id; });
    double kept = 0;
    std::size_t count = 0;
    while (count < candidates_.size() && (count == 0 || kept < params_.top_p * total)) kept += candidates_[count++].weight;
    candidates_.resize(count);
    total = kept;
  }
  double left = rng_.uniform() * total;
  for (const Candidate& candidate : candidates_) {
    left -= candidate.weight;
    if (left < 0) return candidate.id;
  }
  return candidates_.back().id;  // rounding used up the last sliver
}

}  // namespace windlass::worker
