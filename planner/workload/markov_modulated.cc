// Generates arrivals whose rate follows a Markov chain; see markov_modulated.h.
#include "planner/workload/markov_modulated.h"

#include <limits>
#include <string>
#include <utility>

namespace windlass::workload {

double mean_rate_per_s(const MarkovModulatedArrivals& spec) {
  double dwell_s = 0, arrivals = 0;
  for (const auto& state : spec.states) {
    dwell_s += state.mean_dwell_s;
    arrivals += state.mean_dwell_s * state.rate_per_s;
  }
  return arrivals / dwell_s;
}

MarkovModulatedProcess::MarkovModulatedProcess(MarkovModulatedArrivals spec, std::uint64_t seed, std::string_view source)
    : spec_(std::move(spec)), times_(seed, std::string(source) + "/times"), states_(seed, std::string(source) + "/states") {
  double dwell_s = 0;
  for (const auto& state : spec_.states) dwell_s += state.mean_dwell_s;
  double at_s = states_.uniform(0, dwell_s);
  std::size_t first = 0;
  while (first + 1 < spec_.states.size() && at_s >= spec_.states[first].mean_dwell_s) {
    at_s -= spec_.states[first++].mean_dwell_s;
  }
  enter(first);
}

void MarkovModulatedProcess::enter(std::size_t state) {
  state_ = state;
  state_end_s_ = now_s_ + states_.exponential(1 / spec_.states[state].mean_dwell_s);
}

std::optional<double> MarkovModulatedProcess::next_s() {
  const auto count = static_cast<std::int64_t>(spec_.states.size());
  while (true) {
    const double rate_per_s = spec_.states[state_].rate_per_s;
    const double gap_s = rate_per_s > 0 ? times_.exponential(rate_per_s) : std::numeric_limits<double>::infinity();
    if (count == 1 || now_s_ + gap_s < state_end_s_) return now_s_ += gap_s;
    now_s_ = state_end_s_;
    // Draw one of the other states: indices from the current one on move up by one.
    auto other = static_cast<std::size_t>(states_.integer(0, count - 2));
    if (other >= state_) ++other;
    enter(other);
  }
}

}  // namespace windlass::workload
