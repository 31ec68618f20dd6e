// See aladdin_demand.h.
#include "planner/strategies/aladdin/aladdin_demand.h"

#include <algorithm>
#include <cmath>

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

}  // namespace windlass::search
