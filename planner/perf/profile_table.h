// ProfileTable interpolates iteration times between measured runs from Splitwise's profile (Patel et al., ISCA 2024, Section V:
// "a piece-wise linear performance model"), whose CSV columns are read unchanged. There are two interpretations of the rows:
//
// - kBatchTokens is that of Splitwise's simulator. Both times are medians over prompt_size x batch_size, looked up by the
//   tokens of the batch: prompt tokens for prefill, one per sequence for decode, both for a mixed batch, which takes the prompt
//   time x 1.1. It reproduces the paper. Its decode times hardly grow with the batch, because one token per sequence is below
//   the measured range.
// - kBatchShape uses what was measured. Prefill lies between the curve of single prompts and the curve of batches of one prompt
//   size (the one with the most batch sizes), depending on the mean number of tokens that a token attends to; attending to more
//   costs as in the longest single prompt. Decode uses medians by batch size after subtracting a part linear in the context
//   with a fitted slope. A mixed batch adds the attention of the decode part to the prefill of all its tokens.
//
// Rows whose end-to-end time is more than twice their prompt time plus token times are not a single batch (it did not fit, so
// its requests ran one after another); they are ignored and counted. Outside the measured range the outermost segments continue
// linearly, but do not fall beyond the largest batch. Pure, immutable.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "planner/base/result.h"
#include "planner/perf/iteration_model.h"
#include "planner/perf/piecewise_linear.h"

namespace windlass::planner {

// One measured run: `batch_size` prompts of `prompt_tokens` each, and up to `output_tokens` generated for each.
struct ProfileRow {
  std::string model;     // "bloom-176b"
  std::string hardware;  // "h100-80gb"
  int tensor_parallel = 1;
  double prompt_tokens = 0;  // prompt_size
  double batch_size = 0;
  double output_tokens = 0;      // token_size: the maximum requested
  double prompt_s = 0;           // prompt_time; 0: not measured, accepted only by fit_lines
  double token_s = 0;            // token_time
  double end_to_end_s = 0;       // e2e_time; 0 if the column is missing
  double prompt_iterations = 1;  // prompt_iterations, optional: over which the engine spread the batch's prompts

  bool operator==(const ProfileRow&) const = default;
};

// The text of perf_model.csv: times in milliseconds, columns by name in any order, others ignored; e2e_time and
// prompt_iterations are optional. Errors name the line, the column, what was found and what is allowed.
[[nodiscard]] Result<std::vector<ProfileRow>> parse_profile_csv(std::string_view csv);

// False if the end-to-end time contradicts the other two.
[[nodiscard]] bool is_one_batch(const ProfileRow& row);

// Mean tokens in a sequence's cache while the row's tokens were generated. Generation may have ended before `output_tokens`;
// the end-to-end time shows that.
[[nodiscard]] double mean_context_tokens(const ProfileRow& row);

struct ProfileKey {
  std::string model;
  std::string hardware;
  int tensor_parallel = 1;

  bool operator==(const ProfileKey&) const = default;
};

// Distinct keys of the rows, in order of appearance.
[[nodiscard]] std::vector<ProfileKey> keys_of(std::span<const ProfileRow> rows);

enum class ProfileReading { kBatchTokens, kBatchShape };

class ProfileTable final : public IterationModel {
 public:
  // Error kNotFound: no row has the key; it lists the existing keys.
  [[nodiscard]] static Result<ProfileTable> make(std::span<const ProfileRow> rows, const ProfileKey& key,
                                                 ProfileReading reading, double kv_capacity_tokens);

  [[nodiscard]] double iteration_s(const Batch& batch) const override;
  [[nodiscard]] Coverage coverage(const Batch& batch) const override;
  [[nodiscard]] double kv_capacity_tokens() const override { return kv_capacity_tokens_; }
  [[nodiscard]] TokenRange measured_contexts() const override { return contexts_; }
  [[nodiscard]] TokenRange measured_prompts() const override {
    return {prompt_by_tokens_.points().front().x, prompt_by_tokens_.points().back().x};
  }

  // Number of the key's rows refused by is_one_batch().
  [[nodiscard]] std::size_t rows_left_out() const { return rows_left_out_; }

 private:
  ProfileTable() = default;

  void read_batch_tokens(const std::vector<ProfileRow>& rows);
  void read_batch_shapes(const std::vector<ProfileRow>& rows);
  [[nodiscard]] double prefill_s(double tokens, double attention) const;
  // kBatchShape, for at most as many tokens as the longest single prompt.
  [[nodiscard]] double measured_prefill_s(double tokens, double attended) const;
  [[nodiscard]] double longest_prompt_tokens() const { return prompt_by_tokens_.points().back().x; }
  [[nodiscard]] double decode_s(double sequences, double context_tokens) const;

  ProfileReading reading_ = ProfileReading::kBatchTokens;
  PiecewiseLinear prompt_by_tokens_;   // kBatchTokens: over all rows; kBatchShape: over single prompts
  PiecewiseLinear prompt_of_batches_;  // kBatchShape: of batches of the reference prompt, by tokens
  double reference_prompt_tokens_ = 0;
  double prompt_s_per_pair_ = 0;  // per pair of a token and one that it attends to
  PiecewiseLinear token_;         // by batch tokens, or by batch size without the context part
  double token_s_per_context_token_ = 0;
  double max_context_tokens_ = 0;  // of a batch
  double kv_capacity_tokens_ = 0;
  TokenRange contexts_;
  std::size_t rows_left_out_ = 0;
};

}  // namespace windlass::planner
