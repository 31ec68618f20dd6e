// See aladdin_demand.h.
#include "planner/strategies/aladdin/aladdin_demand.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <variant>

#include <fmt/format.h>

namespace windlass::search {
namespace {

struct Moments {
  double mean = 0, deviation = 0;
};

template <class Of>
Moments moments(std::span<const std::pair<int, int>> lengths, const Of& of) {
  const auto count = static_cast<double>(lengths.size());
  Moments found;
  for (const auto& pair : lengths) found.mean += of(pair) / count;
  double squares = 0;
  for (const auto& pair : lengths) squares += (of(pair) - found.mean) * (of(pair) - found.mean);
  found.deviation = std::sqrt(squares / (count - 1));
  return found;
}

std::int64_t changes_of(const workload::Forecaster& detector) {
  return std::get<workload::ChangePointState>(detector.state().method).changes;
}

// Updates the detector; returns whether it found a change.
Result<bool> feed(workload::Forecaster& detector, double time_s, double value) {
  const std::int64_t before = changes_of(detector);
  WINDLASS_RETURN_IF_ERROR(detector.observe({time_s, value}));
  return changes_of(detector) > before;
}

}  // namespace

LengthSpread spread_of(std::span<const std::pair<int, int>> lengths) {
  const Moments inputs = moments(lengths, [](const auto& pair) { return static_cast<double>(pair.first); });
  const Moments outputs = moments(lengths, [](const auto& pair) { return static_cast<double>(pair.second); });
  return {inputs.mean, inputs.deviation, outputs.mean, outputs.deviation};
}

double relative_error_of_mean(const LengthSpread& spread, double requests) {
  const double variation = std::max(spread.input_deviation / spread.input_mean, spread.output_deviation / spread.output_mean);
  return variation / std::sqrt(requests);
}

std::int64_t least_requests(const LengthSpread& spread, double error) {
  const double at_one = relative_error_of_mean(spread, 1) / error;
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(std::ceil(at_one * at_one * (1 - 1e-12))));
}

std::optional<std::int64_t> WorkerLine::workers(double requests_per_s) const {
  if (!(requests_per_s > valid_above_per_s)) return std::nullopt;
  const double workers = std::ceil(workers_per_rate * requests_per_s + constant - 1e-9);
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(workers));
}

Result<WorkerLine> fit_worker_line(std::span<const WorkersAtRate> points, const LengthSpread& spread, double heartbeat_s,
                                   double error) {
  const auto wrong = [](const std::string& what) { return Error{ErrorCode::kInvalidArgument, "worker line: " + what}; };
  if (!(heartbeat_s > 0)) return wrong(fmt::format("heartbeat: must be above 0 (got {} s)", heartbeat_s));
  if (!(error > 0)) return wrong(fmt::format("error of the mean: must be above 0 (got {})", error));
  double rates = 0, workers = 0;
  for (const WorkersAtRate& point : points) {
    if (!(point.requests_per_s > 0)) {
      return wrong(fmt::format("requests per second: must be above 0 (got {})", point.requests_per_s));
    }
    rates += point.requests_per_s / static_cast<double>(points.size());
    workers += point.workers / static_cast<double>(points.size());
  }
  double products = 0, squares = 0;
  for (const WorkersAtRate& point : points) {
    products += (point.requests_per_s - rates) * (point.workers - workers);
    squares += (point.requests_per_s - rates) * (point.requests_per_s - rates);
  }
  if (!(squares > 0))
    return wrong(fmt::format("must have points of at least two rates (got {} points of one rate)", points.size()));
  WorkerLine line;
  line.workers_per_rate = products / squares;
  line.constant = workers - line.workers_per_rate * rates;
  line.valid_above_per_s = static_cast<double>(least_requests(spread, error)) / heartbeat_s;
  return line;
}

Result<DemandWatch> DemandWatch::make(const workload::ForecastOptions& options) {
  WINDLASS_ASSIGN_OR_RETURN(const auto detector, workload::Forecaster::make(workload::ForecastMethod::kChangePoint, options));
  return DemandWatch(detector);
}

Result<bool> DemandWatch::observe(const Heartbeat& heartbeat) {
  const auto in_order = [&](double value) { return std::isfinite(value) && value >= 0; };
  if (!in_order(heartbeat.requests) || !in_order(heartbeat.input_tokens) || !in_order(heartbeat.output_tokens)) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("heartbeat: must have numbers of at least 0 (got {} requests of {} and {} tokens)",
                             heartbeat.requests, heartbeat.input_tokens, heartbeat.output_tokens)};
  }
  if (last_s_ && !(heartbeat.time_s > *last_s_)) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("heartbeat: times must increase (got {} s after {} s)", heartbeat.time_s, *last_s_)};
  }
  const auto before_s = std::exchange(last_s_, heartbeat.time_s);
  if (!before_s) return false;  // a rate needs the time since the previous heartbeat
  WINDLASS_ASSIGN_OR_RETURN(bool changed, feed(rate_, heartbeat.time_s, heartbeat.requests / (heartbeat.time_s - *before_s)));
  if (heartbeat.requests > 0) {
    WINDLASS_ASSIGN_OR_RETURN(const bool inputs, feed(inputs_, heartbeat.time_s, heartbeat.input_tokens / heartbeat.requests));
    WINDLASS_ASSIGN_OR_RETURN(const bool outputs,
                              feed(outputs_, heartbeat.time_s, heartbeat.output_tokens / heartbeat.requests));
    changed = changed || inputs || outputs;
  }
  return changed;
}

std::optional<double> DemandWatch::requests_per_s() const {
  const auto forecast = rate_.forecast(1);
  if (!forecast.ok()) return std::nullopt;
  return forecast->mean_per_s;
}

}  // namespace windlass::search
