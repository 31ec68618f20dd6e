// Runs `windlass chain` in the test's process and keeps its output. Has instances that are small enough to check by hand.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/paths.h"
#include "tests/unit/controller/cli/example_objects.h"
#include "tests/unit/controller/cli/run.h"

namespace windlass::cli {

inline const std::string kBloom = source_path("/examples/chains/bloom-176b.yaml");

inline Outcome run_chain(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "chain");
  return run(arguments);
}

// Runs each command line and expects exit code 2, no output, and one line on stderr that contains the given text.
inline void expect_mistakes(const std::vector<std::pair<std::vector<std::string>, std::string>>& table) {
  for (const auto& [arguments, expected] : table) {
    const auto outcome = run_chain(arguments);
    const std::string line = testing::PrintToString(arguments);
    EXPECT_EQ(outcome.code, kUsage) << line;
    EXPECT_EQ(outcome.out, "") << line;
    EXPECT_THAT(outcome.err, testing::HasSubstr(expected)) << line;
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
  }
}

// Fig. 2 of Sun, He, Hou 2026, with epsilon = 0.01. For c = 1 GBP-CR makes j1 > j2 and j3 > j4 > j5, and GCA adds j1 > j4 > j5,
// each with capacity 5.
inline constexpr const char* kFigure2 = R"(model: {blocks: 3, blockSizeGB: 1, cacheSizeGB: 0.1}
arrivalRate: 1
maxLoad: 0.7
servers:
- {name: j1, memoryGB: 2, communicationSeconds: 1, blockSeconds: 0.01}
- {name: j2, memoryGB: 3, communicationSeconds: 2, blockSeconds: 0.02}
- {name: j3, memoryGB: 2, communicationSeconds: 1, blockSeconds: 0.03}
- {name: j4, memoryGB: 2, communicationSeconds: 1, blockSeconds: 0.04}
- {name: j5, memoryGB: 2, communicationSeconds: 1, blockSeconds: 0.05}
)";

}  // namespace windlass::cli
