// See arrivals.h.
#include "planner/policy/arrivals.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "planner/policy/demand_view.h"
#include "planner/policy/tuning.h"
#include "planner/workload/forecast_best.h"

namespace windlass::planner {
namespace {

using workload::BestForecaster;

// Memory of minutes, not of an hour: forecasts reach one start-up time ahead.
workload::BestForecastOptions forecast_options() {
  workload::BestForecastOptions options;
  options.methods.max_gap_s = kLongestIntervalS;
  options.methods.ewma.memory_s = 120;
  options.methods.holt_winters.level_memory_s = 120;
  options.methods.holt_winters.trend_memory_s = 600;
  options.methods.change_point.memory_s = 300;
  return options;
}

// A state that cannot be resumed (another version's, or a broken file's) is replaced with a new one.
std::optional<BestForecaster> resume(const PolicyMemory& memory) {
  const workload::BestForecastOptions options = forecast_options();
  if (memory.forecast) {
    auto resumed = BestForecaster::resume(*memory.forecast, options);
    if (resumed.ok()) return std::move(resumed).value();
  }
  auto made = BestForecaster::make(options);
  if (!made.ok()) return std::nullopt;
  return std::move(made).value();
}

// Compares the count with the mean of the minute before it, in variances of a Poisson count.
void learn_burstiness(PolicyMemory& memory, const workload::RateSample& sample, double seconds) {
  const std::optional<ArrivalsLevel> level = arrivals_level(memory, sample.time_s);
  if (!level || level->window_s < kLevelWindowS / 2 || level->per_s <= 0) return;
  const double off_per_s = sample.rate_per_s - level->per_s;
  const double poisson = level->per_s * (1 / seconds + 1 / level->window_s);
  const double seen = std::min(off_per_s * off_per_s / poisson, kMaxBurstiness);
  // Right after a start, use a plain mean of what was seen until there is more than the memory holds; the first count has no
  // special weight.
  const double watched_s = std::clamp(sample.time_s - memory.history_since_s.value_or(sample.time_s), kLevelWindowS * 5, 1e9);
  const double gain = std::max(-std::expm1(-seconds / kBurstinessMemoryS), seconds / watched_s);
  const double excess = std::max(0.0, seen - 1);
  const double above = memory.burstiness - 1 + gain * excess;
  const double rate_per_s = std::max(level->per_s, sample.rate_per_s);
  memory.bursts_per_s += (excess > 0 ? gain * excess / above : 0) * (rate_per_s - memory.bursts_per_s);
  memory.burstiness = std::clamp(memory.burstiness + gain * (seen - memory.burstiness), 1.0, kMaxBurstiness);
}

}  // namespace

double start_time_s(const Service& service) {
  constexpr double kMinS = 1;
  constexpr double kMaxS = 3600;
  const bool measured =
      service.starts && service.starts->count > 0 && std::isfinite(service.starts->p90_s) && service.starts->p90_s > 0;
  if (!measured) return kAssumedStartS;
  const double seen_s = service.starts->p90_s;
  const bool enough = service.starts->count >= kStartsToBelieve;
  return std::clamp(enough ? seen_s : std::max(seen_s, std::min(kAssumedStartS, kFewStartsMargin * seen_s)), kMinS, kMaxS);
}

void count_arrivals(PolicyMemory& memory, const Service& service, double now_s) {
  const auto begin_anew = [&](const std::optional<Reading>& from) {
    memory.counted = from;
    memory.arrivals.clear();
  };
  const std::optional<Reading>& total = service.demand.arrivals_total;
  if (!is_usable(total, now_s)) {
    if (memory.counted && !(now_s - memory.counted->at_s < kLongestIntervalS)) begin_anew(std::nullopt);
    return;
  }
  if (!memory.counted || !(memory.counted->at_s <= total->at_s) || !(memory.counted->value <= total->value)) {
    if (memory.counted != total) begin_anew(total);
    return;
  }
  const double seconds = total->at_s - memory.counted->at_s;
  if (seconds < kCountIntervalS) return;
  if (seconds >= kLongestIntervalS) return begin_anew(total);

  const workload::RateSample sample{total->at_s, (total->value - memory.counted->value) / seconds};
  memory.counted = total;
  learn_burstiness(memory, sample, seconds);
  std::erase_if(memory.arrivals, [&](const auto& old) { return !(old.time_s > sample.time_s - kLevelWindowS); });
  memory.arrivals.push_back(sample);
  if (auto forecaster = resume(memory); forecaster && forecaster->observe(sample, start_time_s(service)).ok()) {
    memory.forecast = forecaster->state();
  }
}

std::optional<ArrivalsLevel> arrivals_level(const PolicyMemory& memory, double now_s) {
  if (memory.arrivals.empty() || !(now_s - memory.arrivals.back().time_s <= kSignalMaxAgeS)) return std::nullopt;
  ArrivalsLevel level;
  double requests = 0;
  double until_s = memory.arrivals.back().time_s;
  for (auto sample = memory.arrivals.rbegin(); sample != memory.arrivals.rend(); ++sample) {
    const auto before = std::next(sample);
    const double seconds = before == memory.arrivals.rend() ? kCountIntervalS : until_s - before->time_s;
    requests += sample->rate_per_s * seconds;
    level.window_s += seconds;
    until_s = sample->time_s - seconds;
  }
  level.per_s = requests / level.window_s;
  return level;
}

double burstiness_at(const PolicyMemory& memory, double rate_per_s) {
  const double above = std::max(0.0, memory.burstiness - 1);
  const double faded_per_s = kBurstsFade * memory.bursts_per_s;
  const double share = rate_per_s < faded_per_s ? rate_per_s / faded_per_s : 1;
  return 1 + above * share * share;
}

std::optional<DemandForecast> forecast_arrivals(const PolicyMemory& memory, const Service& service, double now_s) {
  const std::optional<ArrivalsLevel> level = arrivals_level(memory, now_s);
  if (!level || !memory.forecast) return std::nullopt;
  const auto forecaster = resume(memory);
  if (!forecaster) return std::nullopt;
  DemandForecast forecast;
  forecast.method = to_string(forecaster->best());
  forecast.horizon_s = start_time_s(service);
  const auto expected = forecaster->forecast(forecast.horizon_s);
  if (!expected.ok()) return std::nullopt;
  forecast.requests_per_s = expected->peak_per_s;
  const workload::ForecastError& error = forecaster->given_error();
  forecast.judged = static_cast<int>(std::min<std::int64_t>(error.forecasts, 1'000'000'000));
  const double came = std::max({level->per_s, expected->mean_per_s, 1e-9});
  forecast.relative_error = error.forecasts > 0 ? error.mean_absolute_per_s / came : 0;
  return forecast;
}

}  // namespace windlass::planner
