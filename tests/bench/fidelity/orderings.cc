// Implements orderings.h.
#include "tests/bench/fidelity/orderings.h"

#include <algorithm>
#include <cmath>

#include "planner/workload/arrivals.h"
#include "planner/workload/composed_source.h"
#include "tests/bench/fidelity/operator_data.h"

namespace windlass::bench {

std::optional<workload::Request> Burst::next() {
  if (at_ == lengths_.size()) return std::nullopt;
  const workload::TokenPair& pair = lengths_[at_++];
  workload::Request request;
  request.input_tokens = pair.input_tokens;
  request.output_tokens = pair.output_tokens;
  return request;
}

Result<sim::ServingResult> run_poisson(sim::ServingOptions options, const workload::LengthDistribution& lengths,
                                       double rate_per_s, double duration_s, std::uint64_t seed) {
  options.seed = seed;
  options.arrivals_end_s = duration_s;
  WINDLASS_ASSIGN_OR_RETURN(auto arrivals, workload::make_arrivals(workload::PoissonArrivals{rate_per_s}, seed, "ordering"));
  workload::ComposedSource source(std::move(arrivals), lengths, seed, "ordering");
  return sim::simulate_serving(source, options);
}

Result<double> highest_rate(const std::function<Result<bool>(double rate_per_s)>& holds, double lowest_per_s,
                            double only_above) {
  constexpr double kPrecision = 1.02;
  double low = std::max(lowest_per_s, only_above);
  WINDLASS_ASSIGN_OR_RETURN(const bool at_all, holds(low));
  if (!at_all) return 0.0;
  double high = 2 * low;
  for (;;) {
    WINDLASS_ASSIGN_OR_RETURN(const bool held, holds(high));
    if (!held) break;
    low = high;
    high *= 2;
  }
  while (high / low > kPrecision) {
    const double middle = std::sqrt(low * high);
    WINDLASS_ASSIGN_OR_RETURN(const bool held, holds(middle));
    (held ? low : high) = middle;
  }
  return low;
}

Result<std::vector<workload::TokenPair>> sharegpt_lengths(const std::string& data, int context_tokens) {
  WINDLASS_ASSIGN_OR_RETURN(const std::string text, read_text(data + "/traces/sharegpt_lengths.csv"));
  WINDLASS_ASSIGN_OR_RETURN(std::vector<workload::TokenPair> pairs, workload::parse_length_file(text));
  std::erase_if(pairs,
                [&](const workload::TokenPair& pair) { return pair.input_tokens + pair.output_tokens > context_tokens; });
  return pairs;
}

}  // namespace windlass::bench
