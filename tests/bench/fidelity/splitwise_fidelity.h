// How well models that are fitted on part of Splitwise's measured rows predict the rest.
//
// Rows that are no single batch (planner/perf/profile_table.h) are for the caller to leave out. Pure.
#pragma once

#include <span>
#include <vector>

#include "planner/base/result.h"
#include "planner/perf/cross_validation.h"
#include "planner/perf/error_summary.h"
#include "planner/perf/profile_table.h"

namespace windlass::bench {

// What is fitted per model, hardware and tensor parallel degree, and how a row's token time is asked for.
enum class Candidate {
  kOwnValidation,  // ProfileReading::kBatchTokens; the token time read at prompt_size x batch_size, as Splitwise validated it
  kSimulator,  // ProfileReading::kBatchTokens; the token time read at one token per request, as Splitwise's simulator reads it
  kShape,      // ProfileReading::kBatchShape
  kAladdin,    // LinearForm::kAladdin, relative non-negative least squares
  kHuawei,     // LinearForm::kHuawei, likewise
};

struct PhaseErrors {
  planner::ErrorSummary prompt;
  planner::ErrorSummary token;
  double both_mape = 0;  // over prompt and token times together, as Splitwise counts
};

// Over the test sets of all splits together.
[[nodiscard]] Result<PhaseErrors> held_out_errors(std::span<const planner::ProfileRow> rows, Candidate candidate,
                                                  std::span<const planner::Split> splits);

// One fold per model, hardware, tensor parallel degree, prompt size and batch size.
[[nodiscard]] std::vector<planner::Split> leave_one_configuration_out(std::span<const planner::ProfileRow> rows);

// `count` splits, 80 % of the rows for training, with seeds 0, 1, ...
[[nodiscard]] std::vector<planner::Split> eighty_twenty(std::size_t rows, int count);

}  // namespace windlass::bench
