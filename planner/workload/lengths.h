// LengthDistribution draws the input and output tokens of requests: from one distribution each, or as pairs drawn i.i.d. with
// replacement from the rows of a trace or a length file.
//
//   WINDLASS_ASSIGN_OR_RETURN(auto pairs, parse_length_file(text, ContextLimit{8192}));
//   WINDLASS_ASSIGN_OR_RETURN(auto lengths, LengthDistribution::empirical(std::move(pairs)));
//   Rng rng(seed, "chat/lengths");
//   TokenPair request = lengths.draw(rng);
//
// Every length is at least 1 token. Plain values; draw() makes no virtual call.
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
  int low = 1;  // both inclusive
  int high = 1;
};

// Log-normal with this mean and coefficient of variation, rounded to whole tokens and clamped to 1..max_tokens.
// LengthDistribution::mean_input_tokens() gives the resulting mean.
struct LogNormalTokens {
  double mean = 1;
  double cv = 0;
  int max_tokens = kMaxTokens;
};

using TokenDistribution = std::variant<FixedTokens, UniformTokens, LogNormalTokens>;

class LengthDistribution {
 public:
  // Draws input and output independently. Without truncation, the largest possible prompt must fit into the context. Errors
  // (kInvalidArgument) name the field, what was found and what is allowed.
  [[nodiscard]] static Result<LengthDistribution> independent(const TokenDistribution& input, const TokenDistribution& output,
                                                              const std::optional<ContextLimit>& context = std::nullopt);

  // Both lengths log-normal around these means with this coefficient of variation (0: all alike), cut to the context if there
  // is one. Errors: as above.
  [[nodiscard]] static Result<LengthDistribution> around(double mean_input_tokens, double mean_output_tokens, double cv,
                                                         std::optional<int> context_tokens = std::nullopt);

  // Error: no pairs. REQUIRES: lengths in 1..kMaxTokens, as the parsers return.
  [[nodiscard]] static Result<LengthDistribution> empirical(std::vector<TokenPair> pairs);

  [[nodiscard]] TokenPair draw(Rng& rng) const;

  // Exact means of draw(), including rounding, bounds and truncation.
  [[nodiscard]] double mean_input_tokens() const { return mean_input_tokens_; }
  [[nodiscard]] double mean_output_tokens() const { return mean_output_tokens_; }

 private:
  // A distribution with precomputed values for drawing.
  struct Marginal {
    explicit Marginal(const TokenDistribution& distribution);
    [[nodiscard]] int draw(Rng& rng) const;
    [[nodiscard]] double at_least(int tokens) const;  // P(draw >= tokens)

    int low = 1;
    int high = 1;
    double location = 0;  // mean and standard deviation of the logarithm; scale 0: uniform
    double scale = 0;
  };

  LengthDistribution() = default;
  void set_means(int context);

  std::vector<Marginal> marginals_;                      // of input and output; empty if there are pairs
  std::shared_ptr<const std::vector<TokenPair>> pairs_;  // shared by all sources of one file
  std::optional<int> truncate_to_;
  double mean_input_tokens_ = 0;
  double mean_output_tokens_ = 0;
};

// A CSV whose first line names the columns. Two of them must be num_prefill_tokens and num_decode_tokens, or ContextTokens and
// GeneratedTokens; others are ignored. At least one row. Errors (kInvalidArgument) name the line, the field, what was found and
// what is allowed.
[[nodiscard]] Result<std::vector<TokenPair>> parse_length_file(std::string_view text,
                                                               const std::optional<ContextLimit>& context = std::nullopt);

// The lengths of the rows of a trace, without their times.
[[nodiscard]] std::vector<TokenPair> lengths_of(std::span<const TraceRow> rows);

}  // namespace windlass::workload
