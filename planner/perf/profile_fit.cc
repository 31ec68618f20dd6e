// Fits profiles to measured rows, with cross-validated errors; see profile_fit.h.
#include "planner/perf/profile_fit.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "planner/perf/cross_validation.h"
#include "planner/perf/error_summary.h"
#include "planner/perf/robust_median.h"

namespace windlass::planner {
namespace {

constexpr std::size_t kFewestRows = 4;  // to fit and to validate
constexpr double kMaxExact = 1e9;

using Rows = std::vector<ProfileRow>;
using Model = std::shared_ptr<const IterationModel>;
using MakeModel = std::function<Result<Model>(const Rows&)>;

struct Usable {
  Rows rows;
  std::int64_t left_out = 0;
};

Result<Usable> usable_rows(std::span<const ProfileRow> all, const ProfileKey& key) {
  Usable usable;
  for (const ProfileRow& row : all) {
    if (ProfileKey{row.model, row.hardware, row.tensor_parallel} != key) continue;
    for (const auto& [column, size] :
         {std::pair("prompt_size", row.prompt_tokens), std::pair("batch_size", row.batch_size),
          std::pair("token_size", row.output_tokens), std::pair("prompt_iterations", row.prompt_iterations)}) {
      if (size == std::floor(size) && size <= kMaxExact) continue;
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("{}: must be a whole number up to {:.0f} (got {} for {})", column, kMaxExact, size, key.model)};
    }
    if (is_one_batch(row)) {
      usable.rows.push_back(row);
    } else {
      ++usable.left_out;
    }
  }
  if (usable.rows.size() >= kFewestRows) return usable;
  return Error{usable.rows.empty() && usable.left_out == 0 ? ErrorCode::kNotFound : ErrorCode::kInvalidArgument,
               fmt::format("usable rows for {} on {} with {} GPUs: must be at least {} (got {})", key.model, key.hardware,
                           key.tensor_parallel, kFewestRows, usable.rows.size())};
}

Batch prefill_of(const ProfileRow& row) { return prefill_batch(static_cast<int>(row.batch_size), row.prompt_tokens); }
Batch decode_of(const ProfileRow& row) { return decode_batch(static_cast<int>(row.batch_size), mean_context_tokens(row)); }
// What the model predicts for the row's prompts, with single prompts in all iterations but one, and the rest in that one: lines
// predict the same for every division into as many iterations.
double predicted_prompt_s(const IterationModel& model, const ProfileRow& row) {
  const double singles = row.prompt_iterations - 1;
  const double rest = model.iteration_s(prefill_batch(static_cast<int>(row.batch_size - singles), row.prompt_tokens));
  return singles > 0 ? rest + singles * model.iteration_s(prefill_batch(1, row.prompt_tokens)) : rest;
}
bool has_prefill(const ProfileRow& row) { return row.prompt_s > 0; }
bool has_decode(const ProfileRow& row) { return row.output_tokens > 1; }

// Each row predicted by the fold without it.
struct HeldOut {
  std::vector<double> prefill_s, decode_s;
};
Result<HeldOut> held_out(const Rows& rows, const std::vector<Split>& splits, const MakeModel& make) {
  HeldOut predicted{std::vector<double>(rows.size()), std::vector<double>(rows.size())};
  for (std::size_t fold = 0; fold < splits.size(); ++fold) {
    Rows train;
    for (const std::size_t i : splits[fold].train) train.push_back(rows[i]);
    const auto model = make(train);
    if (!model.ok()) return model.error().within(fmt::format("cross-validation, fold {} of {}", fold + 1, splits.size()));
    for (const std::size_t i : splits[fold].test) {
      predicted.prefill_s[i] = predicted_prompt_s(**model, rows[i]);
      predicted.decode_s[i] = (*model)->iteration_s(decode_of(rows[i]));
    }
  }
  return predicted;
}

// Error of one phase, from pairs of measured and predicted times.
std::optional<FitError> error_of(const char* part, const std::vector<double>& measured, const std::vector<double>& predicted) {
  if (measured.empty()) return std::nullopt;
  const ErrorSummary summary = error_summary(measured, predicted);
  return FitError{part,        static_cast<std::int64_t>(summary.samples), summary.mape, summary.median_ape, summary.max_ape,
                  std::nullopt};
}

std::vector<FitError> errors_of(const Rows& rows, const HeldOut& predicted) {
  std::vector<double> prefill, prefill_predicted, decode, decode_predicted;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (has_prefill(rows[i])) {
      prefill.push_back(rows[i].prompt_s);
      prefill_predicted.push_back(predicted.prefill_s[i]);
    }
    if (!has_decode(rows[i])) continue;
    decode.push_back(rows[i].token_s);
    decode_predicted.push_back(predicted.decode_s[i]);
  }
  std::vector<FitError> errors;
  if (auto error = error_of("prefill", prefill, prefill_predicted)) errors.push_back(*error);
  if (auto error = error_of("decode", decode, decode_predicted)) errors.push_back(*error);
  return errors;
}

