// SplitwisePolicy: Splitwise's cluster-level scheduler with its mixed pool (mixed_pool.h), for a gateway. It keeps the books
// that this needs from what a gateway sees of its own requests.
//
// When a request is placed, it gets the chain that computes its prompt and is promised the chain that makes its tokens. Both
// are the same if a decode or unified chain computes the prompt, or if no decode chain takes requests or has room: then nothing
// has to be moved between workers, and no two workers wait for each other. The simulator chooses such a chain independently, as
// the paper does.
//
// A decode chain takes whole requests by its role. A prefill chain that takes phases of its own role only (own_role_only) makes
// no tokens: its prompts are promised to decode chains, and it gets none while no decode chain takes requests.
//
// Lengths of answers are estimated from past ones (output_history.h). Other gateways' requests are not seen; pending tokens are
// scaled up by the share of a chain that this gateway has. A prompt counts until first_token(). A choice takes O(chains).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "planner/dispatch/dispatch_policy.h"
#include "planner/dispatch/output_history.h"

namespace windlass::dispatch {

class SplitwisePolicy final : public DispatchPolicy, public RequestTracker {
 public:
  explicit SplitwisePolicy(std::int64_t threshold_tokens) : threshold_tokens_(threshold_tokens) {}

  void reset(std::span<const ChainState> chains) override;
  void update(std::size_t index, const ChainState& state) override;
  [[nodiscard]] std::optional<std::size_t> choose() override { return choose_for({}, 0); }
  // None only while no chain takes requests, or only prefill chains that make no tokens. The chain may be full.
  [[nodiscard]] std::optional<std::size_t> choose_for(const RequestLengths& request, double now_s) override;
  [[nodiscard]] RequestTracker* tracker() override { return this; }

  // Also promises a chain for its tokens. Replaces what is known about a request with this id.
  void placed(std::size_t chain, const RequestLengths& request) override;
  // The prompt is computed, or its result is lost.
  void first_token(std::uint64_t id, double now_s) override;
  void iterated(std::size_t /*chain*/) override {}
  void tokens_made(std::uint64_t /*id*/, int /*count*/) override {}
  void ended(std::uint64_t id, int output_tokens) override;

  // The same chain computes its prompt and makes its tokens.
  [[nodiscard]] bool stays(std::uint64_t id) const;
  // Like placed(), but the chain does both.
  void stays_at(std::size_t chain, const RequestLengths& request);
  // The worker has begun the prompt.
  void begun(std::uint64_t id);
  // The chain that makes the tokens now: the promised one if it has a free slot, otherwise the one to which this moves the
  // promise. None: the request waits.
  [[nodiscard]] std::optional<std::size_t> second_step(const RequestLengths& request,
                                                       const std::function<bool(std::size_t chain)>& has_free_slot);

  // The chain makes the tokens of a request that was placed.
  void answers_at(std::size_t chain, std::uint64_t id);

  // Chains in the mixed pool now.
  [[nodiscard]] int mixed_chains() const;

  static constexpr int kUnknownInput = 512;  // assumed for first requests if the caller does not know it

 private:
  // What this gateway has at a chain, listed or not.
  struct Load {
    int index = -1;  // of the chain; -1: not listed
    int requests = 0;
    int prompts = 0, unbegun = 0;
    int decodes = 0;  // those that decode or will decode there
    std::int64_t prompt_tokens = 0;
    std::int64_t promised_tokens = 0;  // of KV cache: prompts until they are computed, whole lengths of its decodes
  };
  struct Machine {
    Role role = Role::kUnified;
    bool open = false;
    bool own_role_only = false;
    int capacity = 0;
    double share = 1;
    double kv_tokens = 0;  // 0: unknown
    Load* load = nullptr;

    // Can make tokens.
    [[nodiscard]] bool takes_tokens() const { return open && !(own_role_only && role == Role::kPrefill); }
    [[nodiscard]] int waiting() const { return load->unbegun; }
    [[nodiscard]] std::int64_t pending() const;
    [[nodiscard]] bool mixed() const;
    [[nodiscard]] bool has_unpromised(std::int64_t tokens) const;
  };
  struct Pool;
  struct Request {
    std::uint64_t prompt_chain = 0, decode_chain = 0;  // keys
    int input_tokens = 0;
    std::int64_t kv_tokens = 0;  // of its whole length
    bool separate = false;       // two chains when it was placed
    bool begun = false;
    bool computed = false;  // the prompt
  };

  [[nodiscard]] int input_of(const RequestLengths& request) const;
  [[nodiscard]] std::int64_t kv_of(const RequestLengths& request) const;
  // The chain that makes the tokens of a request whose prompt this chain computes.
  [[nodiscard]] std::size_t decode_chain_for(std::size_t prompt_chain, std::int64_t kv_tokens) const;
  void place(std::size_t prompt_chain, std::size_t decode_chain, const RequestLengths& request);
  void promise(Request& request, std::uint64_t decode_chain);
  void take_back_promise(const Request& request);

  std::int64_t threshold_tokens_;
  std::vector<Machine> machines_;                  // the chains
  std::vector<std::uint64_t> keys_;                // of the chains
  std::unordered_map<std::uint64_t, Load> loads_;  // by key; looked up, never iterated for a choice
  std::unordered_map<std::uint64_t, Request> requests_;
  OutputHistory history_;
};

}  // namespace windlass::dispatch
