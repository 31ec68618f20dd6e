// When the load's requests start: phases of a rate each. Pure: the same phases and seed give the same times.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "planner/base/result.h"

namespace windlass::load {

struct Phase {
  double rate_per_s = 0;
  double seconds = 0;

  bool operator==(const Phase&) const = default;
};

enum class Arrivals { kPoisson, kConstant };

// "2/10s,12/30s,0.5/1m": requests per second / duration. Error kInvalidArgument names the phase. A rate of 0 is a silence.
[[nodiscard]] Result<std::vector<Phase>> parse_phases(std::string_view text);

// Start times in seconds from the beginning, rising. Open loop: no answer is waited for.
[[nodiscard]] std::vector<double> arrival_times_s(const std::vector<Phase>& phases, Arrivals arrivals, std::uint64_t seed);

[[nodiscard]] double total_s(const std::vector<Phase>& phases);

// The text of request `index`: unique by its number, then `words` short words. With a large vocabulary that is about as many
// tokens; a small one makes more of them. The answers' usage says how many they were.
[[nodiscard]] std::string prompt_text(std::size_t index, int words, std::uint64_t seed);

}  // namespace windlass::load
