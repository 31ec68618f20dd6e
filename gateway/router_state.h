// The router's state: chains with their slots, models with their queues, and requests. Only the router's own sources include
// it.
//
// A model's policy chooses where a request begins. A model with decode chains has a second policy, which chooses the decode
// chain of a second step that has no weights. Each sees the chains of the other as draining. Policies know the chains in the
// table by their index in Model::slots. Model::tell() reports every change of a slot to them, and Model::start_over() resets
// them after every new table.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "gateway/router.h"
#include "planner/dispatch/jffc.h"
#include "planner/dispatch/splitwise_policy.h"
#include "planner/dispatch/weighted_turns.h"

namespace windlass::gateway {

// Estimates the prompt tokens of a request from its size, using what workers reported for about the last hundred requests.
class TokensPerByte {
 public:
  void observe(std::size_t bytes, int tokens) {
    if (bytes == 0 || tokens <= 0) return;
    bytes_ = kMemory * bytes_ + static_cast<double>(bytes);
    tokens_ = kMemory * tokens_ + tokens;
  }
  // 0: unknown.
  [[nodiscard]] int tokens_of(std::size_t bytes) const {
    if (bytes == 0 || bytes_ <= 0) return 0;
    return std::max(1, static_cast<int>(std::lround(std::min(1e9, static_cast<double>(bytes) * tokens_ / bytes_))));
  }

 private:
  static constexpr double kMemory = 0.99;
  double bytes_ = 0, tokens_ = 0;
};

// Chains that take turns by weight. When a table brings other weights, the chains that stay keep their turns.
class ChainTurns {
 public:
  struct Weight {
    std::uint64_t key = 0;  // key of the chain's slot
    std::size_t index = 0;  // index in the model's list
    double weight = 0;      // above 0
  };

  void set(const std::vector<Weight>& weights) {
    std::vector<std::uint64_t> keys;
    std::vector<double> values;
    indices_.clear();
    for (const Weight& one : weights) {
      keys.push_back(one.key);
      values.push_back(one.weight);
      indices_.push_back(one.index);
    }
    if (keys == keys_ && values == values_) return;
    const std::vector<double> earned_before = turns_.earned();
    std::vector<double> earned(keys.size(), 0);
    for (std::size_t place = 0; place < keys.size(); ++place) {
      const auto before = std::find(keys_.begin(), keys_.end(), keys[place]);
      if (before != keys_.end()) earned[place] = earned_before[static_cast<std::size_t>(before - keys_.begin())];
    }
    keys_ = std::move(keys);
    values_ = std::move(values);
    turns_ = dispatch::WeightedTurns(values_, std::move(earned));
  }

  // Whether any of them is free.
  template <class Free>
  [[nodiscard]] bool any(Free free) const {
    return std::any_of(indices_.begin(), indices_.end(), free);
  }
  // The index of the free chain whose turn it is; nullopt when none is free.
  template <class Free>
  [[nodiscard]] std::optional<std::size_t> next(Free free) {
    const auto turn = turns_.next([&](std::size_t place) { return free(indices_[place]); });
    if (!turn) return std::nullopt;
    return indices_[*turn];
  }

 private:
  std::vector<std::uint64_t> keys_;
  std::vector<double> values_;
  std::vector<std::size_t> indices_;
  dispatch::WeightedTurns turns_{{}};
};

// One chain as this gateway loads it. A slot outlives its listing in the table while it has requests in flight. When the table
// lists it again, it is found by (id, address), so no request is lost from the count.
struct Router::ChainSlot {
  explicit ChainSlot(dispatch::QueueOrder order) : waiting(order) {}

  std::size_t index = 0;  // index in the model's list, while listed
  std::string id;
  std::string address;
  std::string next_hops;  // workers after that one: "host:port,host:port"
  std::string token;      // bearer token for its workers; empty: none
  dispatch::Role role = dispatch::Role::kUnified;
  std::uint64_t key = 0;  // the policy's name for it
  double service_rate_per_s = 0;
  int capacity = 0;
  bool draining = false;
  double share = 1;                               // fraction of its slots that we have
  std::optional<dispatch::PackingModel> packing;  // for our share of it
  ChainTurns decode_turns;                        // decode chains that take over its requests; for a listed prefill chain
  bool listed = false;
  int in_flight = 0;
  int refusals = 0;                         // in a row
  Refusal refused_for = Refusal::kConnect;  // the last of these
  double blocked_until_s = 0;               // no new request before this time, because it refused us; 0: not blocked
  double own_role_until_s = 0;  // no phase of the other role before this time, because it refused one; 0: may get them
  Contact contact = Contact::kAnswers;
  dispatch::WaitingLine waiting;  // for a slot of this chain; only while it is open

  // In the table, not draining, and its worker answers.
  [[nodiscard]] bool serves() const { return listed && !draining && contact == Contact::kAnswers; }
  [[nodiscard]] bool open() const { return serves() && capacity > 0 && blocked_until_s == 0; }
  [[nodiscard]] bool has_free_slot() const { return open() && in_flight < capacity; }

