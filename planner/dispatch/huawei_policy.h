// HuaweiPolicy sends each request to the instance that keeps the largest workload smallest: Xiong et al. 2025 ("High-Throughput
// LLM inference on Heterogeneous Clusters", Huawei), Section 4, Eq. 5 to 8 and Alg. 2.
//
//   w = T e^(theta kvusage)   what request r adds at instance s: T of Eq. 6 (batch_times.h), and the share of the cache that is
//                             already promised there, which may exceed 1
//   s = argmin max(loads with w added at s)     and the load of s falls by the same w when r has ended
//
// If several instances leave the same maximum, the paper takes the first. This policy takes the one whose own load stays
// lowest, then the first. Because w > 0, that is the instance with the lowest load + w, and it still leaves the smallest
// maximum. Memory-based scheduling, a baseline of the paper, is the same with T = 1.
//
// A chosen instance may be full; then the request waits there. Instances whose whole cache is smaller than the request are
// skipped if there is a larger one. Outputs are predicted from served requests (output_history.h), unless the caller knows
// them.
//
// Details of a chain (ChainState::packing) are optional. Without latencies T = 1 / (service_rate x capacity), the time that a
// request takes of the whole chain. Without the cache size kvusage = requests / capacity. Requests not reported through
// RequestTracker count as if they had been placed one after the other, each with that T and 1 / capacity of kvusage. So the
// policy works with slots and rates alone, as join-the-least-workload.
//
// O(chains) per choice.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "planner/base/rng.h"
#include "planner/dispatch/batch_times.h"
#include "planner/dispatch/dispatch_policy.h"
#include "planner/dispatch/output_history.h"

namespace windlass::dispatch {

struct HuaweiRules {
  double theta = 2;          // Eq. 7; value from the paper's experiments
  bool memory_only = false;  // T = 1
  // Draws outputs from a normal distribution, whatever the request: the predictor in the paper's experiments. None: predict
  // from history.
  struct NormalOutputs {
    double mean_tokens = 0;
    double deviation_tokens = 0;

    bool operator==(const NormalOutputs&) const = default;
  };
  std::optional<NormalOutputs> drawn_outputs;
  double assumed_output_tokens = 0;  // used until history has OutputHistory::kEnough answers; 0: kUnknown
  PackingPhase phase = PackingPhase::kBoth;

  bool operator==(const HuaweiRules&) const = default;
};

class HuaweiPolicy final : public DispatchPolicy, public RequestTracker {
 public:
  // `rng` is used if outputs are drawn. REQUIRES: theta >= 0.
  explicit HuaweiPolicy(const HuaweiRules& rules, Rng rng) : rules_(rules), rng_(std::move(rng)) {}

  void reset(std::span<const ChainState> chains) override;
  void update(std::size_t index, const ChainState& state) override;
  [[nodiscard]] std::optional<std::size_t> choose() override { return choose_for({}, 0); }
  [[nodiscard]] std::optional<std::size_t> choose_for(const RequestLengths& request, double now_s) override;
  [[nodiscard]] RequestTracker* tracker() override { return this; }

  void placed(std::size_t chain, const RequestLengths& request) override;
  void first_token(std::uint64_t /*id*/, double /*now_s*/) override {}
  void iterated(std::size_t /*chain*/) override {}
  void tokens_made(std::uint64_t /*id*/, int /*count*/) override {}
  // The completion hook of Alg. 2.
  void ended(std::uint64_t id, int output_tokens) override;

  // instLoads and kvusage of a chain. REQUIRES: index < the number of chains.
  [[nodiscard]] double load(std::size_t index) const { return load_of(instances_[index]); }
  [[nodiscard]] double kv_usage(std::size_t index) const { return usage_of(instances_[index]); }
  // w of Eq. 7 if the request arrived there now.
  [[nodiscard]] double workload(std::size_t index, int input_tokens, int output_tokens) const;

  static constexpr int kUnknownInput = 512;  // assumed for first requests if the caller does not know it
  // Upper bound of theta kvusage, so that loads stay finite.
  static constexpr double kMaxExponent = 300;

 private:
  struct Instance {
    std::uint64_t key = 0;
    bool open = false;
    int capacity = 0;
    int in_flight = 0;
    double slots_s = 0;  // 1 / (service_rate x capacity)
    BatchTimes times;
    double kv_tokens = 0;  // 0: unknown
    double max_requests = 1;
    // Of the requests reported to the policy.
    double told_load = 0;
    double told_tokens = 0;
    int told = 0;
  };
  struct Placed {
    std::size_t instance = 0;
    double workload = 0;
    int input_tokens = 0;
    double tokens = 0;
  };

  static void set(Instance& instance, const ChainState& state);
  [[nodiscard]] int untold(const Instance& instance) const;
  [[nodiscard]] double growth_of(double usage) const;  // e^(theta usage)
  [[nodiscard]] double usage_of(const Instance& instance) const;
  [[nodiscard]] double untold_time_s(const Instance& instance) const { return rules_.memory_only ? 1 : instance.slots_s; }
  [[nodiscard]] double load_of(const Instance& instance) const;
  [[nodiscard]] double time_of(const Instance& instance, int input_tokens, int output_tokens) const;
  [[nodiscard]] int input_of(const RequestLengths& request) const;
  [[nodiscard]] int output_of(const RequestLengths& request, int input_tokens);

  HuaweiRules rules_;
  Rng rng_;
  std::vector<Instance> instances_;  // the chains, then closed chains that still hold requests
  std::size_t chains_ = 0;
  std::unordered_map<std::uint64_t, Placed> placed_;
  OutputHistory history_;
  std::optional<std::pair<std::uint64_t, int>> drawn_;  // for the request of the last choice
};

}  // namespace windlass::dispatch
