// Lengths: how many tokens requests have, in and out: from a distribution of each, or pairs drawn i.i.d. with replacement from
// a trace's rows or a length file.
//
//   WINDLASS_ASSIGN_OR_RETURN(auto pairs, parse_length_file(text, ContextLimit{8192}));
//   WINDLASS_ASSIGN_OR_RETURN(auto lengths, LengthDistribution::empirical(std::move(pairs)));
//   Rng rng(seed, "chat/lengths");
//   TokenPair request = lengths.draw(rng);
//
// Every length is at least 1 token. Plain values; draw() costs no virtual call.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <variant>
#include <vector>

#include "planner/base/result.h"
#include "planner/base/rng.h"
#include "planner/workload/context_limit.h"
#include "planner/workload/trace.h"

namespace windlass::workload {

struct FixedTokens {
  int tokens = 1;
};

struct UniformTokens {
  int low = 1;  // both can be drawn
  int high = 1;
};

// Log-normal with this mean and coefficient of variation, rounded to whole tokens, and set to the nearest of 1 and max_tokens
// where it lies outside. LengthDistribution::mean_input_tokens() says what mean that leaves.
struct LogNormalTokens {
  double mean = 1;
  double cv = 0;
  int max_tokens = kMaxTokens;
};

using TokenDistribution = std::variant<FixedTokens, UniformTokens, LogNormalTokens>;

class LengthDistribution {
 public:
  // Input and output drawn independently. Without truncation the largest prompt that can be drawn must lie within the context.
  // Errors (kInvalidArgument) name the field, what was found and what is allowed.
  [[nodiscard]] static Result<LengthDistribution> independent(const TokenDistribution& input, const TokenDistribution& output,
                                                              const std::optional<ContextLimit>& context = std::nullopt);

  // Error: no pairs. REQUIRES: lengths in 1..kMaxTokens, as the parsers give.
  [[nodiscard]] static Result<LengthDistribution> empirical(std::vector<TokenPair> pairs);

  [[nodiscard]] TokenPair draw(Rng& rng) const;

  // Exact means of what draw() gives, rounding, bounds and truncation included.
  [[nodiscard]] double mean_input_tokens() const { return mean_input_tokens_; }
  [[nodiscard]] double mean_output_tokens() const { return mean_output_tokens_; }

 private:
  // A distribution with what its draws need worked out.
  struct Marginal {
    explicit Marginal(const TokenDistribution& distribution);
    [[nodiscard]] int draw(Rng& rng) const;
    [[nodiscard]] double at_least(int tokens) const;  // the chance of a draw of `tokens` or more

    int low = 1;
    int high = 1;
    double location = 0;  // mean and standard deviation of the logarithm; scale 0: uniform
    double scale = 0;
  };

  LengthDistribution() = default;
  void set_means(int context);

  std::vector<Marginal> marginals_;                      // input and output; none where there are pairs
  std::shared_ptr<const std::vector<TokenPair>> pairs_;  // many sources of one file share them
  std::optional<int> truncate_to_;
  double mean_input_tokens_ = 0;
  double mean_output_tokens_ = 0;
};

// A CSV with a line of column names, of which two are num_prefill_tokens and num_decode_tokens, or ContextTokens and
// GeneratedTokens; other columns are passed over. At least one row. Errors (kInvalidArgument) name the line, the field, what
// was found and what is allowed.
[[nodiscard]] Result<std::vector<TokenPair>> parse_length_file(std::string_view text,
                                                               const std::optional<ContextLimit>& context = std::nullopt);

// The lengths of a trace's rows, without their times.
[[nodiscard]] std::vector<TokenPair> lengths_of(std::span<const TraceRow> rows);

}  // namespace windlass::workload
