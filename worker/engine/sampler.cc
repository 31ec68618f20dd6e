// Argmax, or inversion over the (perhaps truncated) softmax.
#include "worker/engine/sampler.h"

#include <algorithm>
#include <cmath>

namespace windlass::worker {
namespace {

// The id of the largest finite logit, the lowest among equals; -1 where none is finite.
std::int32_t best_of(std::span<const float> logits) {
  std::int32_t best = -1;
  for (std::size_t id = 0; id < logits.size(); ++id) {
    if (std::isfinite(logits[id]) && (best < 0 || logits[id] > logits[static_cast<std::size_t>(best)]))
      best = static_cast<std::int32_t>(id);
  }
  return best;
}

}  // namespace

Sampler::Sampler(SamplingParams params, std::span<const std::int32_t> prompt)
    : params_(std::move(params)), rng_(params_.seed, "sampling") {
  if (params_.repetition_penalty == 1) return;
  for (const std::int32_t token : prompt) seen_.try_emplace(token);
}

std::span<const float> Sampler::adjusted(std::span<const float> logits) {
  if (seen_.empty() && params_.logit_bias.empty()) return logits;
  adjusted_.assign(logits.begin(), logits.end());
  const auto holds = [&](std::int32_t id) { return id >= 0 && static_cast<std::size_t>(id) < adjusted_.size(); };
  for (const auto& [id, bias] : params_.logit_bias) {
    if (holds(id)) adjusted_[static_cast<std::size_t>(id)] += bias;
  }
  for (const auto& [id, generated] : seen_) {
    if (!holds(id)) continue;
    double logit = adjusted_[static_cast<std::size_t>(id)];
    logit = logit > 0 ? logit / params_.repetition_penalty : logit * params_.repetition_penalty;
    if (generated > 0) {
      logit -= params_.frequency_penalty * static_cast<double>(generated) + params_.presence_penalty;
    }
    adjusted_[static_cast<std::size_t>(id)] = static_cast<float>(logit);
  }
  return adjusted_;
}

std::int32_t Sampler::draw(std::span<const float> logits, std::int32_t best) {
  const double highest = logits[static_cast<std::size_t>(best)];
  candidates_.clear();
  for (std::size_t id = 0; id < logits.size(); ++id) {
    if (!std::isfinite(logits[id])) continue;
    const double weight = std::exp((logits[id] - highest) / params_.temperature);
    if (weight >= params_.min_p) candidates_.push_back({weight, static_cast<std::int32_t>(id)});  // the highest weighs 1
  }
  const auto likelier = [](const Candidate& a, const Candidate& b) {
    return a.weight != b.weight ? a.weight > b.weight : a.id < b.id;
  };
  const bool cuts_number = params_.top_k > 0 && static_cast<std::size_t>(params_.top_k) < candidates_.size();
  if (cuts_number) {
    const auto end = candidates_.begin() + static_cast<std::ptrdiff_t>(params_.top_k);
    std::nth_element(candidates_.begin(), end - 1, candidates_.end(), likelier);
    candidates_.erase(end, candidates_.end());
  }
  if (cuts_number) std::sort(candidates_.begin(), candidates_.end(), likelier);
  double total = 0;
  for (const Candidate& candidate : candidates_) total += candidate.weight;
  if (params_.top_p < 1) {
    // A heap gives up the likeliest one by one: few of a large vocabulary are kept, and the others need no order.
    const auto less_likely = [&](const Candidate& a, const Candidate& b) { return likelier(b, a); };
    std::make_heap(candidates_.begin(), candidates_.end(), less_likely);
    double kept = 0;
    auto first = candidates_.end();
    while (first != candidates_.begin() && (first == candidates_.end() || kept < params_.top_p * total)) {
      std::pop_heap(candidates_.begin(), first, less_likely);
      --first;
      kept += first->weight;
    }
    candidates_.erase(candidates_.begin(), first);
    std::reverse(candidates_.begin(), candidates_.end());
    total = kept;
  }
  double left = rng_.uniform() * total;
  for (const Candidate& candidate : candidates_) {
    left -= candidate.weight;
    if (left < 0) return candidate.id;
  }
  return candidates_.back().id;  // rounding used up the last sliver
}

void Sampler::tell(std::span<const float> logits, Sampled& sampled) {
  const double highest = logits[static_cast<std::size_t>(best_of(logits))];
  double total = 0;
  candidates_.clear();
  for (std::size_t id = 0; id < logits.size(); ++id) {
    if (!std::isfinite(logits[id])) continue;
    total += std::exp(logits[id] - highest);
    candidates_.push_back({logits[id], static_cast<std::int32_t>(id)});
  }
  const double log_total = highest + std::log(total);
  sampled.logprob = logits[static_cast<std::size_t>(sampled.id)] - log_total;
  const std::size_t count = std::min(static_cast<std::size_t>(*params_.logprobs), candidates_.size());
  std::partial_sort(
      candidates_.begin(), candidates_.begin() + static_cast<std::ptrdiff_t>(count), candidates_.end(),
      [](const Candidate& a, const Candidate& b) { return a.weight != b.weight ? a.weight > b.weight : a.id < b.id; });
  for (std::size_t i = 0; i < count; ++i) sampled.top.push_back({candidates_[i].id, candidates_[i].weight - log_total});
}

Result<Sampled> Sampler::sample(std::span<const float> logits) {
  const std::span<const float> weighed = adjusted(logits);
  const std::int32_t best = best_of(weighed);
  if (best < 0) return Error{ErrorCode::kInternal, "the model gave no finite logit; its weights are damaged"};
  Sampled sampled;
  sampled.id = params_.temperature <= 0 ? best : draw(weighed, best);
  if (params_.logprobs) tell(logits, sampled);
  remember(sampled.id);
  return sampled;
}

void Sampler::remember(std::int32_t token) {
  if (params_.repetition_penalty != 1 || params_.frequency_penalty != 0 || params_.presence_penalty != 0) ++seen_[token];
}

void Sampler::adopt(std::int32_t token) {
  if (params_.temperature > 0) static_cast<void>(rng_.uniform());  // a draw takes one
  remember(token);
}

}  // namespace windlass::worker
