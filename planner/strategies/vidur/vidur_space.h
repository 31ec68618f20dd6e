// Lists the configurations that Vidur-Search compares: every kind with every engine of the space, each with its closed-form
// rate. Only for vidur*.cc.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/strategies/core/steady_rate.h"
#include "planner/strategies/vidur/vidur.h"

namespace windlass::search {

inline constexpr std::int64_t kVidurMomentsOf = 5000;  // requests whose lengths feed the closed forms
inline constexpr double kVidurGuess = 0.85;            // share of the steady rate at which capacities usually lie

// In the order of the space: kinds, batchings, chunks, batch sizes. Only settings that the problem's engine has; if it has none
// of the batchings, its own. Configurations that have no room, or whose cache cannot
// hold the longest request, have the reason in `passed_over`.
[[nodiscard]] std::vector<VidurPoint> vidur_points(const Problem& problem, const VidurSpace& space,
                                                   const LengthMoments& lengths);

// Configurations per round; a round's bounds come from earlier rounds.
inline constexpr std::size_t kVidurRound = 8;

}  // namespace windlass::search
