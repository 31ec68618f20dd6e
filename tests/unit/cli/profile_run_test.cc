// The measurements behind `windlass profile`, on a worker that is a formula: rows, what is left out, and the fit that follows.
#include "controller/cli/profile_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "controller/cli/fitted_profile.h"

namespace windlass::cli {
namespace {

using ::testing::HasSubstr;

constexpr int kTokens = 11;

// A worker whose prompts take 2 ms + 0.1 ms a token, one after another, and whose iterations take 5 ms + 0.5 ms a request.
load::RequestResult answered(std::size_t index, std::size_t batch, int prompt_tokens) {
  load::RequestResult request;
  request.index = index;
  request.outcome = load::Outcome::kCompleted;
  request.prompt_tokens = prompt_tokens;
  request.tokens = kTokens;
  request.ttft_s = 2e-3 + 1e-4 * prompt_tokens * static_cast<double>(index + 1);
  request.tpot_s = 5e-3 + 5e-4 * static_cast<double>(batch);
  request.finished_s = *request.ttft_s + (kTokens - 1) * *request.tpot_s;
  return request;
}

Result<load::LoadResult> formula(const load::LoadOptions& options) {
  const auto count = load::arrival_times_s(options.phases, options.arrivals, options.seed).size();
  load::LoadResult result;
  for (std::size_t i = 0; i < count; ++i) result.requests.push_back(answered(i, count, options.prompt_tokens));
  return result;
}

const planner::ProfileKey kKey{"tiny", "cpu", 1};

ProfileGrid grid() {
  ProfileGrid grid;
  grid.prompts = {10, 40, 160};
  grid.batches = {1, 2, 7};
  grid.max_tokens = kTokens;
  grid.repeats = 2;
  return grid;
}

load::LoadOptions target() {
  load::LoadOptions options;
  options.max_tokens = kTokens;
  return options;
}

// Given that worker; every cell is a row for each repeat with the batch's last first token and its time per token, and the
// lines that are fitted are those of the formula.
TEST(ProfileRun, RowsAndTheirFit) {
  std::size_t told = 0;
  const auto profiled = profile_grid(target(), kKey, grid(), formula, [&](const ProfileProgress& progress) {
    EXPECT_EQ(progress.done, told++);
    EXPECT_EQ(progress.cells, 9U);
  });
  ASSERT_TRUE(profiled.ok()) << profiled.error().message;
  ASSERT_EQ(profiled->rows.size(), 18U);
  const planner::ProfileRow& last = profiled->rows.back();
  EXPECT_EQ(last.batch_size, 7);
  EXPECT_DOUBLE_EQ(last.prompt_tokens, 160);
  EXPECT_DOUBLE_EQ(last.prompt_s, 2e-3 + 1e-4 * 160 * 7);
  EXPECT_DOUBLE_EQ(last.token_s, 5e-3 + 5e-4 * 7);
  const auto fitted = fit_rows(profiled->rows, kKey, {.form = "aladdin", .validation = {.folds = 3}});
  ASSERT_TRUE(fitted.ok()) << fitted.error().message;
  for (const planner::FitError& error : fitted->errors) EXPECT_LT(error.mape, 0.01) << error.part;
  const auto read = planner::parse_profile_csv(profile_csv(profiled->rows));
  ASSERT_TRUE(read.ok()) << read.error().message;
  ASSERT_EQ(read->size(), profiled->rows.size());
  EXPECT_NEAR(read->back().prompt_s, last.prompt_s, 1e-8);
}

// Given a worker that refuses batches above two; those are left out with a note, and the others measured. Given one that
// answers nothing at first, or loses a request: an error that says which.
TEST(ProfileRun, WhatCannotBeMeasured) {
  const auto full = [](const load::LoadOptions& options) {
    auto result = formula(options);
    if (result->requests.size() > 2) {
      result->requests[2].outcome = load::Outcome::kRejected;
      result->requests[2].problem = "503 this worker is full";
    }
    return result;
  };
  const auto profiled = profile_grid(target(), kKey, grid(), full, [](const ProfileProgress&) {});
  ASSERT_TRUE(profiled.ok());
  EXPECT_EQ(profiled->rows.size(), 12U);
  ASSERT_EQ(profiled->notes.size(), 3U);
  EXPECT_EQ(profiled->notes[0], "7 prompts of 10 words left out: refused: 503 this worker is full");

  int runs = 0;
  const auto lost = [&](const load::LoadOptions& options) {
    auto result = formula(options);
    if (++runs == 3) result->requests[0].outcome = load::Outcome::kLost;
    return result;
  };
  EXPECT_THAT(profile_grid(target(), kKey, grid(), lost, [](const ProfileProgress&) {}).error().message,
              HasSubstr("1 prompts of 10 words: request 0"));
  const auto brief = [](const load::LoadOptions& options) {
    auto result = formula(options);
    result->requests[0].tokens = 1;
    return result;
  };
  EXPECT_THAT(profile_grid(target(), kKey, grid(), brief, [](const ProfileProgress&) {}).error().message,
              HasSubstr("the first batch: an answer ended after 1 tokens"));
}

}  // namespace
}  // namespace windlass::cli