Result<std::vector<FitError>> validated(const Rows& rows, const MakeModel& make, const ValidationOptions& options) {
  WINDLASS_ASSIGN_OR_RETURN(const HeldOut by_rows, held_out(rows, k_folds(rows.size(), options.folds, options.seed), make));
  std::vector<FitError> errors = errors_of(rows, by_rows);
  std::vector<std::string> shapes;
  for (const ProfileRow& row : rows) shapes.push_back(fmt::format("{} x {}", row.batch_size, row.prompt_tokens));
  const std::vector<Split> splits = leave_one_group_out(shapes);
  // With so few shapes that a fit without one is impossible, the error on unseen shapes is unknown.
  const auto by_shapes = splits.size() < 2 ? Result<HeldOut>(HeldOut{}) : held_out(rows, splits, make);
  if (splits.size() < 2 || !by_shapes.ok()) return errors;
  const std::vector<FitError> unseen = errors_of(rows, *by_shapes);
  for (std::size_t i = 0; i < errors.size(); ++i) errors[i].unseen_mape = unseen[i].mape;
  return errors;
}

MeasuredCells cells_of(const Rows& rows, ProfileReading reading) {
  struct Runs {
    std::vector<double> prompt_s, token_s, end_to_end_s;
  };
  std::map<std::array<double, 3>, Runs> by_shape;
  for (const ProfileRow& row : rows) {
    Runs& runs = by_shape[{row.prompt_tokens, row.batch_size, row.output_tokens}];
    runs.prompt_s.push_back(row.prompt_s);
    runs.token_s.push_back(row.token_s);
    runs.end_to_end_s.push_back(row.end_to_end_s);
  }
  MeasuredCells measured{reading, {}};
  for (const auto& [shape, runs] : by_shape) {
    MeasuredCell cell{shape[0],
                      shape[1],
                      shape[2],
                      median_of(runs.prompt_s),
                      median_of(runs.token_s),
                      median_of(runs.end_to_end_s),
                      static_cast<std::int64_t>(runs.prompt_s.size())};
    // Each run is one batch, but the medians of scattered runs may contradict each other.
    cell.end_to_end_s = std::min(cell.end_to_end_s, cell.prompt_s + cell.token_s * (cell.output_tokens - 1));
    measured.cells.push_back(cell);
  }
  return measured;
}

PerformanceProfile profile_of(const ProfileKey& key, const Usable& usable, const ValidationOptions& options) {
  PerformanceProfile profile;
  profile.model = key.model;
  profile.accelerator = key.hardware;
  profile.gpus_per_worker = key.tensor_parallel;
  profile.source.format = "SplitwiseCSV";
  profile.source.rows = static_cast<std::int64_t>(usable.rows.size());
  profile.source.left_out = usable.left_out;
  profile.folds = static_cast<int>(std::min(static_cast<std::size_t>(options.folds), usable.rows.size()));
  return profile;
}

}  // namespace

std::vector<IterationSample> samples_of(std::span<const ProfileRow> rows, const ProfileKey& key) {
  std::vector<IterationSample> samples;
  for (const ProfileRow& row : rows) {
    if (ProfileKey{row.model, row.hardware, row.tensor_parallel} != key || !is_one_batch(row)) continue;
    if (has_prefill(row)) samples.push_back({prefill_of(row), row.prompt_s, row.prompt_iterations});
    if (has_decode(row)) samples.push_back({decode_of(row), row.token_s});
  }
  return samples;
}

Result<PerformanceProfile> fit_lines(std::span<const ProfileRow> rows, const ProfileKey& key, LinearForm form,
                                     const ValidationOptions& options) {
  WINDLASS_ASSIGN_OR_RETURN(const Usable usable, usable_rows(rows, key));
  const auto fit = [&](const Rows& train) { return fit_linear_iteration(samples_of(train, key), form, 1); };
  WINDLASS_ASSIGN_OR_RETURN(const LinearIterationFit whole, fit(usable.rows));
  PerformanceProfile profile = profile_of(key, usable, options);
  profile.fit = FittedLines{form, whole.model.prefill(), whole.model.decode()};
  WINDLASS_ASSIGN_OR_RETURN(profile.errors, validated(
                                                usable.rows,
                                                [&](const Rows& train) -> Result<Model> {
                                                  WINDLASS_ASSIGN_OR_RETURN(const LinearIterationFit part, fit(train));
                                                  return Model(std::make_shared<LinearIterationModel>(part.model));
                                                },
                                                options));
  return profile;
}

Result<PerformanceProfile> fit_cells(std::span<const ProfileRow> rows, const ProfileKey& key, ProfileReading reading,
                                     const ValidationOptions& options) {
  WINDLASS_ASSIGN_OR_RETURN(Usable usable, usable_rows(rows, key));
  for (ProfileRow& row : usable.rows) row.prompt_iterations = 1;  // a table has the times as they were measured
  PerformanceProfile profile = profile_of(key, usable, options);
  profile.fit = cells_of(usable.rows, reading);
  WINDLASS_ASSIGN_OR_RETURN(profile.errors, validated(
                                                usable.rows,
                                                [&](const Rows& train) {
                                                  PerformanceProfile part = profile;
                                                  part.fit = cells_of(train, reading);
                                                  return iteration_model(part, ModelShape{}, AcceleratorSpec{},
                                                                         1);  // unused
                                                },
                                                options));
  return profile;
}

}  // namespace windlass::planner
