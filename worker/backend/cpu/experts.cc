// Softmax over the router's logits, selection of the largest, and a counting sort by expert.
#include "worker/backend/cpu/experts.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "worker/backend/cpu/ops.h"

namespace windlass::worker::cpu {

void ExpertRouting::route(const ModelConfig& config, const float* x, const float* router, std::int64_t tokens) {
  const auto experts = static_cast<std::size_t>(config.experts);
  const auto each = static_cast<std::size_t>(config.experts_per_token);
  const auto count = static_cast<std::size_t>(tokens);
  logits_.resize(count * experts);
  choices_.resize(count * each);
  routed_.resize(count * each);
  matmul_by_dots(x, router, logits_.data(), tokens, config.hidden_size, config.experts);
  for (std::size_t t = 0; t < count; ++t) choose(config, logits_.data() + t * experts, choices_.data() + t * each);
  ends_.assign(experts, 0);
  for (const Choice& choice : choices_) ++ends_[static_cast<std::size_t>(choice.expert)];
  std::partial_sum(ends_.begin(), ends_.end(), ends_.begin());
  // Fill from the back, so that each end moves to its expert's beginning; the next expert's beginning is its end.
  for (std::size_t i = choices_.size(); i-- > 0;) {
    routed_[--ends_[static_cast<std::size_t>(choices_[i].expert)]] = {static_cast<std::int64_t>(i / each), choices_[i].weight};
  }
  std::rotate(ends_.begin(), ends_.begin() + 1, ends_.end());
  ends_.back() = routed_.size();
}

std::span<const ExpertRouting::Routed> ExpertRouting::of(std::int64_t expert) const {
  const auto index = static_cast<std::size_t>(expert);
  const std::size_t begin = index == 0 ? 0 : ends_[index - 1];
  return std::span(routed_).subspan(begin, ends_[index] - begin);
}

void ExpertRouting::choose(const ModelConfig& config, const float* logits, Choice* to) {
  order_.resize(static_cast<std::size_t>(config.experts));
  std::iota(order_.begin(), order_.end(), 0);
  const auto rank = [&](std::int64_t expert) {  // NaN last; otherwise this would not be an order
    return std::isnan(logits[expert]) ? -std::numeric_limits<float>::infinity() : logits[expert];
  };
  const auto chosen_end = order_.begin() + config.experts_per_token;
  std::partial_sort(order_.begin(), chosen_end, order_.end(),
                    [&](std::int64_t a, std::int64_t b) { return rank(a) > rank(b) || (rank(a) == rank(b) && a < b); });
  const float highest = logits[order_.front()];
  float total = 0;
  const auto summed_end = config.normalise_expert_weights ? chosen_end : order_.end();
  for (auto it = order_.begin(); it != summed_end; ++it) total += std::exp(logits[*it] - highest);
  for (auto it = order_.begin(); it != chosen_end; ++it) *to++ = {*it, std::exp(logits[*it] - highest) / total};
}

}  // namespace windlass::worker::cpu
