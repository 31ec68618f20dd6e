// See asked_workload.h.
#include "planner/policy/asked_workload.h"

#include <algorithm>
#include <cmath>

#include "planner/policy/tuning.h"

namespace windlass::planner {
namespace {

constexpr double kLeastAskedPerS = 0.1;  // an idle service asks nothing new

// The smallest power of kAskedStep that is not below the rate.
double on_grid(double rate_per_s) {
  return std::pow(kAskedStep, std::ceil(std::log(rate_per_s) / std::log(kAskedStep) - 1e-9));
}

bool moved(double from, double to) { return !(from > 0) || std::abs(std::log(to / from)) > std::log(kAskedLengthStep); }

}  // namespace

void follow_workload(PolicyMemory& memory, const Service& service, const DemandView& view, double now_s) {
  if (!view.complete || !memory.history_since_s || now_s - *memory.history_since_s < kAskedAfterS) return;
  // Without what may be noise, or the maximum would grow by it.
  const double window_s = std::max(1.0, view.level_window_s);
  const double level =
      std::max(0.0, view.level_per_s - kRiseSigmas * std::sqrt(view.burstiness * std::max(0.0, view.level_per_s) / window_s));
  if (!memory.asked && !(level > 0)) return;
  if (!memory.asked) memory.asked = service.workload;
  if (!memory.busiest) memory.busiest = Reading{std::max(level, memory.asked->requests_per_s), now_s};
  const double faded = memory.busiest->value * std::exp(-std::max(0.0, now_s - memory.busiest->at_s) / kBusiestMemoryS);
  memory.busiest = Reading{std::max(level, faded), now_s};
  AssumedWorkload& asked = *memory.asked;
  const double busiest = memory.busiest->value;
  if (busiest > 0 && (busiest > asked.requests_per_s || busiest * kAskedStep * kAskedStep < asked.requests_per_s)) {
    asked.requests_per_s = std::max(kLeastAskedPerS, on_grid(busiest));
  }
  if (view.lengths_observed && view.lengths.input_tokens >= 1 && view.lengths.output_tokens >= 1 &&
      (moved(asked.input_tokens, view.lengths.input_tokens) || moved(asked.output_tokens, view.lengths.output_tokens))) {
    asked.input_tokens = view.lengths.input_tokens;
    asked.output_tokens = view.lengths.output_tokens;
  }
}

AssumedWorkload workload_to_ask(const Service& service) { return service.memory.asked.value_or(service.workload); }

}  // namespace windlass::planner
