// Shared by the reproduced orderings of papers (Vidur, DistServe, TetriInfer): requests with given lengths, and the highest
// rate that a cluster sustains. Each ordering has its own file; `latency_fidelity orderings-vidur` and its siblings print them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "planner/base/result.h"
#include "planner/sim/serving_simulation.h"
#include "planner/workload/lengths.h"
#include "planner/workload/request_source.h"

namespace windlass::bench {

// A source of these requests, all at time 0.
class Burst final : public workload::RequestSource {
 public:
  explicit Burst(std::vector<workload::TokenPair> lengths) : lengths_(std::move(lengths)) {}
  [[nodiscard]] std::optional<workload::Request> next() override;

 private:
  std::vector<workload::TokenPair> lengths_;
  std::size_t at_ = 0;
};

// Poisson arrivals over `duration_s` at this rate; lengths are the same at every rate. REQUIRES: rate_per_s > 0.
[[nodiscard]] Result<sim::ServingResult> run_poisson(sim::ServingOptions options, const workload::LengthDistribution& lengths,
                                                     double rate_per_s, double duration_s, std::uint64_t seed);

// The highest rate, to 2 %, at which `holds` is true, assuming it holds below that rate and not above; 0: not even at the
// lowest. With `only_above`, returns 0 for any rate up to it; that saves all but one evaluation.
[[nodiscard]] Result<double> highest_rate(const std::function<Result<bool>(double rate_per_s)>& holds, double lowest_per_s,
                                          double only_above = 0);

// ShareGPT conversations from ../shared/data with at most `context_tokens` of input and output together.
[[nodiscard]] Result<std::vector<workload::TokenPair>> sharegpt_lengths(const std::string& data, int context_tokens);

}  // namespace windlass::bench
