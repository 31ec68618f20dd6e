// BySize sends a request to the kind of worker on which it is comparatively cheap, and there to the emptiest worker.
//
// Kinds of workers differ most by request size: a long prompt that takes a tenth of a small worker's time may take a fiftieth
// of a large one's, while a short answer takes the same share of both. The cost u of a request on a chain follows from the
// chain's latency lines (ChainState::packing) and the request's lengths. Dividing by the mean over all requests, u / mean(u),
// compares sizes on this chain. The policy chooses the chain with the least
//   u / mean(u) * fill^4,      fill: of its decode batch, its KV cache or its slots, whichever is fullest
// This is MaxWeight (Tassiulas, Ephremides 1992: the queue length is the price of a server) with fill as the price. At equal
// fill each size goes where it is comparatively cheap. A kind that fills up becomes expensive until others take over, so no
// rates or shares need to be known. The cheapest mix (planner/strategies/mix/mix.h) is dispatched this way.
//
// Unknown lengths are predicted from served requests (output_history.h). If no chain's latency is known it behaves like JSQ. It
// never makes a request wait while a chain accepts requests.
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

// Worker seconds that a request takes: its prompt, plus its share of iterations at the largest batch within rules.tpot_s.
// Infinite if it does not fit into the cache. Multiplied by 100 if the request alone exceeds rules.ttft_s or rules.tpot_s.
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
  // Chains with the same latency. The emptiest of them is the best for any request.
  struct Kind {
    std::optional<PackingModel> model;
    std::vector<std::size_t> chains;
    Tournament<double, std::less<>> emptiest;  // by fill
    double mean_s = 0;                         // mean of worker_seconds() over all placed requests, wherever they went
    double seen = 0;                           // number of requests in the mean, at most kRemembered
  };
  struct Chain {
    std::uint64_t key = 0;
    std::size_t kind = 0, place = 0;  // its kind, and its index there
    ChainState state;
    double context_tokens = 0, cache_tokens = 0;  // of the requests here, as predicted
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
  std::unordered_map<std::uint64_t, Placed> placed_;  // used for lookup; iterated only to compute sums
  OutputHistory history_;
};

}  // namespace windlass::dispatch
