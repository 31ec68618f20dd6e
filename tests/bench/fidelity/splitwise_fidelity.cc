// Implements splitwise_fidelity.h.
#include "tests/bench/fidelity/splitwise_fidelity.h"

#include <algorithm>
#include <memory>
#include <string>

#include <fmt/format.h>

#include "planner/perf/linear_iteration_model.h"

namespace windlass::bench {
namespace {

using planner::Batch;
using planner::ProfileKey;
using planner::ProfileRow;

Batch prompt_batch(const ProfileRow& row) {
  return planner::prefill_batch(static_cast<int>(row.batch_size), row.prompt_tokens);
}
Batch token_batch(const ProfileRow& row, Candidate candidate) {
  if (candidate == Candidate::kOwnValidation) {
    return planner::decode_batch(static_cast<int>(row.prompt_tokens * row.batch_size), row.prompt_tokens);
  }
  return planner::decode_batch(static_cast<int>(row.batch_size), planner::mean_context_tokens(row));
}

Result<std::unique_ptr<planner::IterationModel>> fit(std::span<const ProfileRow> rows, const ProfileKey& key,
                                                     Candidate candidate) {
  if (candidate == Candidate::kAladdin || candidate == Candidate::kHuawei) {
    std::vector<planner::IterationSample> samples;
    for (const ProfileRow& row : rows) {
      if (ProfileKey{row.model, row.hardware, row.tensor_parallel} != key) continue;
      samples.push_back({prompt_batch(row), row.prompt_s});
      samples.push_back({token_batch(row, candidate), row.token_s});
    }
    const auto form = candidate == Candidate::kAladdin ? planner::LinearForm::kAladdin : planner::LinearForm::kHuawei;
    auto fitted = planner::fit_linear_iteration(samples, form, 0);
    if (!fitted.ok()) return fitted.error();
    return std::unique_ptr<planner::IterationModel>(std::make_unique<planner::LinearIterationModel>(fitted->model));
  }
  const auto reading =
      candidate == Candidate::kShape ? planner::ProfileReading::kBatchShape : planner::ProfileReading::kBatchTokens;
  WINDLASS_ASSIGN_OR_RETURN(planner::ProfileTable table, planner::ProfileTable::make(rows, key, reading, 0));
  return std::unique_ptr<planner::IterationModel>(std::make_unique<planner::ProfileTable>(std::move(table)));
}

}  // namespace

Result<PhaseErrors> held_out_errors(std::span<const ProfileRow> rows, Candidate candidate,
                                    std::span<const planner::Split> splits) {
  const std::vector<ProfileKey> keys = planner::keys_of(rows);
  std::vector<double> prompt_actual, prompt_predicted, token_actual, token_predicted;
  for (const planner::Split& split : splits) {
    std::vector<ProfileRow> train;
    for (const std::size_t index : split.train) train.push_back(rows[index]);
    std::vector<std::unique_ptr<planner::IterationModel>> models(keys.size());
    for (const std::size_t index : split.test) {
      const ProfileRow& row = rows[index];
      const auto key = std::find(keys.begin(), keys.end(), ProfileKey{row.model, row.hardware, row.tensor_parallel});
      auto& model = models[static_cast<std::size_t>(key - keys.begin())];
      if (model == nullptr) {
        WINDLASS_ASSIGN_OR_RETURN(model, fit(train, *key, candidate));
      }
      prompt_actual.push_back(row.prompt_s);
      prompt_predicted.push_back(model->iteration_s(prompt_batch(row)));
      token_actual.push_back(row.token_s);
      token_predicted.push_back(model->iteration_s(token_batch(row, candidate)));
    }
  }
  const planner::ErrorSummary prompt = planner::error_summary(prompt_actual, prompt_predicted);
  const planner::ErrorSummary token = planner::error_summary(token_actual, token_predicted);
  return PhaseErrors{prompt, token, (prompt.mape + token.mape) / 2};
}

std::vector<planner::Split> leave_one_configuration_out(std::span<const ProfileRow> rows) {
  std::vector<std::string> groups;
  for (const ProfileRow& row : rows) {
    groups.push_back(
        fmt::format("{}/{}/{}/{}/{}", row.model, row.hardware, row.tensor_parallel, row.prompt_tokens, row.batch_size));
  }
  return planner::leave_one_group_out(groups);
}

std::vector<planner::Split> eighty_twenty(std::size_t rows, int count) {
  std::vector<planner::Split> splits;
  for (int seed = 0; seed < count; ++seed) splits.push_back(planner::random_split(rows, 0.8, static_cast<std::uint64_t>(seed)));
  return splits;
}

}  // namespace windlass::bench
