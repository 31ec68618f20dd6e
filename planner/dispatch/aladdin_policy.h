// AladdinPolicy sends each request to the fullest worker on which all constraints still hold: Nie, Fonseca, Liu 2024, Alg. 1
// (best_fit.h). Output lengths are predicted from served requests, and predicted again when exceeded (output_history.h). Where
// predictions were wrong, new requests even out the errors between workers: Alg. 2 (rebalance.h).
//
// A request that fits nowhere waits in the central queue; an empty worker takes any request. If the latency of a chain is
// unknown (ChainState::packing), only its slots limit it, and chains are filled one after the other.
//
// It learns about requests through RequestTracker; requests not reported there count only for the slots they take.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "planner/dispatch/best_fit.h"
#include "planner/dispatch/dispatch_policy.h"
#include "planner/dispatch/output_history.h"

namespace windlass::dispatch {

class AladdinPolicy final : public DispatchPolicy, public RequestTracker {
 public:
  explicit AladdinPolicy(const PackingRules& rules) : workers_(rules) {}

  void reset(std::span<const ChainState> chains) override;
  void update(std::size_t index, const ChainState& state) override;
  [[nodiscard]] std::optional<std::size_t> choose() override { return choose_for({}, 0); }
  [[nodiscard]] std::optional<std::size_t> choose_for(const RequestLengths& request, double now_s) override;
  [[nodiscard]] RequestTracker* tracker() override { return this; }

  void placed(std::size_t chain, const RequestLengths& request) override;
  void first_token(std::uint64_t id, double now_s) override;
  void iterated(std::size_t chain) override;
  void tokens_made(std::uint64_t id, int count) override;
  void ended(std::uint64_t id, int output_tokens) override;
  [[nodiscard]] std::int64_t rebalanced() const override { return rebalanced_; }

  [[nodiscard]] const BestFit& workers() const { return workers_; }
  [[nodiscard]] const OutputHistory& history() const { return history_; }

 private:
  struct Placed {
    std::size_t worker = 0;
    BestFit::Handle handle = 0;
    int input_tokens = 0;
  };
  // The last answer of choose_for().
  struct Choice {
    std::uint64_t id = 0;
    std::size_t best_fit = 0, chosen = 0;
  };

  [[nodiscard]] int input_of(const RequestLengths& request) const;
  [[nodiscard]] int prediction_for(const RequestLengths& request) const;
  void predict_overdue(std::size_t worker);

  BestFit workers_;                  // the chains, then closed chains that still hold requests
  std::vector<std::uint64_t> keys_;  // of the workers
  std::unordered_map<std::uint64_t, Placed> placed_;
  BestFit::Handle next_handle_ = 0;
  OutputHistory history_;
  double asked_s_ = 0;            // when choose_for() was last called
  std::optional<Choice> choice_;  // for placed(), to know whether the request was moved; none: it was not
  std::int64_t rebalanced_ = 0;
};

}  // namespace windlass::dispatch
