// Sampler: from one row of logits, or what a backend says of it (logit_summary.h), to one token. Each request has its own, with
// its own random stream, so that what one request draws does not depend on who shares its batch. One thread.
//
// In this order, as vLLM has it: the logit bias, the repetition penalty (Keskar et al. 2019, CTRL) over prompt and output,
// frequency and presence penalties over the output (OpenAI); greedy ends here. Then the temperature, min-p (Nguyen et al.
// 2024), top-k and top-p (Holtzman et al. 2020), each over the probabilities that the one before it left.
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
  double top_p = 1;               // of the probability mass, the most likely tokens; in (0, 1]
  std::int64_t top_k = 0;         // the most likely tokens; 0: all
  double min_p = 0;               // of the most likely token's probability, in [0, 1]: what is less likely is left out
  double repetition_penalty = 1;  // above 0: divides positive logits and multiplies negative ones of what has occurred
  double frequency_penalty = 0;   // off a logit for each time the token was generated
  double presence_penalty = 0;    // off a logit of each token that was generated
  std::vector<std::pair<std::int32_t, float>> logit_bias = {};  // added to these tokens' logits; each id at most once
  std::optional<int> logprobs =
      {};  // how many of the most likely tokens to tell of besides the one drawn; nullopt: none at all
  std::uint64_t seed = 0;
};

// ln of a token's probability as the model has it: before penalties, bias, temperature and truncation.
struct TokenLogprob {
  std::int32_t id = 0;
  double logprob = 0;
};

struct Sampled {
  std::int32_t id = 0;
  double logprob = 0;             // where params.logprobs is set
  std::vector<TokenLogprob> top;  // the most likely first, the lower id first among equals
};

class Sampler {
 public:
  explicit Sampler(SamplingParams params, std::span<const std::int32_t> prompt = {});

  // The next token of the request; later ones are penalised for it. Greedy takes the lowest id among equals. A token whose
  // logit is not finite is never drawn. Error: kInternal when no logit is finite.
  [[nodiscard]] Result<Sampled> sample(std::span<const float> logits);

  // What sample() needs of the next row: a summary, or the row itself.
  [[nodiscard]] RowNeed need() const;
  // Where it is a summary: whether the row may be asked for nevertheless.
  [[nodiscard]] bool row_may_follow() const;
  // The same of a row's summary, made for need(). `row` gives the row itself; it is asked for where the summary turns out to be
  // too little, never greedy or with a top-k below the vocabulary: then the token is the very one that the row makes. Without,
  // it follows the same distribution. Errors: also those of `row`.
  using RowOf = std::function<Result<std::span<const float>>()>;
  [[nodiscard]] Result<Sampled> sample(const LogitSummary& summary, const RowOf& row);

  // Another worker's sampler with the same parameters drew this one: what follows is as if this one had.
  void adopt(std::int32_t token);

 private:
  using Candidate = TokenWeight;
  // What a logit weighs beside the highest, which weighs 1; what weighs less than `least` weighs nothing.
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
  std::unordered_map<std::int32_t, std::int64_t> seen_;  // in prompt or output: how often generated; only where a penalty asks
  // Kept between tokens to save the allocations.
  std::vector<float> adjusted_;
  std::vector<float> maxima_;  // of the logits' blocks
  std::vector<float> highest_maxima_;
  std::vector<float> chosen_;
  std::vector<float> weights_;      // by token, or by candidate
  std::vector<double> block_sums_;  // of consecutive weights
  std::vector<Candidate> candidates_;
};

}  // namespace windlass::worker
