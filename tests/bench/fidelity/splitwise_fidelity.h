// How well models fitted on part of Splitwise's measured rows predict the rest.
//
// The caller leaves out rows that are not a single batch (planner/perf/profile_table.h). Pure.
#pragma once

#include <span>
#include <vector>

#include "planner/base/result.h"
#include "planner/perf/cross_validation.h"
#include "planner/perf/error_summary.h"
#include "planner/perf/profile_table.h"

namespace windlass::bench {

// What is fitted per model, hardware and tensor parallel degree, and how the token time of a row is read.
enum class Candidate {
  kOwnValidation,  // ProfileReading::kBatchTokens; token time read at prompt_size x batch_size, as in Splitwise's own
                   // validation
  kSimulator,      // ProfileReading::kBatchTokens; token time read at one token per request, as in Splitwise's simulator
  kShape,          // ProfileReading::kBatchShape
  kAladdin,        // LinearForm::kAladdin, relative non-negative least squares
  kHuawei,         // LinearForm::kHuawei, fitted in the same way
};

struct PhaseErrors {
  planner::ErrorSummary prompt;
  planner::ErrorSummary token;
  double both_mape = 0;  // over prompt and token times together, as in Splitwise
};

// Over the test sets of all splits together.
[[nodiscard]] Result<PhaseErrors> held_out_errors(std::span<const planner::ProfileRow> rows, Candidate candidate,
                                                  std::span<const planner::Split> splits);

// One fold per model, hardware, tensor parallel degree, prompt size and batch size.
[[nodiscard]] std::vector<planner::Split> leave_one_configuration_out(std::span<const planner::ProfileRow> rows);

// `count` splits, 80 % of the rows for training, with seeds 0, 1, ...
[[nodiscard]] std::vector<planner::Split> eighty_twenty(std::size_t rows, int count);

}  // namespace windlass::bench
