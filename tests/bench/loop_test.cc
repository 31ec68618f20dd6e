// The control loop with workers that differ from their data sheet: extreme cases of `scripts/bench loop --simulated`, with the
// production policy and its learning. Seeds differ from the bench's.
#include <string>

#include <gtest/gtest.h>

#include "tests/bench/loop/closed_loop.h"

namespace windlass::bench {
namespace {

constexpr std::uint64_t kSeed = 40917;

// Given data sheets that are wrong by up to a factor of five in one phase or both, compared with a perfect model; expects the
// objective from two cold starts after the load's start, at most one point less attainment than the same workers behind round
// robin, and at most 1.15 times the worker-hours.
TEST(ClosedLoop, MeetsTheObjectiveWithAWrongDataSheet) {
  for (const LoopCase& one : loop_cases()) {
    const bool corner = (one.prefill == 0.2 || one.prefill == 4) && (one.decode == 0.2 || one.decode == 4);
    const bool other = one.name.ends_with("x 4") || one.name.ends_with("x 0.25");
    if (!corner && !other) continue;
    const LoopRun run = run_loop(one, kSeed, true);
    LoopCase perfect = one;
    perfect.profiled = perfect.measures_itself = true;
    EXPECT_GE(run.attainment, 0.95) << one.name;
    EXPECT_GE(run.attainment, run.unmanaged - 0.01) << one.name;
    EXPECT_LE(run.worker_hours, 1.15 * run_loop(perfect, kSeed).worker_hours) << one.name;
  }
}

}  // namespace
}  // namespace windlass::bench
