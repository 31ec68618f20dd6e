// ExpertRouting: assigns the tokens of a batch to a layer's experts, with weights (mixture of experts; Shazeer et al. 2017,
// Jiang et al. 2024).
//
// A token's experts are those with its largest router logits. Each logit is summed separately in a fixed order, so a token gets
// the same experts whatever the rest of the batch is, and on every rank. Tokens are grouped by expert, so each expert needs one
// matrix product. Owned by the backend and used from its thread; route() allocates nothing once its buffers have grown.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "worker/model/config.h"

namespace windlass::worker::cpu {

class ExpertRouting {
 public:
  struct Routed {
    std::int64_t token = 0;  // row of x
    float weight = 0;
  };

  // x (T, hidden), router (experts, hidden). REQUIRES: config.experts >= config.experts_per_token >= 1.
  void route(const ModelConfig& config, const float* x, const float* router, std::int64_t tokens);

  // The expert's tokens in the order of their rows. Valid until the next route().
  [[nodiscard]] std::span<const Routed> of(std::int64_t expert) const;

 private:
  struct Choice {
    std::int64_t expert = 0;
    float weight = 0;
  };

  // For one token: writes config.experts_per_token choices.
  void choose(const ModelConfig& config, const float* logits, Choice* to);

  std::vector<float> logits_;        // (T, experts)
  std::vector<std::int64_t> order_;  // experts of one token, sorted by logit
  std::vector<Choice> choices_;      // (T, experts_per_token)
  std::vector<Routed> routed_;       // by expert
  std::vector<std::size_t> ends_;    // end of each expert's part of routed_
};

}  // namespace windlass::worker::cpu
