// ExpertRouting: which experts of a layer the tokens of a batch go to, and with what weight (mixture of experts; Shazeer et al.
// 2017, Jiang et al. 2024).
//
// A token's experts are those of its largest router logits. Each logit is computed alone, in an order of sums of its own: a
// token chooses the same experts whatever else is in the batch, and at every rank. The tokens of an expert stand together, so
// that it needs one matrix product for all of them. Owned by the backend, used from its thread; route() allocates nothing once
// it has grown.
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

  // Of one token: writes config.experts_per_token choices.
  void choose(const ModelConfig& config, const float* logits, Choice* to);

  std::vector<float> logits_;        // (T, experts)
  std::vector<std::int64_t> order_;  // experts by logit, of one token
  std::vector<Choice> choices_;      // (T, experts_per_token)
  std::vector<Routed> routed_;       // by expert
  std::vector<std::size_t> ends_;    // of each expert in routed_
};

}  // namespace windlass::worker::cpu
