// The control loop where workers are not what their data sheet says: corners of `scripts/bench loop --simulated`, with the live
// policy and what it learns with. Seeds differ from the bench's.
#include <string>

#include <gtest/gtest.h>

#include "tests/bench/loop/closed_loop.h"

namespace windlass::bench {
namespace {

constexpr std::uint64_t kSeed = 40917;

// Given data sheets that are wrong by up to five each way in one phase or both, and the same with what a perfect model would
// have done; expects the objective from two cold starts after the load's start, no less than the same workers behind round
// robin less a point, and at most 1.15 times the worker-hours.
TEST(ClosedLoop, HoldsTheObjectiveWhateverTheDataSheetSays) {
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
