// Vidur-Search's configurations: every kind with every engine of the space, each with its closed form. For vidur*.cc alone.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/strategies/core/steady_rate.h"
#include "planner/strategies/vidur/vidur.h"

namespace windlass::search {

inline constexpr std::int64_t kVidurMomentsOf = 5000;  // requests whose lengths the closed forms see
inline constexpr double kVidurGuess = 0.85;            // of the steady rate: where capacities usually lie

// In the order of the space: kinds, batchings, chunks, batch sizes. Those without room, or whose cache does not hold the
// longest request, say so in `passed_over`.
[[nodiscard]] std::vector<VidurPoint> vidur_points(const Problem& problem, const VidurSpace& space,
                                                   const LengthMoments& lengths);

// Configurations that are looked at together: a round's bounds are those of the rounds before.
inline constexpr std::size_t kVidurRound = 8;

}  // namespace windlass::search
