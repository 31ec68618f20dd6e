// The schedule of a load: phases with a rate each, the start times of requests, and their lengths. Pure: the same phases and
// seed give the same times and lengths.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "planner/base/result.h"
#include "planner/workload/context_limit.h"

namespace windlass::load {

struct Phase {
  double rate_per_s = 0;
  double seconds = 0;

  bool operator==(const Phase&) const = default;
};

enum class Arrivals { kPoisson, kConstant };

// "2/10s,12/30s,0.5/1m": requests per second / duration. A rate of 0 is a pause. Error: kInvalidArgument, names the phase.
[[nodiscard]] Result<std::vector<Phase>> parse_phases(std::string_view text);

// Start times in seconds from the start of the load, ascending. Open loop: independent of answers.
[[nodiscard]] std::vector<double> arrival_times_s(const std::vector<Phase>& phases, Arrivals arrivals, std::uint64_t seed);

[[nodiscard]] double total_s(const std::vector<Phase>& phases);

// Prompt and answer lengths of `count` requests, around `means` with this coefficient of variation (log-normal; 0: all alike).
// No request is longer than `context_tokens`, prompt and answer together; 0: no limit. Errors: those of
// LengthDistribution::around().
[[nodiscard]] Result<std::vector<workload::TokenPair>> request_lengths(const workload::TokenPair& means, double cv,
                                                                       int context_tokens, std::uint64_t seed,
                                                                       std::size_t count);

// The prompt of request `index`: its unique number, then `words` short words. A large vocabulary needs about one token per
// word, a small one more; the usage of the answers gives the exact number.
[[nodiscard]] std::string prompt_text(std::size_t index, int words, std::uint64_t seed);

}  // namespace windlass::load
