// DistServe's latency model (Zhong et al., OSDI 2024, Section 4.1 and its published simulator): quadratic prefill and linear
// decode, read from its profile files unchanged.
//
//   one pipeline stage of a prefill iteration   (a + b sum(l) + c sum(l^2)) / pp + pp        milliseconds
//   one pipeline stage of a decode iteration    (a + b sum(context) + c B) / pp              milliseconds
//
// Decode has one set of coefficients for batches below `decoding_large_small_bs_threshold` and another from there on.
// iteration_s is the whole pass over pp stages. Profiles were taken with one stage, so pp > 1 is kExtrapolated. So is a mixed
// batch, which DistServe's simulator does not have: it takes the sum of both times minus the smaller of their constants,
// because the weights are read once.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "planner/base/result.h"
#include "planner/perf/iteration_model.h"

namespace windlass::planner {

// c0 + c1 x + c2 y, in milliseconds as in the file.
struct DistServeTerms {
  double constant_ms = 0;     // a
  double per_token_ms = 0;    // b: prompt tokens, or tokens of context
  double per_square_ms = 0;   // c of prefill: squared prompt lengths
  double per_request_ms = 0;  // c of decode

  bool operator==(const DistServeTerms&) const = default;
};

struct DistServeCoefficients {
  DistServeTerms prefill;
  DistServeTerms decode_small;
  DistServeTerms decode_large;
  int large_batch_from = 0;  // decoding_large_small_bs_threshold

  bool operator==(const DistServeCoefficients&) const = default;
};

// By model ("facebook/opt-13b") and tensor parallel degree.
using DistServeProfile = std::map<std::string, std::map<int, DistServeCoefficients>>;

// The text of profiler-*.json. Errors name the path of the field.
[[nodiscard]] Result<DistServeProfile> parse_distserve_profile(std::string_view json);

struct DistServeParallelism {
  int tensor_parallel = 1;
  int pipeline_parallel = 1;

  auto operator<=>(const DistServeParallelism&) const = default;
};

// Tokens that the KV cache holds, by model and parallelism.
using DistServeCapacities = std::map<std::string, std::map<DistServeParallelism, double>>;

// The text of max_num_tokens.csv (model,tp,pp,max_num_tokens). Errors name the line and the column.
[[nodiscard]] Result<DistServeCapacities> parse_distserve_capacities(std::string_view csv);

class DistServeModel final : public IterationModel {
 public:
  // `model` is as in the files, or without the organisation before the slash. Errors kNotFound list the content of the files.
  [[nodiscard]] static Result<DistServeModel> make(const DistServeProfile& profile, const DistServeCapacities& capacities,
                                                   std::string_view model, DistServeParallelism parallelism);

  [[nodiscard]] double iteration_s(const Batch& batch) const override;
  [[nodiscard]] Coverage coverage(const Batch& batch) const override;
  [[nodiscard]] double kv_capacity_tokens() const override { return kv_capacity_tokens_; }
  [[nodiscard]] int pipeline_stages() const override { return pipeline_parallel_; }

  // DistServe's own two formulas: one stage, in milliseconds. The sums of the other phase are ignored.
  [[nodiscard]] double prefill_stage_ms(const Batch& batch) const;
  [[nodiscard]] double decode_stage_ms(const Batch& batch) const;

 private:
  DistServeModel(const DistServeCoefficients& coefficients, int pipeline_parallel, double kv_capacity_tokens)
      : coefficients_(coefficients), pipeline_parallel_(pipeline_parallel), kv_capacity_tokens_(kv_capacity_tokens) {}

  DistServeCoefficients coefficients_;
  int pipeline_parallel_ = 1;
  double kv_capacity_tokens_ = 0;
};

}  // namespace windlass::planner
