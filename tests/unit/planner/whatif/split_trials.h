// Checks whether a deployment meets the objectives in every trial of a split search.
#pragma once

#include <algorithm>
#include <cstdint>

#include <gtest/gtest.h>

#include "planner/strategies/core/split_search.h"
#include "planner/strategies/core/trial.h"

namespace windlass::search {

inline bool holds_in_all(const Problem& problem, const Deployment& deployment, double requests_per_s,
                         const SplitOptions& options) {
  for (int seed = 0; seed < options.seeds; ++seed) {
    const auto requests = std::max(problem.requests_per_trial, static_cast<std::int64_t>(requests_per_s * options.trial_s));
    const auto run = try_out(problem, deployment, {requests_per_s, requests, problem.seed + static_cast<std::uint64_t>(seed)});
    EXPECT_TRUE(run.ok()) << run.error().message;
    if (!judge(problem, *run).holds) return false;
  }
  return true;
}

}  // namespace windlass::search
