// What the orderings of papers (Vidur, DistServe, TetriInfer) share: requests by lengths, and the highest rate that a cluster
// sustains. Each ordering has a file of its own; `latency_fidelity orderings-vidur` and its siblings print them.
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

// These requests, all at time 0.
class Burst final : public workload::RequestSource {
 public:
  explicit Burst(std::vector<workload::TokenPair> lengths) : lengths_(std::move(lengths)) {}
  [[nodiscard]] std::optional<workload::Request> next() override;

 private:
  std::vector<workload::TokenPair> lengths_;
  std::size_t at_ = 0;
};

// Poisson arrivals over `duration_s` at this rate; the same lengths at every rate. REQUIRES: rate_per_s > 0.
[[nodiscard]] Result<sim::ServingResult> run_poisson(sim::ServingOptions options, const workload::LengthDistribution& lengths,
                                                     double rate_per_s, double duration_s, std::uint64_t seed);

// The highest rate, to 2 %, at which `holds`, which is taken to hold below it and not above; 0: not even at the lowest. With
// `only_above`, rates up to that are not told apart: 0 stands for all of them, at the price of one question.
[[nodiscard]] Result<double> highest_rate(const std::function<Result<bool>(double rate_per_s)>& holds, double lowest_per_s,
                                          double only_above = 0);

// ../shared/data's ShareGPT conversations of at most `context_tokens`, input and output together.
[[nodiscard]] Result<std::vector<workload::TokenPair>> sharegpt_lengths(const std::string& data, int context_tokens);

}  // namespace windlass::bench
