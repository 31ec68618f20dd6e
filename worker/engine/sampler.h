// Sampler: from one row of logits to one token. Each request has its own, with its own random stream, so that what one request
// draws does not depend on who shares its batch. One thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "planner/base/result.h"
#include "planner/base/rng.h"

namespace windlass::worker {

struct SamplingParams {
  double temperature = 1;  // 0: greedy
  double top_p = 1;        // of the probability mass, the most likely tokens; in (0, 1]
  std::uint64_t seed = 0;
};

class Sampler {
 public:
  explicit Sampler(const SamplingParams& params) : params_(params), rng_(params.seed, "sampling") {}

  // Greedy takes the lowest id among equals. Error: kInternal when no logit is finite.
  [[nodiscard]] Result<std::int32_t> sample(std::span<const float> logits);

 private:
  struct Candidate {
    double weight;
    std::int32_t id;
  };

  SamplingParams params_;
  Rng rng_;
  std::vector<Candidate> candidates_;  // kept between tokens to save the allocation
};

}  // namespace windlass::worker
