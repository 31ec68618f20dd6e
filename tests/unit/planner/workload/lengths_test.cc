// Tests of lengths: distributions against their probabilities, exact means against sums over all pairs, and length files.
#include "planner/workload/lengths.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/effort.h"
#include "tests/paths.h"
#include "tests/says.h"
#include "tests/unit/planner/workload/mutated_text.h"
#include "tests/unit/planner/workload/statistics.h"

namespace windlass::workload {
namespace {

using ::testing::StartsWith;

LengthDistribution independent(const TokenDistribution& input, const TokenDistribution& output,
                               const std::optional<ContextLimit>& context = std::nullopt) {
  auto lengths = LengthDistribution::independent(input, output, context);
  EXPECT_TRUE(lengths.ok()) << lengths.error().message;
  return std::move(lengths).value();
}

// The probability of every length by definition; index 0 is for 1 token.
std::vector<double> chances(const TokenDistribution& distribution) {
  if (const auto* fixed = std::get_if<FixedTokens>(&distribution)) {
    std::vector<double> result(static_cast<std::size_t>(fixed->tokens));
    result.back() = 1;
    return result;
  }
  if (const auto* uniform = std::get_if<UniformTokens>(&distribution)) {
    std::vector<double> result(static_cast<std::size_t>(uniform->high));
    for (int k = uniform->low; k <= uniform->high; ++k) {
      result[static_cast<std::size_t>(k - 1)] = 1.0 / (uniform->high - uniform->low + 1);
    }
    return result;
  }
  const auto& [mean, cv, most] = std::get<LogNormalTokens>(distribution);
  const double variance = std::log(1 + cv * cv);
  const auto below = [&, m = mean](double x) {
    return std::erfc(-(std::log(x) - std::log(m) + variance / 2) / std::sqrt(2 * variance)) / 2;
  };
  std::vector<double> result(static_cast<std::size_t>(most));
  for (int k = 1; k <= most; ++k) {
    result[static_cast<std::size_t>(k - 1)] = (k == most ? 1 : below(k + 0.5)) - (k == 1 ? 0 : below(k - 0.5));
  }
  return result;
}

TokenDistribution random_distribution(Rng& rng) {
  const int a = static_cast<int>(rng.integer(1, 40)), b = static_cast<int>(rng.integer(1, 40));
  switch (rng.integer(0, 2)) {
    case 0: return FixedTokens{a};
    case 1: return UniformTokens{std::min(a, b), std::max(a, b)};
    default: return LogNormalTokens{rng.uniform(1, 40), rng.uniform(0.05, 3), a};
  }
}

// Given pairs of small distributions, with and without truncation; expects the means of a sum over all pairs.
TEST(Lengths, MeansAreExact) {
  Rng rng(3, "distributions");
  for (int i = 0; i < effort(400, 4000); ++i) {
    const TokenDistribution input = random_distribution(rng), output = random_distribution(rng);
    std::optional<ContextLimit> context;
    if (i % 3 > 0) context = ContextLimit{static_cast<int>(rng.integer(2, 60)), true};
    const auto lengths = independent(input, output, context);
    const auto in = chances(input), out = chances(output);
    double mean_in = 0, mean_out = 0;
    for (std::size_t a = 0; a < in.size(); ++a) {
      for (std::size_t b = 0; b < out.size(); ++b) {
        int prompt = static_cast<int>(a) + 1, answer = static_cast<int>(b) + 1;
        if (context) {
          if (prompt >= context->tokens) prompt = context->tokens - 1;
          if (prompt + answer > context->tokens) answer = context->tokens - prompt;
        }
        mean_in += in[a] * out[b] * prompt;
        mean_out += in[a] * out[b] * answer;
      }
    }
    ASSERT_NEAR(lengths.mean_input_tokens(), mean_in, 1e-8);
    ASSERT_NEAR(lengths.mean_output_tokens(), mean_out, 1e-8);
  }
}

// Given fixed, uniform and log-normal lengths; expects 200,000 draws to follow their probabilities (chi-square), and input and
// output to be uncorrelated.
TEST(Lengths, DrawsFollowTheirChances) {
  const std::vector<std::pair<TokenDistribution, TokenDistribution>> cases = {
      {FixedTokens{7}, UniformTokens{3, 22}},
      {LogNormalTokens{20, 0.3, 60}, LogNormalTokens{4, 2, 25}},
      {LogNormalTokens{9.4, 0, 100}, LogNormalTokens{1, 1, 12}}};
  for (const auto& [input, output] : cases) {
    const auto lengths = independent(input, output);
    Rng rng(5, "lengths");
    constexpr int kDraws = 200'000;
    std::vector<double> seen_in(60), seen_out(60);
    double sum_in = 0, sum_out = 0, products = 0;
    for (int i = 0; i < kDraws; ++i) {
      const TokenPair pair = lengths.draw(rng);
      ++seen_in.at(static_cast<std::size_t>(pair.input_tokens - 1));
      ++seen_out.at(static_cast<std::size_t>(pair.output_tokens - 1));
      sum_in += pair.input_tokens;
      sum_out += pair.output_tokens;
      products += static_cast<double>(pair.input_tokens) * pair.output_tokens;
    }
    if (const auto* log_normal = std::get_if<LogNormalTokens>(&input); log_normal && log_normal->cv == 0) {
      EXPECT_EQ(seen_in[8], kDraws);
    } else {
      const auto check = [&](const std::vector<double>& seen, const std::vector<double>& expected) {
        std::vector<double> often, chance;
        double rare_seen = 0, rare_chance = 0;  // rare lengths, taken together
        for (std::size_t k = 0; k < seen.size(); ++k) {
          const double draws = kDraws * (k < expected.size() ? expected[k] : 0);
          if (draws >= 5) {
            often.push_back(seen[k]);
            chance.push_back(draws);
          } else {
            rare_seen += seen[k];
            rare_chance += draws;
          }
        }
        expect_chi_square(often, chance);
        EXPECT_NEAR(rare_seen, rare_chance, 5 * std::sqrt(rare_chance));
      };
      if (!std::holds_alternative<FixedTokens>(input)) check(seen_in, chances(input));
      check(seen_out, chances(output));
    }
    const double mean_in = sum_in / kDraws, mean_out = sum_out / kDraws;
    EXPECT_NEAR(mean_in, lengths.mean_input_tokens(), 0.05);
    EXPECT_NEAR(mean_out, lengths.mean_output_tokens(), 0.1);
    EXPECT_NEAR(products / kDraws - mean_in * mean_out, 0, 0.5);
  }
}

// Given a log-normal with many tokens; expects draws with its mean and coefficient of variation, because rounding is
// negligible.
TEST(Lengths, LogNormalHasItsMeanAndCv) {
  const auto lengths = independent(LogNormalTokens{1500, 1.2}, FixedTokens{1});
  EXPECT_NEAR(lengths.mean_input_tokens(), 1500, 0.01);
  Rng rng(6, "lengths");
  std::vector<double> drawn;
  for (int i = 0; i < 500'000; ++i) drawn.push_back(lengths.draw(rng).input_tokens);
  const auto [mean, variance] = moments(drawn);
  EXPECT_NEAR(mean, 1500, 5 * 1500 * 1.2 / std::sqrt(500'000));
  EXPECT_NEAR(std::sqrt(variance) / mean, 1.2, 0.03);
}

// Given truncation to a context; expects every draw to fit it, with a prompt and an answer of at least one token.
TEST(Lengths, TruncationKeepsTheContext) {
  for (const int context : {2, 3, 50}) {
    const auto lengths = independent(LogNormalTokens{30, 2}, LogNormalTokens{30, 2}, ContextLimit{context, true});
    Rng rng(8, "lengths");
    int at_the_end = 0;
    for (int i = 0; i < effort(2000, 20'000); ++i) {
      const auto [input, output] = lengths.draw(rng);
      ASSERT_GE(input, 1);
      ASSERT_GE(output, 1);
      ASSERT_LE(input + output, context);
      if (input + output == context) ++at_the_end;
    }
    EXPECT_GT(at_the_end, effort(100, 1000));
  }
}

// Given pairs; expects draws from the list, each equally often, and the means of the list.
TEST(Lengths, PairsAreDrawnTogether) {
  std::vector<TokenPair> pairs;
  for (int i = 1; i <= 20; ++i) pairs.push_back({i, 1000 - i});
  const auto lengths = LengthDistribution::empirical(pairs);
  ASSERT_TRUE(lengths.ok());
  EXPECT_DOUBLE_EQ(lengths->mean_input_tokens(), 10.5);
  EXPECT_DOUBLE_EQ(lengths->mean_output_tokens(), 989.5);
  Rng rng(9, "lengths");
  std::vector<double> seen(20);
  for (int i = 0; i < 100'000; ++i) {
    const TokenPair pair = lengths->draw(rng);
    ASSERT_EQ(pair.input_tokens + pair.output_tokens, 1000);
    ++seen.at(static_cast<std::size_t>(pair.input_tokens - 1));
  }
  expect_chi_square(seen, std::vector<double>(20, 5000));
  EXPECT_FALSE(LengthDistribution::empirical({}).ok());
}

// Given invalid distributions or contexts; expects errors with the side, the found value and what is allowed.
TEST(Lengths, NamesMistakes) {
  struct Case {
    TokenDistribution input, output;
    std::optional<ContextLimit> context;
    std::string expected;
  };
  const FixedTokens one{1};
  const std::vector<Case> cases = {
      {FixedTokens{0}, one, {}, "inputTokens: must be 1 to 16777216*(got 0)"},
      {one, FixedTokens{-5}, {}, "outputTokens: must*(got -5)"},
      {UniformTokens{5, 4}, one, {}, "inputTokens: must*(got uniform from 5 to 4)"},
      {one, UniformTokens{0, 4}, {}, "outputTokens: must*(got uniform from 0 to 4)"},
      {one, LogNormalTokens{0.5, 1}, {}, "outputTokens: must*(got a log-normal mean of 0.5)"},
      {one, LogNormalTokens{std::nan(""), 1}, {}, "outputTokens: must*(got a log-normal mean of nan)"},
      {one, LogNormalTokens{5, -1}, {}, "outputTokens: must*(got a log-normal CV of -1)"},
      {one, LogNormalTokens{5, 1, 0}, {}, "outputTokens: must*(got a bound of 0)"},
      {one, one, ContextLimit{1}, "context: must be from 2 to*(got 1)"},
      {FixedTokens{4097}, one, ContextLimit{4096},
       "inputTokens: must be at most the context of 4096 tokens, or truncation to it*(got prompts of up to 4097)"},
      {LogNormalTokens{10, 1}, one, ContextLimit{4096}, "inputTokens: must*(got prompts of up to 16777216)"},
  };
  for (const auto& [input, output, context, expected] : cases) {
    const auto lengths = LengthDistribution::independent(input, output, context);
    ASSERT_FALSE(lengths.ok()) << expected;
    EXPECT_THAT(lengths.error().message, Says(expected));
    EXPECT_EQ(lengths.error().code, ErrorCode::kInvalidArgument);
  }
  EXPECT_TRUE(LengthDistribution::independent(FixedTokens{4096}, FixedTokens{9}, ContextLimit{4096}).ok());
}

// Given length files with other columns, in any order, with LF or CR LF; expects their pairs. A trace is also a length file.
TEST(LengthFile, Reads) {
  const std::vector<TokenPair> expected = {{26, 5}, {72, 693}};
  const std::vector<std::string> texts = {
      "num_prefill_tokens,num_decode_tokens,num_total_tokens,pd_ratio\n26,5,31,0.19\n72,693,765,9.625\n",
      "id,num_decode_tokens,num_prefill_tokens\r\na,5,26\r\nb,693,72", "ContextTokens,GeneratedTokens\n26,5\n72,693\n\n",
      "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.97,26,5\nx,72,693\n"};
  for (const std::string& text : texts) {
    const auto pairs = parse_length_file(text);
    ASSERT_TRUE(pairs.ok()) << pairs.error().message;
    EXPECT_EQ(pairs.value(), expected);
  }
}

// Given files with an error; expects the line, the field, what was found and what is allowed.
TEST(LengthFile, NamesMistakes) {
  const std::string header = "num_prefill_tokens,num_decode_tokens,x\n";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "lengths: line 1: header: must be columns num_prefill_tokens and num_decode_tokens, or ContextTokens*(got '')"},
      {"num_prefill_tokens,GeneratedTokens\n1,1\n", "lengths: line 1: header: must*(got 'num_prefill_tokens,GeneratedTokens')"},
      {header, "lengths: line 2: row: must be at least one row*(got '')"},
      {header + "1,2,x\n\n3,4,x\n", "lengths: line 3: row: must be 3 fields*(got '')"},
      {header + "1,2\n", "lengths: line 2: row: must be 3 fields, as the first line has*(got '1,2')"},
      {header + "1,2,x\n1,0,x\n", "lengths: line 3: num_decode_tokens: must be an integer from 1 to 16777216*(got '0')"},
      {header + "-3,2,x\n", "lengths: line 2: num_prefill_tokens: must*(got '-3')"},
      {header + "1.5,2,x\n", "lengths: line 2: num_prefill_tokens: must*(got '1.5')"},
      {header + "1,99999999999,x\n", "lengths: line 2: num_decode_tokens: must*(got '99999999999')"},
      {header + "1,,x\n", "lengths: line 2: num_decode_tokens: must*(got '')"},
      {header + "101,1,x\n",
       "lengths: line 2: num_prefill_tokens: must be a prompt within the context of 100 tokens, or truncation*(got '101')"},
  };
  for (const auto& [text, expected] : cases) {
    const auto pairs = parse_length_file(text, ContextLimit{100});
    ASSERT_FALSE(pairs.ok()) << expected;
    EXPECT_THAT(pairs.error().message, Says(expected));
    EXPECT_EQ(pairs.error().code, ErrorCode::kInvalidArgument);
  }
}

// Given a context; expects a prompt of exactly that length to pass, and with truncation longer ones cut so that an answer fits.
TEST(LengthFile, KeepsToTheContext) {
  const std::string text = "ContextTokens,GeneratedTokens\n100,50\n60,70\n10,20\n";
  using Pairs = std::vector<TokenPair>;
  EXPECT_EQ(parse_length_file(text, ContextLimit{100}).value(), (Pairs{{100, 50}, {60, 70}, {10, 20}}));
  EXPECT_EQ(parse_length_file(text, ContextLimit{100, true}).value(), (Pairs{{99, 1}, {60, 40}, {10, 20}}));
  EXPECT_EQ(parse_length_file(text, ContextLimit{2, true}).value(), (Pairs{{1, 1}, {1, 1}, {1, 1}}));
  EXPECT_FALSE(parse_length_file(text, ContextLimit{0, true}).ok());
  const std::string trace = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03,100,50\n";
  EXPECT_EQ(lengths_of(parse_azure_trace(trace, ContextLimit{100, true}).value()), (Pairs{{99, 1}}));
  EXPECT_EQ(parse_azure_trace(trace, ContextLimit{99}).error().message,
            "trace: line 2: ContextTokens: must be a prompt within the context of 99 tokens, or truncation to it (got '100')");
  EXPECT_FALSE(parse_azure_trace(trace, ContextLimit{-1}).ok());
}

// Given mutated files; expects pairs of at least one token or an error of one line, and no crash.
TEST(LengthFile, SurvivesMutatedBytes) {
  Rng rng(12, "mutations");
  const std::string alphabet = "0123456789-,\r\n x\xff";
  const std::string sane = "num_prefill_tokens,num_decode_tokens,n\r\n26,5,31\r\n72,693,765\r\n21,478,499\r\n";
  int read = 0;
  for (int i = 0; i < effort(2000, 20'000); ++i) {
    const std::string text = mutated_text(rng, sane, alphabet);
    const auto pairs = parse_length_file(text);
    if (!pairs.ok()) {
      ASSERT_THAT(pairs.error().message, StartsWith("lengths: line "));
      ASSERT_EQ(pairs.error().message.find('\n'), std::string::npos);
      continue;
    }
    ++read;
    ASSERT_FALSE(pairs->empty());
    for (const TokenPair& pair : *pairs) ASSERT_TRUE(pair.input_tokens >= 1 && pair.output_tokens >= 1);
  }
  EXPECT_GT(read, effort(33, 500));
}

// Given ShareGPT's lengths; expects its 58,000 pairs, and its longest prompt refused by a context of 3,972 tokens.
TEST(LengthFile, ReadsShareGpt) {
  const std::filesystem::path file = source_path() + "/../shared/data/traces/sharegpt_lengths.csv";
  if (!std::filesystem::exists(file)) GTEST_SKIP() << "no lengths " << file;
  std::ifstream stream(file, std::ios::binary);
  const std::string text(std::istreambuf_iterator<char>(stream), {});
  const auto pairs = parse_length_file(text, ContextLimit{3973});
  ASSERT_TRUE(pairs.ok()) << pairs.error().message;
  ASSERT_EQ(pairs->size(), 58'000U);
  EXPECT_EQ(pairs->front(), (TokenPair{26, 5}));
  EXPECT_FALSE(parse_length_file(text, ContextLimit{3972}).ok());
}

}  // namespace
}  // namespace windlass::workload
