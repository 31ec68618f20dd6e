// Sampling: greedy, the softmax's distribution, truncation, penalties, seeds.
#include "worker/engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "tests/effort.h"
#include "tests/unit/worker/logit_summaries.h"

namespace windlass::worker {
namespace {

std::vector<int> counts_of(Sampler& sampler, const std::vector<float>& logits, int draws) {
  std::vector<int> counts(logits.size());
  for (int i = 0; i < draws; ++i) ++counts[static_cast<std::size_t>(sampler.sample(logits)->id)];
  return counts;
}

// Given temperature 0; expects the largest finite logit, the lowest id among equals.
TEST(Sampler, Greedy) {
  Sampler sampler({.temperature = 0});
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(sampler.sample(std::vector<float>{1, 3, 2, 3})->id, 1);
  EXPECT_EQ(sampler.sample(std::vector<float>{nan, -5, nan})->id, 1);
  const auto damaged = sampler.sample(std::vector<float>{nan, nan});
  ASSERT_FALSE(damaged.ok());
  EXPECT_EQ(damaged.error().code, ErrorCode::kInternal);
}

// Given a first token that another sampler drew; expects the following ones as if this sampler had drawn it, including
// penalties.
TEST(Sampler, AdoptsAFirstToken) {
  const SamplingParams params{.temperature = 0.9, .repetition_penalty = 1.3, .presence_penalty = 0.5, .seed = 11};
  const std::vector<float> logits{0, 1, -1, 2, 0.5};
  Sampler whole(params), first(params), rest(params);
  static_cast<void>(whole.sample(logits));
  rest.adopt(first.sample(logits)->id);
  for (int i = 0; i < 50; ++i) EXPECT_EQ(whole.sample(logits)->id, rest.sample(logits)->id) << i;
}

// Given logits and a temperature; expects 100,000 draws to follow softmax(logits / T) within five standard deviations each.
TEST(Sampler, FollowsTheSoftmax) {
  const std::vector<float> logits{0, 1, -1, 2, 0.5};
  for (const double temperature : {0.5, 1.0, 2.0}) {
    Sampler sampler({.temperature = temperature, .seed = 42});
    const int draws = 100000;
    const auto counts = counts_of(sampler, logits, draws);
    double total = 0;
    for (const float logit : logits) total += std::exp(logit / temperature);
    for (std::size_t i = 0; i < logits.size(); ++i) {
      const double p = std::exp(logits[i] / temperature) / total;
      EXPECT_NEAR(counts[i], p * draws, 5 * std::sqrt(draws * p * (1 - p)))
          << "token " << i << " at temperature " << temperature;
    }
  }
}

// Given top_p 0.6 over probabilities 0.5, 0.3, 0.15, 0.05; expects only the first two, in the ratio 5 to 3.
TEST(Sampler, NucleusKeepsTheMostLikely) {
  std::vector<float> logits;
  for (const double p : {0.15, 0.5, 0.05, 0.3}) logits.push_back(static_cast<float>(std::log(p)));
  Sampler sampler({.top_p = 0.6, .seed = 7});
  const auto counts = counts_of(sampler, logits, 80000);
  EXPECT_EQ(counts[0], 0);
  EXPECT_EQ(counts[2], 0);
  EXPECT_NEAR(counts[1], 50000, 5 * std::sqrt(80000 * 0.625 * 0.375));
  Sampler narrow({.top_p = 0.01, .seed = 7});
  EXPECT_EQ(counts_of(narrow, logits, 100)[1], 100);
}

// Given probabilities 0.15, 0.5, 0.05, 0.3; expects each truncation to keep what it should, renormalised, and top-p to apply
// after min-p and top-k.
TEST(Sampler, TruncatesInOrder) {
  std::vector<float> logits;
  for (const double p : {0.15, 0.5, 0.05, 0.3}) logits.push_back(static_cast<float>(std::log(p)));
  const struct {
    const char* name;
    SamplingParams params;
    std::vector<double> expected;
  } cases[] = {
      {"top-k 2", {.top_k = 2}, {0, 0.625, 0, 0.375}},
      {"top-k 1", {.top_k = 1}, {0, 1, 0, 0}},
      {"top-k of all", {.top_k = 9}, {0.15, 0.5, 0.05, 0.3}},
      {"min-p between the third and the fourth", {.min_p = 0.2}, {0.15 / 0.95, 0.5 / 0.95, 0, 0.3 / 0.95}},
      {"min-p of the first alone", {.min_p = 1}, {0, 1, 0, 0}},
      {"top-p of what top-k left: 0.5 of 0.8 is enough", {.top_p = 0.6, .top_k = 2}, {0, 1, 0, 0}},
      {"top-p of what min-p left: 0.8 of 0.95 is enough", {.top_p = 0.84, .min_p = 0.2}, {0, 0.625, 0, 0.375}},
      {"temperature before min-p", {.temperature = 0.5, .min_p = 0.2}, {0, 25.0 / 34, 0, 9.0 / 34}},
  };
  const int draws = 40000;
  for (const auto& each : cases) {
    Sampler sampler(each.params);
    const auto counts = counts_of(sampler, logits, draws);
    for (std::size_t i = 0; i < logits.size(); ++i) {
      const double p = each.expected[i];
      EXPECT_NEAR(counts[i], p * draws, 5 * std::sqrt(draws * p * (1 - p))) << each.name << ", token " << i;
    }
  }
}

// A direct implementation of sampler.h's rules, in double precision and with a sort: the tokens in the order in which a draw
// passes them, with their weights.
std::vector<std::pair<std::int32_t, double>> kept_by_the_book(const std::vector<float>& logits, const SamplingParams& params) {
  double highest = -std::numeric_limits<double>::infinity();
  for (const float logit : logits) highest = std::isfinite(logit) ? std::max<double>(highest, logit) : highest;
  std::vector<std::pair<std::int32_t, double>> kept;
  for (std::size_t id = 0; id < logits.size(); ++id) {
    if (!std::isfinite(logits[id])) continue;
    const double weight = std::exp((logits[id] - highest) / params.temperature);
    if (weight >= params.min_p) kept.emplace_back(static_cast<std::int32_t>(id), weight);
  }
  const bool cuts = params.top_k > 0 && static_cast<std::size_t>(params.top_k) < logits.size();
  if (cuts || params.top_p < 1) {
    std::sort(kept.begin(), kept.end(), [&](const auto& a, const auto& b) {
      const float one = logits[static_cast<std::size_t>(a.first)], other = logits[static_cast<std::size_t>(b.first)];
      return one != other ? one > other : a.first < b.first;
    });
  }
  if (cuts && kept.size() > static_cast<std::size_t>(params.top_k)) kept.resize(static_cast<std::size_t>(params.top_k));
  double total = 0, sum = 0;
  for (const auto& [id, weight] : kept) total += weight;
  for (std::size_t i = 0; params.top_p < 1 && i < kept.size(); ++i) {
    sum += kept[i].second;
    if (sum >= params.top_p * total) kept.resize(i + 1);
  }
  return kept;
}

// Given random logits of small and large vocabularies, some not finite and many equal, and random parameters; expects each draw
// to be that of the direct implementation, except for a few that rounding decides.
TEST(Sampler, DrawsByTheBook) {
  int different = 0, draws = 0;
  for (std::uint64_t seed = 0; seed < effort(100U, 600U); ++seed) {
    Rng rng(seed, "logits");
    std::vector<float> logits;
    const std::int64_t vocabulary = rng.uniform() < 0.5 ? rng.integer(1, 40) : rng.integer(200, 3000);
    const double spread = rng.uniform(0.1, 12);
    for (std::int64_t id = 0; id < vocabulary; ++id) {
      const double logit = rng.uniform(-spread, spread);
      logits.push_back(static_cast<float>(rng.uniform() < 0.3 ? std::round(logit) : logit));
      if (rng.uniform() < 0.02) logits.back() = std::numeric_limits<float>::quiet_NaN();
      if (rng.uniform() < 0.02) logits.back() = (rng.uniform() < 0.5 ? 1 : -1) * std::numeric_limits<float>::infinity();
    }
    logits.push_back(0);  // at least one is finite
    SamplingParams params;
    params.temperature = rng.uniform(0.05, 2);
    if (rng.uniform() < 0.4) params.top_k = rng.integer(1, 100);
    if (rng.uniform() < 0.4) params.top_p = rng.uniform(0.01, 1);
    if (rng.uniform() < 0.3) params.min_p = rng.uniform(0, 0.3);
    params.seed = seed;
    Sampler sampler(params);
    Rng same(seed, "sampling");
    const auto kept = kept_by_the_book(logits, params);
    double total = 0;
    for (const auto& [id, weight] : kept) total += weight;
    for (int draw = 0; draw < 20; ++draw) {
      double left = same.uniform() * total;
      std::int32_t expected = kept.back().first;
      for (const auto& [id, weight] : kept) {
        left -= weight;
        if (left >= 0) continue;
        expected = id;
        break;
      }
      different += sampler.sample(logits)->id != expected ? 1 : 0;
      ++draws;
    }
  }
  EXPECT_LT(different, draws / 1000);
}

// Given random rows and parameters, a sampler that sees summaries where they suffice, and its twin that sees rows; expects the
// same tokens and log probabilities for greedy sampling and top-k, and otherwise the same use of the random stream.
TEST(Sampler, DrawsFromSummariesAsFromRows) {
  int summaries = 0;
  for (std::uint64_t seed = 0; seed < effort(30U, 300U); ++seed) {
    Rng rng(seed, "summaries");
    SamplingParams params;
    params.temperature = rng.uniform() < 0.3 ? 0 : rng.uniform(0.05, 2);
    params.top_k = rng.integer(1, 80);
    if (rng.uniform() < 0.4) params.top_p = rng.uniform(0.01, 1);
    if (rng.uniform() < 0.3) params.min_p = rng.uniform(0, 0.3);
    if (rng.uniform() < 0.3) params.logprobs = static_cast<int>(rng.integer(0, 70));
    if (rng.uniform() < 0.1) params.frequency_penalty = 0.5;
    if (rng.uniform() < 0.1) params.logit_bias = {{3, 4.0F}};
    params.seed = seed;
    Sampler by_summary(params), by_row(params);
    for (int draw = 0; draw < 20; ++draw) {
      auto logits = testing::random_logits(rng, rng.integer(100, 1000));
      logits.push_back(0);  // at least one is finite
      const RowNeed need = by_summary.need();
      const auto expected = by_row.sample(logits);
      if (need.likeliest == 0) {
        EXPECT_TRUE(params.top_k > kMaxLikeliest || params.logprobs > kMaxLikeliest || params.frequency_penalty > 0 ||
                    !params.logit_bias.empty());
        EXPECT_EQ(by_summary.sample(logits)->id, expected->id);
        continue;
      }
      ++summaries;
      const auto found = by_summary.sample(testing::summary_of(logits, need), [&]() -> Result<std::span<const float>> {
        ADD_FAILURE() << "a summary is enough";
        return std::span<const float>(logits);
      });
      ASSERT_TRUE(found.ok() && expected.ok());
      ASSERT_EQ(found->id, expected->id) << "seed " << seed << ", draw " << draw;
      EXPECT_NEAR(found->logprob, expected->logprob, 1e-5);
      ASSERT_EQ(found->top.size(), expected->top.size());
      for (std::size_t i = 0; i < found->top.size(); ++i) {
        EXPECT_EQ(found->top[i].id, expected->top[i].id);
        EXPECT_NEAR(found->top[i].logprob, expected->top[i].logprob, 1e-5);
      }
    }
  }
  EXPECT_GT(summaries, effort(133, 2000));
}

// Given no top-k; expects draws from summaries to follow the same distribution as draws from rows, within five deviations plus
// two draws per token, if all, most or little of the weight is in the summary. The row is requested only when needed.
TEST(Sampler, SummariesFollowTheDistribution) {
  std::vector<float> steep, flat;
  for (int id = 0; id < 300; ++id) steep.push_back(static_cast<float>(-0.05 * ((id * 7) % 300)));
  for (int id = 0; id < 300; ++id) flat.push_back(id % 3 == 0 ? 0.5F : 0.0F);
  const struct {
    const char* name;
    const std::vector<float>& logits;
    SamplingParams params;
    int least_rows, max_rows;  // requested, of 40,000
  } cases[] = {
      {"temperature", steep, {.seed = 3}, 500, 3000},
      {"temperature of a flat row", flat, {.seed = 4}, 25000, 33000},
      {"a low temperature", steep, {.temperature = 0.05, .seed = 5}, 0, 0},
      {"top-p within the summary", steep, {.top_p = 0.9, .seed = 6}, 0, 0},
      {"top-p beyond it", flat, {.top_p = 0.9, .seed = 7}, 40000, 40000},
      {"min-p within it", steep, {.min_p = 0.1, .seed = 8}, 0, 0},
      {"min-p beyond it", flat, {.min_p = 0.1, .seed = 9}, 40000, 40000},
      {"log probabilities", steep, {.logprobs = 2, .seed = 10}, 500, 3000},
  };
  constexpr int kDraws = 40000;
  for (const auto& each : cases) {
    SCOPED_TRACE(each.name);
    Sampler sampler(each.params);
    const LogitSummary summary = testing::summary_of(each.logits, sampler.need());
    std::vector<int> counts(each.logits.size());
    int rows = 0;
    double log_total = 0;
    for (const float logit : each.logits) log_total += std::exp(logit);
    log_total = std::log(log_total);
    for (int draw = 0; draw < kDraws; ++draw) {
      const auto sampled = sampler.sample(summary, [&]() -> Result<std::span<const float>> {
        ++rows;
        return std::span<const float>(each.logits);
      });
      ASSERT_TRUE(sampled.ok());
      ++counts[static_cast<std::size_t>(sampled->id)];
      if (!each.params.logprobs) continue;
      ASSERT_NEAR(sampled->logprob, each.logits[static_cast<std::size_t>(sampled->id)] - log_total, 1e-5);
      ASSERT_EQ(sampled->top.size(), 2U);
    }
    EXPECT_GE(rows, each.least_rows);
    EXPECT_LE(rows, each.max_rows);
    double total = 0;
    const auto kept = kept_by_the_book(each.logits, each.params);
    for (const auto& [id, weight] : kept) total += weight;
    std::vector<double> expected(each.logits.size());
    for (const auto& [id, weight] : kept) expected[static_cast<std::size_t>(id)] = weight / total;
    for (std::size_t id = 0; id < expected.size(); ++id) {
      const double p = expected[id];
      EXPECT_NEAR(counts[id], p * kDraws, 5 * std::sqrt(kDraws * p * (1 - p)) + 2) << id;
    }
  }
}

// Given a row that is needed and fails; expects its error. Given a summary without finite logits; expects an error.
TEST(Sampler, SummariesMayFail) {
  const std::vector<float> flat(1000, 0.0F);
  Sampler sampler({.top_p = 0.9});
  const auto lost = [] { return Result<std::span<const float>>(Error{ErrorCode::kUnavailable, "lost"}); };
  const auto sampled = sampler.sample(testing::summary_of(flat, sampler.need()), lost);
  ASSERT_FALSE(sampled.ok());
  EXPECT_EQ(sampled.error().message, "lost");
  const auto damaged = sampler.sample(LogitSummary(), lost);
  ASSERT_FALSE(damaged.ok());
  EXPECT_EQ(damaged.error().code, ErrorCode::kInternal);
}

// Given penalties and biases; expects greedy draws from the adjusted logits: repetition over prompt and output, the others only
// over the output, once or per occurrence.
TEST(Sampler, Penalises) {
  const auto drawn = [](SamplingParams params, const std::vector<std::int32_t>& prompt, const std::vector<float>& logits,
                        int count) {
    params.temperature = 0;
    Sampler sampler(std::move(params), prompt);
    std::vector<std::int32_t> ids;
    for (int i = 0; i < count; ++i) ids.push_back(sampler.sample(logits)->id);
    return ids;
  };
  using Ids = std::vector<std::int32_t>;
  // 4 / 2 = 2 < 3; then 3 / 2 = 1.5 < 2: back to the first, which is penalised once, however often it came.
  EXPECT_EQ(drawn({.repetition_penalty = 2}, {}, {4, 3, 1}, 4), (Ids{0, 1, 0, 0}));
  EXPECT_EQ(drawn({.repetition_penalty = 2}, {0}, {4, 3, 1}, 3), (Ids{1, 0, 0}));
  EXPECT_EQ(drawn({.repetition_penalty = 2}, {0}, {-1, -1.5, -4}, 2), (Ids{1, 0})) << "a negative logit is multiplied";
  // 4, then 4 - 1.5 = 2.5 < 3, then 3 - 1.5 = 1.5: 2.5 from then on.
  EXPECT_EQ(drawn({.presence_penalty = 1.5}, {0}, {4, 3, 1}, 4), (Ids{0, 1, 0, 0}));
  // 4; 2.5 < 3; 1.5 < 2.5; 1 and 1.5 and 1: each occurrence costs.
  EXPECT_EQ(drawn({.frequency_penalty = 1.5}, {0}, {4, 3, 1.1F}, 5), (Ids{0, 1, 0, 1, 2}));
  EXPECT_EQ(drawn({.logit_bias = {{2, 5.0F}, {0, -1.0F}}}, {}, {4, 3, 1}, 2), (Ids{2, 2}));
  EXPECT_EQ(drawn({.logit_bias = {{77, 100.0F}}}, {}, {4, 3, 1}, 1), (Ids{0})) << "no such token";
}

// Given a request for log probabilities; expects the model's own, without penalties and temperature, likeliest first.
TEST(Sampler, TellsTheModelsLogProbabilities) {
  std::vector<float> logits;
  for (const double p : {0.15, 0.5, 0.05, 0.3}) logits.push_back(static_cast<float>(std::log(p)) + 3);
  Sampler sampler({.temperature = 0.1, .top_k = 1, .logit_bias = {{2, 50.0F}}, .logprobs = 3});
  const auto sampled = sampler.sample(logits);
  ASSERT_TRUE(sampled.ok());
  EXPECT_EQ(sampled->id, 2);
  EXPECT_NEAR(sampled->logprob, std::log(0.05), 1e-6);
  ASSERT_EQ(sampled->top.size(), 3U);
  EXPECT_EQ(sampled->top[0].id, 1);
  EXPECT_EQ(sampled->top[1].id, 3);
  EXPECT_EQ(sampled->top[2].id, 0);
  EXPECT_NEAR(sampled->top[2].logprob, std::log(0.15), 1e-6);
  Sampler alone({.logprobs = 0});
  EXPECT_TRUE(alone.sample(logits)->top.empty());
  Sampler many({.logprobs = 20});
  EXPECT_EQ(many.sample(logits)->top.size(), 4U);
}

// Given one seed twice and another once; expects equal draws for equal seeds, and others for the other.
TEST(Sampler, SeedDecides) {
  const std::vector<float> logits(50, 0.0F);
  const auto draws = [&](std::uint64_t seed) {
    Sampler sampler({.seed = seed});
    std::vector<std::int32_t> out;
    for (int i = 0; i < 20; ++i) out.push_back(sampler.sample(logits)->id);
    return out;
  };
  EXPECT_EQ(draws(1), draws(1));
  EXPECT_NE(draws(1), draws(2));
}

}  // namespace
}  // namespace windlass::worker
