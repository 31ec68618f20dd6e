// Interpolates iteration times between measured runs; see profile_table.h.
#include "planner/perf/profile_table.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include <fmt/format.h>

#include "planner/perf/csv_rows.h"

namespace windlass::planner {
namespace {

constexpr double kMaxRowTokens = 1e9;
constexpr double kMaxRowMs = 1e9;
constexpr double kLeastRowMs = 1e-6;
constexpr double kMixedBatchFactor = 1.1;   // as in Splitwise's simulator
constexpr double kContradictionFactor = 2;  // ten of Splitwise's rows are at 14 or more, all others below 1.2

double batch_tokens(const ProfileRow& row) { return row.prompt_tokens * row.batch_size; }
double context_tokens(const ProfileRow& row) { return row.batch_size * mean_context_tokens(row); }

// The common slope of y over x, with an offset for each group: least squares of relative errors, at least 0.
struct Pair {
  double x = 0;
  double y = 0;
};
double common_slope(const std::map<double, std::vector<Pair>>& groups) {
  double products = 0;
  double squares = 0;
  for (const auto& [key, pairs] : groups) {
    double weights = 0;
    double mean_x = 0;
    double mean_y = 0;
    for (const Pair& pair : pairs) {
      const double weight = 1 / (pair.y * pair.y);
      weights += weight;
      mean_x += weight * pair.x;
      mean_y += weight * pair.y;
    }
    mean_x /= weights;
    mean_y /= weights;
    for (const Pair& pair : pairs) {
      const double weight = 1 / (pair.y * pair.y);
      products += weight * (pair.x - mean_x) * (pair.y - mean_y);
      squares += weight * (pair.x - mean_x) * (pair.x - mean_x);
    }
  }
  return squares > 0 ? std::max(products / squares, 0.0) : 0;
}

// The prompt size measured with the most batch sizes; on a tie the smallest.
double reference_prompt(const std::vector<ProfileRow>& rows) {
  std::map<double, std::set<double>> batch_sizes;
  for (const ProfileRow& row : rows) batch_sizes[row.prompt_tokens].insert(row.batch_size);
  const auto most = std::max_element(batch_sizes.begin(), batch_sizes.end(),
                                     [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
  return most->first;
}

std::string name_of(const ProfileKey& key) {
  return fmt::format("{} on {} with tensor parallel degree {}", key.model, key.hardware, key.tensor_parallel);
}

}  // namespace

Result<std::vector<ProfileRow>> parse_profile_csv(std::string_view text) {
  WINDLASS_ASSIGN_OR_RETURN(const CsvRows csv, CsvRows::parse(text, {"model", "hardware", "tensor_parallel", "prompt_size",
                                                                     "batch_size", "token_size", "prompt_time", "token_time"}));
  std::vector<ProfileRow> rows;
  rows.reserve(csv.rows());
  for (std::size_t i = 0; i < csv.rows(); ++i) {
    ProfileRow row;
    WINDLASS_ASSIGN_OR_RETURN(row.model, csv.text(i, "model"));
    WINDLASS_ASSIGN_OR_RETURN(row.hardware, csv.text(i, "hardware"));
    WINDLASS_ASSIGN_OR_RETURN(row.tensor_parallel, csv.integer(i, "tensor_parallel", 1, 4096));
    WINDLASS_ASSIGN_OR_RETURN(row.prompt_tokens, csv.number(i, "prompt_size", 1, kMaxRowTokens));
    WINDLASS_ASSIGN_OR_RETURN(row.batch_size, csv.number(i, "batch_size", 1, kMaxRowTokens));
    WINDLASS_ASSIGN_OR_RETURN(row.output_tokens, csv.number(i, "token_size", 1, kMaxRowTokens));
    WINDLASS_ASSIGN_OR_RETURN(const double prompt_ms, csv.number(i, "prompt_time", kLeastRowMs, kMaxRowMs));
    WINDLASS_ASSIGN_OR_RETURN(const double token_ms, csv.number(i, "token_time", kLeastRowMs, kMaxRowMs));
    row.prompt_s = prompt_ms * 1e-3;
    row.token_s = token_ms * 1e-3;
    if (csv.has("e2e_time")) {
      WINDLASS_ASSIGN_OR_RETURN(const double end_to_end_ms, csv.number(i, "e2e_time", kLeastRowMs, kMaxRowMs));
      row.end_to_end_s = end_to_end_ms * 1e-3;
    }
    if (csv.has("prompt_iterations")) {
      WINDLASS_ASSIGN_OR_RETURN(row.prompt_iterations, csv.number(i, "prompt_iterations", 1, row.batch_size));
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

bool is_one_batch(const ProfileRow& row) {
  return row.end_to_end_s <= kContradictionFactor * (row.prompt_s + row.token_s * (row.output_tokens - 1));
}

double mean_context_tokens(const ProfileRow& row) {
  double generated = row.output_tokens;
  if (row.end_to_end_s > 0) generated = std::clamp(1 + (row.end_to_end_s - row.prompt_s) / row.token_s, 1.0, row.output_tokens);
  return row.prompt_tokens + generated / 2;
}

std::vector<ProfileKey> keys_of(std::span<const ProfileRow> rows) {
  std::vector<ProfileKey> keys;
  for (const ProfileRow& row : rows) {
    const ProfileKey key{row.model, row.hardware, row.tensor_parallel};
    if (std::find(keys.begin(), keys.end(), key) == keys.end()) keys.push_back(key);
  }
  return keys;
}

Result<ProfileTable> ProfileTable::make(std::span<const ProfileRow> all_rows, const ProfileKey& key, ProfileReading reading,
                                        double kv_capacity_tokens) {
  std::vector<ProfileRow> rows;
  ProfileTable table;
  for (const ProfileRow& row : all_rows) {
    if (ProfileKey{row.model, row.hardware, row.tensor_parallel} != key) continue;
    if (is_one_batch(row)) {
      rows.push_back(row);
    } else {
      ++table.rows_left_out_;
    }
  }
  if (rows.empty()) {
    std::string has;
    for (const ProfileKey& other : keys_of(all_rows)) has += (has.empty() ? "" : "; ") + name_of(other);
    return Error{ErrorCode::kNotFound,
                 fmt::format("profile: must have a usable row for {} (got {})", name_of(key), has.empty() ? "none" : has)};
  }
  table.contexts_ = {mean_context_tokens(rows.front()), mean_context_tokens(rows.front())};
  for (const ProfileRow& row : rows) {
    table.contexts_.least = std::min(table.contexts_.least, mean_context_tokens(row));
    table.contexts_.most = std::max(table.contexts_.most, mean_context_tokens(row));
  }
  table.reading_ = reading;
  table.kv_capacity_tokens_ = kv_capacity_tokens;
  if (reading == ProfileReading::kBatchTokens) {
    table.read_batch_tokens(rows);
  } else {
    table.read_batch_shapes(rows);
  }
  return table;
}

void ProfileTable::read_batch_tokens(const std::vector<ProfileRow>& rows) {
  std::vector<PiecewiseLinear::Point> prompt, token;
  for (const ProfileRow& row : rows) {
    prompt.push_back({batch_tokens(row), row.prompt_s});
    token.push_back({batch_tokens(row), row.token_s});
  }
  prompt_by_tokens_ = PiecewiseLinear(std::move(prompt));
  token_ = PiecewiseLinear(std::move(token));
}

void ProfileTable::read_batch_shapes(const std::vector<ProfileRow>& rows) {
  reference_prompt_tokens_ = reference_prompt(rows);
  std::vector<PiecewiseLinear::Point> prompt, token, batches;
  std::map<double, std::vector<Pair>> by_batch_size;
  for (const ProfileRow& row : rows) {
    if (row.batch_size == 1) prompt.push_back({row.prompt_tokens, row.prompt_s});
    if (row.prompt_tokens == reference_prompt_tokens_) batches.push_back({batch_tokens(row), row.prompt_s});
    by_batch_size[row.batch_size].push_back({context_tokens(row), row.token_s});
    max_context_tokens_ = std::max(max_context_tokens_, context_tokens(row));
  }
  token_s_per_context_token_ = common_slope(by_batch_size);
  for (const ProfileRow& row : rows) {
    token.push_back({row.batch_size, row.token_s - token_s_per_context_token_ * context_tokens(row)});
  }
  prompt_of_batches_ = PiecewiseLinear(std::move(batches));
  prompt_by_tokens_ = prompt.empty() ? prompt_of_batches_ : PiecewiseLinear(std::move(prompt));
  token_ = PiecewiseLinear(std::move(token));

  // The cost for a token of attending to one more token: how much longer the longest single prompt takes than the same number
  // of tokens in batches of the reference prompt.
  const double longest = longest_prompt_tokens();
  const double pairs = longest * (longest - reference_prompt_tokens_);
  if (pairs > 0 && prompt_of_batches_.points().size() > 1) {
    prompt_s_per_pair_ = std::max((prompt_by_tokens_.at(longest) - prompt_of_batches_.at(longest)) / pairs, 0.0);
  }
}

double ProfileTable::measured_prefill_s(double tokens, double attended) const {
  const double single_s = prompt_by_tokens_.at(tokens);
  if (attended >= tokens || tokens <= reference_prompt_tokens_ || prompt_of_batches_.points().size() < 2) return single_s;
  const double share = std::clamp((attended - reference_prompt_tokens_) / (tokens - reference_prompt_tokens_), 0.0, 1.0);
  return share * single_s + (1 - share) * prompt_of_batches_.at(tokens);
}

double ProfileTable::prefill_s(double tokens, double attention) const {
  if (reading_ == ProfileReading::kBatchTokens) return prompt_by_tokens_.at(tokens);
  const double attended = attention / tokens;  // tokens that each token of the batch attends to; in a single prompt: all
  const double longest = longest_prompt_tokens();
  if (tokens <= longest) {
    return measured_prefill_s(tokens, attended) + prompt_s_per_pair_ * tokens * std::max(attended - tokens, 0.0);
  }
  // Beyond the single prompts: continue along the curve of the batches, plus the attention of each token.
  const auto beyond = [this](double attends) { return std::max(attends - reference_prompt_tokens_, 0.0); };
  const double more_pairs = tokens * beyond(attended) - longest * beyond(std::min(attended, longest));
  const double more_tokens_s = prompt_of_batches_.points().size() < 2
                                   ? prompt_by_tokens_.at(tokens) - prompt_by_tokens_.at(longest)
                                   : prompt_of_batches_.at(tokens) - prompt_of_batches_.at(longest);
  return measured_prefill_s(longest, std::min(attended, longest)) + more_tokens_s + prompt_s_per_pair_ * more_pairs;
}

double ProfileTable::decode_s(double sequences, double context_tokens) const {
  return token_.at(sequences) + token_s_per_context_token_ * context_tokens;
}

double ProfileTable::iteration_s(const Batch& batch) const {
  const double prompt_tokens = batch.prefill_tokens;
  const double sequences = batch.decode_sequences;
  if (reading_ == ProfileReading::kBatchTokens) {
    if (batch.prefill_sequences == 0) return std::max(token_.at(sequences), 0.0);
    return prompt_by_tokens_.at(prompt_tokens + sequences) * (batch.decode_sequences > 0 ? kMixedBatchFactor : 1);
  }
  if (batch.prefill_sequences == 0) return std::max(decode_s(sequences, batch.decode_context_tokens), 0.0);
  if (batch.decode_sequences == 0) return prefill_s(prompt_tokens, batch.prefill_attention);
  const double tokens = prompt_tokens + sequences;
  const double attention =
      batch.prefill_attention * (tokens / prompt_tokens);  // the attention of the decode part is counted separately
  return std::max(prefill_s(tokens, attention) + token_s_per_context_token_ * batch.decode_context_tokens,
                  decode_s(sequences, batch.decode_context_tokens));
}

Coverage ProfileTable::coverage(const Batch& batch) const {
  const double tokens = batch.prefill_tokens + (batch.prefill_sequences > 0 ? batch.decode_sequences : 0);
  bool covered = true;
  if (reading_ == ProfileReading::kBatchTokens) {
    covered = batch.prefill_sequences > 0 ? prompt_by_tokens_.covers(tokens) : token_.covers(batch.decode_sequences);
  } else if (batch.prefill_sequences > 0) {
    // Mixed batches were not measured, nor later chunks of a prompt, nor batches of prompts shorter than the reference.
    const double attended = batch.prefill_attention / batch.prefill_tokens;
    const bool single = batch.prefill_sequences == 1 && attended == batch.prefill_tokens && prompt_by_tokens_.covers(tokens);
    const bool between = attended >= reference_prompt_tokens_ && attended <= std::min(tokens, longest_prompt_tokens()) &&
                         prompt_of_batches_.covers(tokens);
    covered = batch.decode_sequences == 0 && (single || between);
  } else {
    covered = token_.covers(batch.decode_sequences) && batch.decode_context_tokens <= max_context_tokens_;
  }
  return covered ? Coverage::kMeasured : Coverage::kExtrapolated;
}

}  // namespace windlass::planner
