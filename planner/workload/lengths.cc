// Draws the token lengths of requests, and reads length files; see lengths.h.
#include "planner/workload/lengths.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <numbers>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "planner/base/foreign_text.h"
#include "planner/workload/csv_text.h"

namespace windlass::workload {
namespace {

Error bad(const char* side, const std::string& found, const std::string& allowed) {
  return Error{ErrorCode::kInvalidArgument, fmt::format("{}: must be {} (got {})", side, allowed, found)};
}

Result<void> validate(const char* side, const TokenDistribution& distribution) {
  const auto outside = [](int tokens) { return tokens < 1 || tokens > kMaxTokens; };
  const std::string range = fmt::format("1 to {}", kMaxTokens);
  if (const auto* fixed = std::get_if<FixedTokens>(&distribution)) {
    if (outside(fixed->tokens)) return bad(side, fmt::format("{}", fixed->tokens), range);
  } else if (const auto* uniform = std::get_if<UniformTokens>(&distribution)) {
    if (outside(uniform->low) || outside(uniform->high) || uniform->low > uniform->high) {
      return bad(side, fmt::format("uniform from {} to {}", uniform->low, uniform->high), range + ", the lower one first");
    }
  } else if (const auto* log_normal = std::get_if<LogNormalTokens>(&distribution)) {
    if (!(log_normal->mean >= 1 && log_normal->mean <= kMaxTokens)) {
      return bad(side, fmt::format("a log-normal mean of {}", log_normal->mean), range);
    }
    if (!(log_normal->cv >= 0 && log_normal->cv <= 100)) {
      return bad(side, fmt::format("a log-normal CV of {}", log_normal->cv), "0 to 100");
    }
    if (outside(log_normal->max_tokens)) return bad(side, fmt::format("a bound of {}", log_normal->max_tokens), range);
  }
  return {};
}

// The names of the two columns in a length file.
struct Columns {
  std::string_view input_name, output_name;
  std::size_t input = 0, output = 0, count = 0;
};

std::vector<std::string_view> fields_of(std::string_view line) {
  std::vector<std::string_view> fields;
  while (true) {
    const std::size_t comma = line.find(',');
    fields.push_back(line.substr(0, comma));
    if (comma == std::string_view::npos) return fields;
    line.remove_prefix(comma + 1);
  }
}

std::optional<Columns> columns_of(std::string_view header) {
  const auto names = fields_of(header);
  for (const auto& [input, output] : {std::pair<std::string_view, std::string_view>{"num_prefill_tokens", "num_decode_tokens"},
                                      {"ContextTokens", "GeneratedTokens"}}) {
    const auto in = std::find(names.begin(), names.end(), input);
    const auto out = std::find(names.begin(), names.end(), output);
    if (in == names.end() || out == names.end()) continue;
    return Columns{input, output, static_cast<std::size_t>(in - names.begin()), static_cast<std::size_t>(out - names.begin()),
                   names.size()};
  }
  return std::nullopt;
}

}  // namespace

LengthDistribution::Marginal::Marginal(const TokenDistribution& distribution) {
  if (const auto* fixed = std::get_if<FixedTokens>(&distribution)) {
    low = high = fixed->tokens;
  } else if (const auto* uniform = std::get_if<UniformTokens>(&distribution)) {
    low = uniform->low;
    high = uniform->high;
  } else {
    const auto& log_normal = std::get<LogNormalTokens>(distribution);
    high = log_normal.max_tokens;
    // For a log-normal with mean m and CV c, the logarithm has variance log(1 + c^2) and mean log(m) minus half of that.
    const double variance = std::log1p(log_normal.cv * log_normal.cv);
    location = std::log(log_normal.mean) - variance / 2;
    scale = std::sqrt(variance);
    if (scale == 0) low = high = std::min(high, static_cast<int>(std::lround(log_normal.mean)));
  }
}

int LengthDistribution::Marginal::draw(Rng& rng) const {
  if (low == high) return low;
  if (scale == 0) return static_cast<int>(rng.integer(low, high));
  const double tokens = std::exp(location + scale * rng.normal()) + 0.5;
  if (!(tokens < high)) return high;
  return std::max(low, static_cast<int>(tokens));
}

double LengthDistribution::Marginal::at_least(int tokens) const {
  if (tokens <= low) return 1;
  if (tokens > high) return 0;
  if (scale == 0) return static_cast<double>(high - tokens + 1) / static_cast<double>(high - low + 1);
  return std::erfc((std::log(tokens - 0.5) - location) / (scale * std::numbers::sqrt2)) / 2;
}

Result<LengthDistribution> LengthDistribution::around(double mean_input_tokens, double mean_output_tokens, double cv,
                                                      std::optional<int> context_tokens) {
  const int most = context_tokens ? std::max(1, *context_tokens - 1) : kMaxTokens;
  std::optional<ContextLimit> context;
  if (context_tokens) context = ContextLimit{*context_tokens, true};
  return independent(LogNormalTokens{mean_input_tokens, cv, most}, LogNormalTokens{mean_output_tokens, cv, most}, context);
}

Result<LengthDistribution> LengthDistribution::independent(const TokenDistribution& input, const TokenDistribution& output,
                                                           const std::optional<ContextLimit>& context) {
  WINDLASS_RETURN_IF_ERROR(validate("inputTokens", input));
  WINDLASS_RETURN_IF_ERROR(validate("outputTokens", output));
  WINDLASS_RETURN_IF_ERROR(workload::validate(context));
  LengthDistribution lengths;
  lengths.marginals_ = {Marginal(input), Marginal(output)};
  const int longest = lengths.marginals_[0].high;
  if (context && context->truncate) {
    lengths.truncate_to_ = context->tokens;
  } else if (context && longest > context->tokens) {
    return bad("inputTokens", fmt::format("prompts of up to {}", longest),
               fmt::format("at most the context of {} tokens, or truncation to it", context->tokens));
  }
  // A prompt and an answer of maximum length fit, so nothing is truncated.
  lengths.set_means(lengths.truncate_to_.value_or(2 * kMaxTokens));
  return lengths;
}

// The mean of a count is the sum over k >= 1 of P(count >= k).
void LengthDistribution::set_means(int context) {
  const Marginal& input = marginals_[0];
  const Marginal& output = marginals_[1];
  const auto mean_up_to = [](const Marginal& marginal, int most) {
    double mean = 0;
    for (int k = 1; k <= std::min(most, marginal.high); ++k) {
      const double chance = marginal.at_least(k);
      mean += chance;
      if (chance * marginal.high < 1e-9) break;  // the rest cannot add more either
    }
    return mean;
  };
  mean_input_tokens_ = mean_up_to(input, context - 1);
  if (input.high <= context - output.high) {
    mean_output_tokens_ = mean_up_to(output, output.high);
    return;
  }
  // From the longest prompt down: each step leaves one more token of context for the answer.
  double mean_in_rest = 0;
  double longer = 0;  // probability of a longer prompt
  for (int prompt = context - 1; prompt >= 1; --prompt) {
    mean_in_rest += output.at_least(context - prompt);
    const double at_least = input.at_least(prompt);
    mean_output_tokens_ += (at_least - longer) * mean_in_rest;
    longer = at_least;
  }
}

Result<LengthDistribution> LengthDistribution::empirical(std::vector<TokenPair> pairs) {
  if (pairs.empty()) return bad("lengths", "none", "at least one pair");
  LengthDistribution lengths;
  double input = 0, output = 0;
  for (const TokenPair& pair : pairs) {
    assert(pair.input_tokens >= 1 && pair.input_tokens <= kMaxTokens);
    assert(pair.output_tokens >= 1 && pair.output_tokens <= kMaxTokens);
    input += pair.input_tokens;
    output += pair.output_tokens;
  }
  lengths.mean_input_tokens_ = input / static_cast<double>(pairs.size());
  lengths.mean_output_tokens_ = output / static_cast<double>(pairs.size());
  lengths.pairs_ = std::make_shared<const std::vector<TokenPair>>(std::move(pairs));
  return lengths;
}

TokenPair LengthDistribution::draw(Rng& rng) const {
  if (pairs_) return (*pairs_)[static_cast<std::size_t>(rng.integer(0, static_cast<std::int64_t>(pairs_->size()) - 1))];
  TokenPair pair;
  pair.input_tokens = marginals_[0].draw(rng);
  pair.output_tokens = marginals_[1].draw(rng);
  return truncate_to_ ? truncated(pair, *truncate_to_) : pair;
}

Result<std::vector<TokenPair>> parse_length_file(std::string_view text, const std::optional<ContextLimit>& context) {
  constexpr std::string_view kThing = "lengths";
  WINDLASS_RETURN_IF_ERROR(workload::validate(context));
  const std::string_view header = take_line(text);
  const auto columns = columns_of(header);
  if (!columns) {
    return bad_field(kThing, 1, "header", header,
                     "columns num_prefill_tokens and num_decode_tokens, or ContextTokens and GeneratedTokens");
  }
  std::vector<TokenPair> pairs;
  std::size_t line = 1;
  while (!text.empty()) {
    const std::string_view row = take_line(text);
    ++line;
    if (row.empty() && text.empty()) break;  // an empty last line
    const auto fields = fields_of(row);
    if (fields.size() != columns->count) {
      return bad_field(kThing, line, "row", row, fmt::format("{} fields, as the first line has", columns->count));
    }
    const TokenFields tokens{columns->input_name, fields[columns->input], columns->output_name, fields[columns->output]};
    WINDLASS_ASSIGN_OR_RETURN(const TokenPair pair, read_tokens(kThing, line, tokens, context));
    pairs.push_back(pair);
  }
  if (pairs.empty()) return bad_field(kThing, line + 1, "row", "", "at least one row");
  return pairs;
}

std::vector<TokenPair> lengths_of(std::span<const TraceRow> rows) {
  std::vector<TokenPair> pairs;
  pairs.reserve(rows.size());
  for (const TraceRow& row : rows) pairs.push_back({row.input_tokens, row.output_tokens});
  return pairs;
}

}  // namespace windlass::workload
