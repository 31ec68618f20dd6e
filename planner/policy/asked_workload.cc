// See asked_workload.h.
#include "planner/policy/asked_workload.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "planner/policy/tuning.h"

namespace windlass::planner {
namespace {

constexpr double kLeastAskedPerS = 0.1;  // an idle service asks nothing new

// The smallest power of kAskedStep that is not below the rate.
double on_grid(double rate_per_s) {
  return std::pow(kAskedStep, std::ceil(std::log(rate_per_s) / std::log(kAskedStep) - 1e-9));
}

// Whether a mean length differs from what was asked. `requests`: how many the mean was taken over.
bool has_shifted(double asked, double found, double requests) {
  if (!(asked > 0)) return true;
  if (std::abs(std::log(found / asked)) <= std::log(kAskedLengthStep)) return false;
  return std::abs(found - asked) > kShiftErrors * std::max(found, asked) / std::sqrt(std::max(1.0, requests));
}

void follow_rate(PolicyMemory& memory, const Service& service, const DemandView& view, double now_s) {
  if (now_s - *memory.history_since_s < kAskedAfterS) return;
  // Without what may be noise, or the maximum would grow by it.
  const double window_s = std::max(1.0, view.level_window_s);
  const double level =
      std::max(0.0, view.level_per_s - kRiseSigmas * std::sqrt(view.burstiness * std::max(0.0, view.level_per_s) / window_s));
  if (!memory.busiest && !(level > 0)) return;
  AssumedWorkload asked = memory.asked.value_or(service.workload);
  if (!memory.busiest) memory.busiest = Reading{std::max(level, asked.requests_per_s), now_s};
  const double faded = memory.busiest->value * std::exp(-std::max(0.0, now_s - memory.busiest->at_s) / kBusiestMemoryS);
  memory.busiest = Reading{std::max(level, faded), now_s};
  const double busiest = memory.busiest->value;
  if (busiest > 0 && (busiest > asked.requests_per_s || busiest * kAskedStep * kAskedStep < asked.requests_per_s)) {
    asked.requests_per_s = std::max(kLeastAskedPerS, on_grid(busiest));
  }
  memory.asked = asked;
}

void follow_lengths(PolicyMemory& memory, const Service& service, const DemandView& view, double now_s) {
  if (!view.lengths_observed || view.lengths.input_tokens < 1 || view.lengths.output_tokens < 1) return;
  AssumedWorkload asked = memory.asked.value_or(service.workload);
  const double requests = service.demand.measured_requests;
  Lengths found = view.lengths;
  // The first requests to finish are the short ones.
  if (now_s - *memory.history_since_s < kAskedAfterS) {
    found.input_tokens = std::max(found.input_tokens, asked.input_tokens);
    found.output_tokens = std::max(found.output_tokens, asked.output_tokens);
  }
  if (!has_shifted(asked.input_tokens, found.input_tokens, requests) &&
      !has_shifted(asked.output_tokens, found.output_tokens, requests)) {
    return;
  }
  asked.input_tokens = found.input_tokens;
  asked.output_tokens = found.output_tokens;
  memory.asked = asked;
}

}  // namespace

void follow_workload(PolicyMemory& memory, const Service& service, const DemandView& view, double now_s) {
  if (memory.shift && now_s - memory.shift->at_s > kShiftShownS) memory.shift.reset();
  if (!view.complete || !memory.history_since_s) return;
  // Until the rate is followed, it is the spec's, which may change.
  if (memory.asked && !memory.busiest) memory.asked->requests_per_s = service.workload.requests_per_s;
  const AssumedWorkload before = memory.asked.value_or(service.workload);
  follow_rate(memory, service, view, now_s);
  follow_lengths(memory, service, view, now_s);
  const AssumedWorkload now = memory.asked.value_or(service.workload);
  if (now == before) return;
  // Means over minutes shift in several steps: the first one says from where. Without an assumed rate, the first one is none.
  AssumedWorkload from = memory.shift ? memory.shift->from : before;
  if (!(from.requests_per_s > 0)) from.requests_per_s = now.requests_per_s;
  memory.shift = from == now ? std::nullopt : std::optional(WorkloadShift{now_s, from, now});
}

AssumedWorkload workload_to_ask(const Service& service) { return service.memory.asked.value_or(service.workload); }

std::string text_of(const WorkloadShift& shift) {
  std::string text;
  const auto add = [&](const char* what, double from, double to, const char* unit) {
    if (from == to) return;
    text += fmt::format("{}{} from {:.4g} to {:.4g} {}", text.empty() ? "" : ", ", what, from, to, unit);
  };
  add("prompts went", shift.from.input_tokens, shift.to.input_tokens, "tokens");
  add("answers went", shift.from.output_tokens, shift.to.output_tokens, "tokens");
  add("the rate went", shift.from.requests_per_s, shift.to.requests_per_s, "requests/s");
  return text;
}

}  // namespace windlass::planner
