// Validates arrival specs, computes their mean rates, and implements the simple processes.
#include "planner/workload/arrivals.h"

#include <algorithm>
#include <cmath>
#include <string>

#include <fmt/format.h>

#include "planner/base/rng.h"
#include "planner/workload/diurnal.h"
#include "planner/workload/gamma_gaps.h"
#include "planner/workload/markov_modulated.h"

namespace windlass::workload {
namespace {

constexpr double kMaxPerSecond = 1e9;  // event queues count nanoseconds
constexpr double kLongest_s = 1e12;

Error bad(const std::string& field, double found, const char* allowed) {
  return Error{ErrorCode::kInvalidArgument, fmt::format("arrivals: {}: must be {} (got {})", field, allowed, found)};
}

Result<void> check_rate(const std::string& field, double rate_per_s) {
  if (rate_per_s >= 1e-9 && rate_per_s <= kMaxPerSecond) return {};
  return bad(field, rate_per_s, "1e-9 to 1e9 per second");
}

Result<void> check_time(const std::string& field, double time_s) {
  if (time_s > 0 && time_s <= kLongest_s) return {};
  return bad(field, time_s, "above 0 s and at most 1e12 s");
}

Result<void> validate(const ConstantArrivals& spec) { return check_rate("rate", spec.rate_per_s); }

Result<void> validate(const PoissonArrivals& spec) { return check_rate("rate", spec.rate_per_s); }

Result<void> validate(const GammaArrivals& spec) {
  WINDLASS_RETURN_IF_ERROR(check_rate("rate", spec.rate_per_s));
  if (spec.cv == 0 || (spec.cv >= 1e-6 && spec.cv <= 1000)) return {};
  return bad("cv", spec.cv, "0, or 1e-6 to 1000");
}

Result<void> validate(const MarkovModulatedArrivals& spec) {
  if (spec.states.empty()) {
    return Error{ErrorCode::kInvalidArgument, "arrivals: states: must be at least one with a rate above 0 (got none)"};
  }
  double dwell_s = 0;
  for (std::size_t i = 0; i < spec.states.size(); ++i) {
    const auto& state = spec.states[i];
    if (state.rate_per_s != 0) WINDLASS_RETURN_IF_ERROR(check_rate(fmt::format("states[{}].rate", i), state.rate_per_s));
    WINDLASS_RETURN_IF_ERROR(check_time(fmt::format("states[{}].meanDwell", i), state.mean_dwell_s));
    dwell_s += state.mean_dwell_s;
  }
  // Otherwise a simulation would spend its time on changes of state.
  const double per_visit = mean_rate_per_s(spec) * dwell_s / static_cast<double>(spec.states.size());
  if (per_visit >= 1e-4) return {};
  return bad("states", per_visit, "at least 0.0001 arrivals per visit to a state, on average");
}

Result<void> validate(const DiurnalArrivals& spec) {
  WINDLASS_RETURN_IF_ERROR(check_rate("mean rate", spec.mean_rate_per_s));
  if (!(spec.peak_to_trough >= 1 && spec.peak_to_trough <= 1e6)) return bad("peakToTrough", spec.peak_to_trough, "1 to 1e6");
  WINDLASS_RETURN_IF_ERROR(check_time("period", spec.period_s));
  if (!(std::abs(spec.peak_at_s) <= kLongest_s)) return bad("peakAt", spec.peak_at_s, "-1e12 s to 1e12 s");
  if (spec.burst_rate_per_s == 0) return {};
  WINDLASS_RETURN_IF_ERROR(check_rate("bursts.rate", spec.burst_rate_per_s));
  WINDLASS_RETURN_IF_ERROR(check_time("bursts.duration", spec.burst_duration_s));
  if (!(spec.burst_requests >= 1 && spec.burst_requests <= 1e9)) return bad("bursts.requests", spec.burst_requests, "1 to 1e9");
  const double at_once = spec.burst_rate_per_s * spec.burst_duration_s;
  if (at_once <= 1e5) return {};
  return bad("bursts", at_once, "at most 100000 at the same time, on average");
}

Result<void> validate(const TraceArrivals& spec) {
  WINDLASS_RETURN_IF_ERROR(spec.scaling.validate());
  const auto& times_s = spec.times_s;
  for (std::size_t i = 0; i < times_s.size(); ++i) {
    const double before_s = i == 0 ? 0 : times_s[i - 1];
    if (std::isfinite(times_s[i]) && times_s[i] >= before_s) continue;
    return bad(fmt::format("times[{}]", i), times_s[i], "a finite time from 0 on, no earlier than the one before");
  }
  if (times_s.size() >= 2 && times_s.back() > times_s.front()) return {};
  return bad("times", static_cast<double>(times_s.size()), "at least two, with time between them");
}

double mean_of(const ConstantArrivals& spec) { return spec.rate_per_s; }
double mean_of(const PoissonArrivals& spec) { return spec.rate_per_s; }
double mean_of(const GammaArrivals& spec) { return spec.rate_per_s; }
double mean_of(const MarkovModulatedArrivals& spec) { return mean_rate_per_s(spec); }
double mean_of(const DiurnalArrivals& spec) { return spec.mean_rate_per_s + spec.burst_rate_per_s * spec.burst_requests; }
double mean_of(const TraceArrivals& spec) {
  const double per_s = static_cast<double>(spec.times_s.size()) / TraceReplay::period_s(spec.times_s);
  return per_s * spec.scaling.speed * spec.scaling.rate;
}

class ConstantProcess final : public ArrivalProcess {
 public:
  explicit ConstantProcess(double rate_per_s) : rate_per_s_(rate_per_s) {}

