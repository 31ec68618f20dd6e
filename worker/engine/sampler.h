// Sampler: draws one token from a row of logits, or from a backend's summary of it (logit_summary.h). Each request has its own
// sampler and random stream, so its output does not depend on the other requests of the batch. One thread.
//
// Order of the steps, as in vLLM: logit bias; repetition penalty (Keskar et al. 2019, CTRL) over prompt and output; frequency
// and presence penalties over the output (OpenAI). Greedy sampling stops here. Then temperature, min-p (Nguyen et al. 2024),
// top-k and top-p (Holtzman et al. 2020), each over the probabilities left by the previous step.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "planner/base/result.h"
#include "planner/base/rng.h"
#include "worker/backend/logit_summary.h"
#include "worker/engine/logit_row.h"

namespace windlass::worker {

struct SamplingParams {
  double temperature = 1;         // 0: greedy
  double top_p = 1;               // keep the most likely tokens up to this share of the probability mass; in (0, 1]
  std::int64_t top_k = 0;         // keep this many of the most likely tokens; 0: all
  double min_p = 0;               // drop tokens below this fraction of the top probability; in [0, 1]
  double repetition_penalty = 1;  // above 0: divides positive and multiplies negative logits of tokens seen so far
  double frequency_penalty = 0;   // subtracted from a logit once per earlier occurrence in the output
  double presence_penalty = 0;    // subtracted from the logit of each token already in the output
  std::vector<std::pair<std::int32_t, float>> logit_bias = {};  // added to these tokens' logits; each id at most once
  std::optional<int> logprobs =
      {};  // how many of the most likely tokens to report besides the sampled one; nullopt: no logprobs
  std::uint64_t seed = 0;
};

// Natural log of a token's probability under the model: before penalties, bias, temperature and truncation.
struct TokenLogprob {
  std::int32_t id = 0;
  double logprob = 0;
};

struct Sampled {
  std::int32_t id = 0;
  double logprob = 0;             // set if params.logprobs is
  std::vector<TokenLogprob> top;  // most likely first; ties by lower id
};

class Sampler {
 public:
  explicit Sampler(SamplingParams params, std::span<const std::int32_t> prompt = {});

  // Draws the request's next token and counts it for later penalties. Greedy: ties go to the lowest id. A token with a
  // non-finite logit is never drawn. Error: kInternal if no logit is finite.
  [[nodiscard]] Result<Sampled> sample(std::span<const float> logits);

  // What sample() needs for the next row: a summary, or the row itself.
  [[nodiscard]] RowNeed need() const;
  // If a summary suffices: whether sample() may still ask for the row.
  [[nodiscard]] bool row_may_follow() const;
  // Samples from a row's summary, made for need(). With greedy sampling or a top-k below the vocabulary size, the token is the
  // one that the row itself would give, and `row` is never called. Otherwise the token has the same distribution, and `row`
  // fetches the row if the summary is not enough. Errors: also those of `row`.
  using RowOf = std::function<Result<std::span<const float>>()>;
  [[nodiscard]] Result<Sampled> sample(const LogitSummary& summary, const RowOf& row);

  // Continues as if this sampler had drawn `token`, which another worker's sampler drew with the same parameters.
  void adopt(std::int32_t token);

 private:
  using Candidate = TokenWeight;
  // Maps logits to weights: the highest gets 1; a weight below `least` becomes 0.
  struct Weighing {
    float highest, steepness, least;
  };

  [[nodiscard]] std::span<const float> adjusted(std::span<const float> logits);
  void choose_likeliest(std::span<const float> logits, std::size_t most);
  [[nodiscard]] double weigh_likeliest(std::span<const float> logits, const Weighing& how, std::size_t most);
  [[nodiscard]] double weigh_all(std::span<const float> logits, const Weighing& how);
  void choose_heavy(const Weighing& how, double total);
  [[nodiscard]] std::int32_t draw(std::span<const float> logits, std::int32_t best);
  [[nodiscard]] std::int32_t draw_of_all(double left) const;
  [[nodiscard]] std::int32_t draw_of_rest(std::span<const float> logits, const Weighing& how, double share);
  [[nodiscard]] double weigh_summary(const LogitSummary& summary, const Weighing& how);
  [[nodiscard]] std::optional<double> total_of(const LogitSummary& summary, double candidates_weigh) const;
  [[nodiscard]] Weighing weighing(float highest) const;
  void tell(std::span<const float> logits, Sampled& sampled);
  void remember(std::int32_t token);

  SamplingParams params_;
  Rng rng_;
  std::unordered_map<std::int32_t, std::int64_t>
      seen_;  // tokens of prompt and output, with their count in the output; only kept for penalties
  // Work space, kept between tokens to save the allocations.
  std::vector<float> adjusted_;
  std::vector<float> maxima_;  // one per block of logits
  std::vector<float> highest_maxima_;
  std::vector<float> chosen_;
  std::vector<float> weights_;      // by token, or by candidate
  std::vector<double> block_sums_;  // sums of consecutive weights
  std::vector<Candidate> candidates_;
};

}  // namespace windlass::worker
