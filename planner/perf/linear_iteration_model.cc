// Fits and evaluates linear iteration times; see linear_iteration_model.h.
#include "planner/perf/linear_iteration_model.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <fmt/format.h>

namespace windlass::planner {
namespace {

double phase_s(const PhaseCoefficients& c, double sequences, double tokens) {
  return c.per_token_s * tokens + c.per_sequence_s * sequences + c.per_mean_token_s * (tokens / sequences) + c.constant_s;
}

struct PhaseSample {
  double sequences = 0;
  double tokens = 0;
  double seconds = 0;
  double iterations = 1;
};

// Which of the four terms a form has; all have the constant.
struct Terms {
  bool per_sequence = false;
  bool per_mean_token = false;
};

struct FittedPhase {
  LinearPhase phase;
  LinearFit fit;
};

Result<FittedPhase> fit_phase(const std::vector<PhaseSample>& samples, Terms terms, const FitOptions& options) {
  const Eigen::Index columns = 2 + (terms.per_sequence ? 1 : 0) + (terms.per_mean_token ? 1 : 0);
  Eigen::MatrixXd features(static_cast<Eigen::Index>(samples.size()), columns);
  Eigen::VectorXd targets(static_cast<Eigen::Index>(samples.size()));
  LinearPhase phase;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const PhaseSample& sample = samples[i];
    const double mean = sample.tokens / sample.sequences;
    const auto row = static_cast<Eigen::Index>(i);
    Eigen::Index column = 0;
    features(row, column++) = sample.iterations;
    features(row, column++) = sample.tokens;
    if (terms.per_sequence) features(row, column++) = sample.sequences;
    if (terms.per_mean_token) features(row, column) = sample.iterations * mean;
    targets[row] = sample.seconds;

    // Its largest iteration: the others have one sequence at least.
    const double sequences = sample.sequences - (sample.iterations - 1), tokens = mean * sequences;
    PhaseRange& range = phase.range;
    if (i == 0) range = {sequences, sequences, mean, mean, tokens, tokens};
    range.fewest_sequences = std::min(range.fewest_sequences, sequences);
    range.max_sequences = std::max(range.max_sequences, sequences);
    range.fewest_mean_tokens = std::min(range.fewest_mean_tokens, mean);
    range.max_mean_tokens = std::max(range.max_mean_tokens, mean);
    range.fewest_tokens = std::min(range.fewest_tokens, tokens);
    range.max_tokens = std::max(range.max_tokens, tokens);
  }
  WINDLASS_ASSIGN_OR_RETURN(LinearFit fit, fit_linear(features, targets, options));
  Eigen::Index column = 0;
  phase.coefficients.constant_s = fit.coefficients[column++];
  phase.coefficients.per_token_s = fit.coefficients[column++];
  if (terms.per_sequence) phase.coefficients.per_sequence_s = fit.coefficients[column++];
  if (terms.per_mean_token) phase.coefficients.per_mean_token_s = fit.coefficients[column];
  return FittedPhase{phase, std::move(fit)};
}

}  // namespace

bool PhaseRange::covers(double sequences, double tokens) const {
  const double mean = tokens / sequences;
  return fewest_sequences <= sequences && sequences <= max_sequences && fewest_mean_tokens <= mean && mean <= max_mean_tokens &&
         fewest_tokens <= tokens && tokens <= max_tokens;
}

double LinearIterationModel::iteration_s(const Batch& batch) const {
  double prefill = 0;
  double decode = 0;
  if (batch.prefill_sequences > 0) prefill = phase_s(prefill_.coefficients, batch.prefill_sequences, batch.prefill_tokens);
  if (batch.decode_sequences > 0) decode = phase_s(decode_.coefficients, batch.decode_sequences, batch.decode_context_tokens);
  const bool mixed = batch.prefill_sequences > 0 && batch.decode_sequences > 0;
  const double once = mixed ? std::min(prefill_.coefficients.constant_s, decode_.coefficients.constant_s) : 0;
  // An unconstrained fit may have negative coefficients.
  return std::max(prefill + decode - once, 0.0);
}

Coverage LinearIterationModel::coverage(const Batch& batch) const {
  const bool prefill = batch.prefill_sequences == 0 || prefill_.range.covers(batch.prefill_sequences, batch.prefill_tokens);
  const bool decode = batch.decode_sequences == 0 || decode_.range.covers(batch.decode_sequences, batch.decode_context_tokens);
  return prefill && decode ? Coverage::kMeasured : Coverage::kExtrapolated;
}

// A range without samples says nothing.
TokenRange LinearIterationModel::measured_contexts() const {
  const PhaseRange& range = decode_.range;
  return range.max_mean_tokens > 0 ? TokenRange{range.fewest_mean_tokens, range.max_mean_tokens} : TokenRange{};
}

TokenRange LinearIterationModel::measured_prompts() const {
  const PhaseRange& range = prefill_.range;
  return range.max_tokens > 0 ? TokenRange{range.fewest_tokens, range.max_tokens} : TokenRange{};
}

Result<LinearIterationFit> fit_linear_iteration(std::span<const IterationSample> samples, LinearForm form,
                                                double kv_capacity_tokens, const FitOptions& options) {
  std::vector<PhaseSample> prefill;
  std::vector<PhaseSample> decode;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const Batch& batch = samples[i].batch;
    if ((batch.prefill_sequences > 0) == (batch.decode_sequences > 0)) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("sample {}: must have a single phase (got {} prefill and {} decode sequences)", i,
                               batch.prefill_sequences, batch.decode_sequences)};
    }
    if (batch.prefill_sequences > 0) {
      prefill.push_back(
          {static_cast<double>(batch.prefill_sequences), batch.prefill_tokens, samples[i].seconds, samples[i].iterations});
    } else {
      decode.push_back({static_cast<double>(batch.decode_sequences), batch.decode_context_tokens, samples[i].seconds,
                        samples[i].iterations});
    }
  }
  const bool huawei = form == LinearForm::kHuawei;
  auto prefill_fit = fit_phase(prefill, {.per_sequence = huawei, .per_mean_token = huawei}, options);
  if (!prefill_fit.ok()) return prefill_fit.error().within("prefill");
  auto decode_fit = fit_phase(decode, {.per_sequence = true, .per_mean_token = huawei}, options);
  if (!decode_fit.ok()) return decode_fit.error().within("decode");
  return LinearIterationFit{LinearIterationModel(prefill_fit->phase, decode_fit->phase, kv_capacity_tokens),
                            std::move(prefill_fit->fit), std::move(decode_fit->fit)};
}

}  // namespace windlass::planner