  [[nodiscard]] std::optional<double> next_s() override { return ++count_ / rate_per_s_; }

 private:
  double rate_per_s_;
  double count_ = 0;
};

class RenewalProcess final : public ArrivalProcess {
 public:
  RenewalProcess(const GammaGaps& gaps, std::uint64_t seed, std::string_view source)
      : gaps_(gaps), rng_(seed, std::string(source) + "/times") {}

  [[nodiscard]] std::optional<double> next_s() override { return now_s_ += gaps_.draw_s(rng_); }

 private:
  GammaGaps gaps_;
  Rng rng_;
  double now_s_ = 0;
};

class TraceProcess final : public ArrivalProcess {
 public:
  TraceProcess(const TraceArrivals& spec, std::uint64_t seed, std::string_view source)
      : replay_(spec.times_s, spec.scaling, seed, source) {}

  [[nodiscard]] std::optional<double> next_s() override {
    const auto arrival = replay_.next();
    if (!arrival) return std::nullopt;
    return arrival->time_s;
  }

 private:
  TraceReplay replay_;
};

using Made = std::unique_ptr<ArrivalProcess>;

Made make(const ConstantArrivals& spec, std::uint64_t, std::string_view) {
  return std::make_unique<ConstantProcess>(spec.rate_per_s);
}
Made make(const PoissonArrivals& spec, std::uint64_t seed, std::string_view source) {
  return std::make_unique<RenewalProcess>(GammaGaps(spec.rate_per_s, 1), seed, source);
}
Made make(const GammaArrivals& spec, std::uint64_t seed, std::string_view source) {
  return std::make_unique<RenewalProcess>(GammaGaps(spec.rate_per_s, spec.cv), seed, source);
}
Made make(const MarkovModulatedArrivals& spec, std::uint64_t seed, std::string_view source) {
  return std::make_unique<MarkovModulatedProcess>(spec, seed, source);
}
Made make(const DiurnalArrivals& spec, std::uint64_t seed, std::string_view source) {
  return std::make_unique<DiurnalProcess>(spec, seed, source);
}
Made make(const TraceArrivals& spec, std::uint64_t seed, std::string_view source) {
  return std::make_unique<TraceProcess>(spec, seed, source);
}

}  // namespace

Result<double> mean_rate_per_s(const ArrivalSpec& spec) {
  WINDLASS_RETURN_IF_ERROR(std::visit([](const auto& one) { return validate(one); }, spec));
  return std::visit([](const auto& one) { return mean_of(one); }, spec);
}

Result<std::unique_ptr<ArrivalProcess>> make_arrivals(const ArrivalSpec& spec, std::uint64_t seed, std::string_view source) {
  WINDLASS_RETURN_IF_ERROR(std::visit([](const auto& one) { return validate(one); }, spec));
  return std::visit([&](const auto& one) { return make(one, seed, source); }, spec);
}

}  // namespace windlass::workload