  // Takes over what the table says about the chain.
  void follow(const dispatch::Chain& chain, const dispatch::ModelRoute& its_route);
};

struct Router::Model {
  dispatch::ModelRoute route;  // chains moved into `slots`
  bool listed = false;
  std::vector<SlotPtr> slots;  // listed, in the table's order; then those that still hold requests
  // Among the chains that can begin a request; each model has its own. Null before the first table.
  std::unique_ptr<dispatch::DispatchPolicy> policy;
  dispatch::PolicyKind policy_kind = dispatch::kDefaultPolicy;
  dispatch::PolicyRules policy_rules;
  dispatch::SplitwisePolicy* splitwise = nullptr;  // `policy` if it is this one: it also chooses where second steps go
  dispatch::Jffc decode_policy;                    // among decode chains; only while one is listed
  ChainTurns prefill_turns;                        // of prefill chains with weights
  std::vector<SlotPtr> blocked;                    // listed slots that refused us, while that still counts
  dispatch::WaitingLine waiting;                   // for any chain that can begin them
  std::size_t waiting_at_chains = 0;               // in the slots' own queues
  dispatch::WaitingLine decode_waiting;            // for a decode chain, after the first step
  dispatch::FirstTokenTail first_token;            // from the first dispatch
  dispatch::FirstTokenTail decode_first_token;     // from the dispatch to a decode chain
  // Whether any chain of the role takes requests; see router.h.
  bool prefill_serves = false;
  bool decode_serves = false;
  bool decode_listed = false;  // according to the table alone
  // For policies that place by lengths.
  TokensPerByte tokens_per_byte;
  std::multimap<double, RequestId> prompts_through;  // when prompts whose first token is not visible will have been processed
  double asked_s = 0;                                // when it last held a request back
  std::int64_t rebalanced_before = 0;                // by earlier policies
  int max_input_tokens = 0;                          // capacity of the smallest cache among its chains

  [[nodiscard]] dispatch::RequestTracker* tracker() const { return policy->tracker(); }
  [[nodiscard]] std::int64_t rebalanced() const {
    return rebalanced_before + (policy != nullptr && tracker() != nullptr ? tracker()->rebalanced() : 0);
  }
  // The rules that the table asks for.
  [[nodiscard]] dispatch::PolicyRules rules() const;
  [[nodiscard]] std::size_t total_waiting() const { return waiting.size() + waiting_at_chains; }
  [[nodiscard]] double margin_s() const { return first_token.margin_s(std::max(0.0, route.ttft_slo_s)); }
  [[nodiscard]] double decode_margin_s() const { return decode_first_token.margin_s(std::max(0.0, route.ttft_slo_s)); }

  // Whether a request can begin at the chain.
  [[nodiscard]] bool can_begin_at(const ChainSlot& slot) const;
  // Whether some chain that can begin a request takes requests and answers.
  [[nodiscard]] bool serves() const;
  // Whether a worker that can finish requests is listed and takes some; if not, the model starts from zero.
  [[nodiscard]] bool started() const;
  // Requests per second that its chains can serve.
  [[nodiscard]] double rate_per_s() const;

  // What the chain does with a request that begins there.
  [[nodiscard]] Step first_step_at(const ChainSlot& slot, RequestId id) const;
  // The prefill chain to begin at, among those that are as good as JFFC's choice.
  [[nodiscard]] std::size_t choose_prefill(std::size_t chosen);
  // The decode chain for the request's second step. `fastest`: JFFC's choice among decode chains with a free slot.
  [[nodiscard]] std::size_t choose_decode(const Request& request, std::size_t fastest);

  // Limits prompt estimates to what this chain's cache can hold.
  void limit_guesses_to(const dispatch::PackingModel& packing);
  // Sets the turns of chains with weights. `index_of` maps the new route's chains to indices in `slots`.
  void set_turns(const dispatch::ModelRoute& new_route, const std::vector<std::size_t>& index_of);
  // Updates prefill_serves, decode_serves and decode_listed; returns true when the set of chains that can begin a request
  // changed.
  bool refresh_roles();
  // Call after every change of a slot.
  void tell(const ChainSlot& slot);
  // Call after a new table has set the slots.
  void start_over();
  void unblock_waited_out(double now_s);
  // Removes slots that have left the table and hold nothing.
  void drop_empty() {
    std::erase_if(slots, [](const auto& slot) { return !slot->listed && slot->in_flight == 0; });
  }

 private:
  [[nodiscard]] dispatch::ChainState state_of(const ChainSlot& slot) const;
  [[nodiscard]] static dispatch::ChainState decode_state_of(const ChainSlot& slot);
  [[nodiscard]] bool any_serves(dispatch::Role role) const;
};

struct Router::Request {
  std::uint64_t sequence = 0;
  RequestRecord record;
  Objective objective;
  SlotPtr prefill;    // has the first step, or keeps its result
  SlotPtr slot;       // answers the request: all of it, or the second step
  SlotPtr queued_at;  // the chain in whose queue it waits; null: in one of the model's queues
  bool known_model = false;
  bool prefilled = false;       // a prefill worker took the first step; the second is next, or running
  std::string prefill_address;  // of that worker
  bool response_started = false;
  bool other_role = false;  // its current step is not of the worker's role
  bool moved = false;       // it was taken back from a worker that may have worked on it
  double wait_until_s = 0;  // deadline while no worker has its current step
  double answering_s = 0;   // when `slot` got it
  int tokens = 0;
  std::size_t body_bytes = 0;
  std::multimap<double, RequestId>::iterator deadline;

  // The chain whose worker has the current step; null while the request waits for one.
  [[nodiscard]] const SlotPtr& at() const { return prefilled || slot != nullptr ? slot : prefill; }
  // The chain that the policy placed it at, while that placement is still in use.
  [[nodiscard]] const SlotPtr& placed_at() const {
    if (prefill != nullptr || prefilled) return prefill;
    return slot != nullptr ? slot : queued_at;
  }
};

}  // namespace windlass::gateway
