// BySize: a request to the kind of worker on which it is comparatively cheap, among those the emptiest.
//
// Unlike workers differ most by size: a long prompt that takes a tenth of a small worker's time may take a fiftieth of a large
// one's, and a short answer the same of both. What a request takes of a chain, u, follows from its latency lines
// (ChainState::packing) and its lengths; relative to the mean of all requests, u / mean(u), it says what this size costs here
// beside the others. Chosen is the chain with the least
//   u / mean(u) * fill^4,      fill: of its decode batch, its KV cache or its slots, whichever is fullest
// MaxWeight's rule (Tassiulas, Ephremides 1992: the queue's length as the price of its server) with fill as the price: where
// fills are equal each size goes where it is comparatively cheap, and a kind that fills up becomes dear until others take over,
// so that no rates or shares have to be known. It is how the cheapest mix (planner/strategies/mix/mix.h) is dispatched.
//
// Lengths are predicted from what has been served (output_history.h) where they are not known. Where no chain's latency is
// known it is JSQ. It never answers "wait" while one chain takes requests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "planner/dispatch/dispatch_policy.h"
#include "planner/dispatch/output_history.h"
#include "planner/dispatch/packed_worker.h"
#include "planner/dispatch/tournament.h"

namespace windlass::dispatch {

// Seconds of a worker that a request takes: its prompt, and its share of iterations at the largest batch inside
// rules.tpot_s. Infinite: the cache does not hold it. A hundred times as much where the request alone is outside rules.ttft_s
// or rules.tpot_s.
[[nodiscard]] double worker_seconds(const PackingModel& model, const PackingRules& rules, int input_tokens, int output_tokens);

class BySize final : public DispatchPolicy, public RequestTracker {
 public:
  explicit BySize(const PackingRules& rules) : rules_(rules) {}

  void reset(std::span<const ChainState> chains) override;
  void update(std::size_t index, const ChainState& state) override;
  [[nodiscard]] std::optional<std::size_t> choose() override { return choose_for({}, 0); }
  [[nodiscard]] std::optional<std::size_t> choose_for(const RequestLengths& request, double now_s) override;
  [[nodiscard]] RequestTracker* tracker() override { return this; }

  void placed(std::size_t chain, const RequestLengths& request) override;
  void first_token(std::uint64_t /*id*/, double /*now_s*/) override {}
  void iterated(std::size_t /*chain*/) override {}
  void tokens_made(std::uint64_t /*id*/, int /*count*/) override {}
  void ended(std::uint64_t id, int output_tokens) override;

 private:
  // Chains of the same latency: of them the emptiest is the best for any request.
  struct Kind {
    std::optional<PackingModel> model;
    std::vector<std::size_t> chains;
    Tournament<double, std::less<>> emptiest;  // by fill
    double mean_s = 0;                         // of worker_seconds() of what was placed, anywhere
    double seen = 0;                           // requests behind the mean, no more than kRemembered
  };
  struct Chain {
    std::uint64_t key = 0;
    std::size_t kind = 0, place = 0;  // in its kind
    ChainState state;
    double context_tokens = 0, cache_tokens = 0;  // of what is here, as predicted
    double fill = 0;
  };
  struct Placed {
    std::uint64_t key = 0;
    int input_tokens = 0;
    int output_tokens = 0;
  };
  struct Lengths {
    int input_tokens = 0, output_tokens = 0;
  };

  [[nodiscard]] Lengths lengths_of(const RequestLengths& request) const;
  void add(Chain& chain, const Placed& request, int by);
  void weigh(std::size_t index);

  PackingRules rules_;
  std::vector<Kind> kinds_;
  std::vector<Chain> chains_;
  std::unordered_map<std::uint64_t, std::size_t> chain_of_key_;
  std::unordered_map<std::uint64_t, Placed> placed_;  // looked up, never iterated but to add up what is here
  OutputHistory history_;
};

}  // namespace windlass::dispatch
