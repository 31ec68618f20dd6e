// What the router knows: a chain's slots, a model's chains and lines, a request. Included by the router's own sources alone.
//
// A model's policy knows its listed slots by their place in the list. It is told of every change of one (Model::tell), and
// starts over with every table. A second policy, of decode chains alone, places the second steps that have no weights to go by;
// to each of the two the chains that are not its own are draining.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "gateway/router.h"
#include "planner/dispatch/jffc.h"
#include "planner/dispatch/weighted_turns.h"

namespace windlass::gateway {

// Prompt tokens of a request, guessed from its size by what workers have said of others; the last hundred or so count.
class TokensPerByte {
 public:
  void observe(std::size_t bytes, int tokens) {
    if (bytes == 0 || tokens <= 0) return;
    bytes_ = kMemory * bytes_ + static_cast<double>(bytes);
    tokens_ = kMemory * tokens_ + tokens;
  }
  // 0: not known.
  [[nodiscard]] int tokens_of(std::size_t bytes) const {
    if (bytes == 0 || bytes_ <= 0) return 0;
    return std::max(1, static_cast<int>(std::lround(std::min(1e9, static_cast<double>(bytes) * tokens_ / bytes_))));
  }

 private:
  static constexpr double kMemory = 0.99;
  double bytes_ = 0, tokens_ = 0;
};

// Chains that take turns by their weights. The turns go on where they were as tables bring other weights, for the chains that
// stay.
class ChainTurns {
 public:
  struct Weight {
    std::uint64_t key = 0;  // of the chain's slot
    std::size_t index = 0;  // in the model's list
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

  // Some of them are free.
  template <class Free>
  [[nodiscard]] bool any(Free free) const {
    return std::any_of(indices_.begin(), indices_.end(), free);
  }
  // The index of the one whose turn it is among those that are free; none: none of them is.
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

// One chain as we load it. A slot outlives its place in the table while requests are in flight on it, and is found again by
// (id, address) when the table brings it back, so that no request is ever forgotten in the count.
struct Router::ChainSlot {
  explicit ChainSlot(dispatch::QueueOrder order) : waiting(order) {}

  std::size_t index = 0;  // in the model's list, while it is listed
  std::string id;
  std::string address;
  std::string next_hops;  // of the workers after that one: "host:port,host:port"
  std::string token;      // what its workers want to be shown; empty: nothing
  dispatch::Role role = dispatch::Role::kUnified;
  std::uint64_t key = 0;  // a policy's name of it
  double service_rate_per_s = 0;
  int capacity = 0;
  bool draining = false;
  std::optional<dispatch::PackingModel> packing;  // of our share of it
  ChainTurns decode_turns;                        // who takes its requests over: of a prefill chain, while it is listed
  bool listed = false;
  int in_flight = 0;
  int refusals = 0;                         // in a row
  Refusal refused_for = Refusal::kConnect;  // the last of these
  double blocked_until_s = 0;               // it refused us: no new request before this; 0: it may have one
  Contact contact = Contact::kAnswers;
  dispatch::WaitingLine waiting;  // for a slot of this chain; only while it is open

  // In the table, to be sent requests, and there.
  [[nodiscard]] bool serves() const { return listed && !draining && contact == Contact::kAnswers; }
  [[nodiscard]] bool open() const { return serves() && capacity > 0 && blocked_until_s == 0; }
  [[nodiscard]] bool has_free_slot() const { return open() && in_flight < capacity; }

  // What the table says of it, which has it from then on.
  void follow(const dispatch::Chain& chain, const dispatch::ModelRoute& its_route);
};

struct Router::Model {
  dispatch::ModelRoute route;  // its chains are in `slots`
  bool listed = false;
  std::vector<SlotPtr> slots;                        // listed, in the table's order; then those that still hold requests
  std::unique_ptr<dispatch::DispatchPolicy> policy;  // among the chains that can begin a request
  dispatch::Jffc decode_policy;                      // among decode chains; only while one is listed
  ChainTurns prefill_turns;                          // of prefill chains with weights
  std::vector<SlotPtr> blocked;                      // listed slots that refused us and are not waited out
  dispatch::WaitingLine waiting;                     // for any chain that can begin them
  std::size_t waiting_at_chains = 0;                 // in the slots' own queues
  dispatch::WaitingLine decode_waiting;              // for a decode chain: they have had their first step
  dispatch::FirstTokenTail first_token;              // from the first dispatch
  dispatch::FirstTokenTail decode_first_token;       // from that to a decode chain
  // Whether any chain of the role takes requests; see router.h.
  bool prefill_serves = false;
  bool decode_serves = false;
  bool decode_listed = false;  // by the table alone
  // For a policy that places by lengths.
  TokensPerByte tokens_per_byte;
  std::multimap<double, RequestId> prompts_through;  // when prompts whose first token is not seen will have been processed
  double asked_s = 0;                                // when it last kept a request back
  int most_input_tokens = 0;                         // that the smallest cache of its chains holds

  [[nodiscard]] dispatch::RequestTracker* tracker() const { return policy->tracker(); }
  [[nodiscard]] dispatch::PackingRules rules() const;
  [[nodiscard]] std::size_t total_waiting() const { return waiting.size() + waiting_at_chains; }
  [[nodiscard]] double margin_s() const { return first_token.margin_s(std::max(0.0, route.ttft_slo_s)); }
  [[nodiscard]] double decode_margin_s() const { return decode_first_token.margin_s(std::max(0.0, route.ttft_slo_s)); }

  // A request can begin there.
  [[nodiscard]] bool can_begin_at(const ChainSlot& slot) const;
  // Some chain that a request can begin at takes requests, and answers.
  [[nodiscard]] bool serves() const;
  // Any worker that can finish a request is listed and takes some; else it is started from nothing.
  [[nodiscard]] bool started() const;
  // Requests a second that go through its chains.
  [[nodiscard]] double rate_per_s() const;

  // Where a request begins, of the prefill chains that are as good as JFFC's choice.
  [[nodiscard]] std::size_t choose_prefill(std::size_t chosen);
  // Where the second step of this request goes. `fastest`: of the decode chains with a free slot.
  [[nodiscard]] std::size_t choose_decode(const Request& request, std::size_t fastest);

  // Takes prompts for no longer than this chain's cache has room for.
  void limit_guesses_to(const dispatch::PackingModel& packing);
  // Whose turn it is among chains with weights. `index_of`: of the new route's chains, in `slots`.
  void set_turns(const dispatch::ModelRoute& new_route, const std::vector<std::size_t>& index_of);
  // Brings prefill_serves, decode_serves and decode_listed up to date; true: a request can begin at other chains than before.
  bool refresh_roles();
  // After every change of a slot.
  void tell(const ChainSlot& slot);
  // With the slots of a new table.
  void start_over();
  void unblock_waited_out(double now_s);
  // Slots that have left the table and hold nothing.
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
  SlotPtr prefill;    // whose worker has its first step, or keeps what came of it
  SlotPtr slot;       // whose worker answers it: all of it, or the second step
  SlotPtr queued_at;  // the chain in whose queue it waits; null: in one of the model's
  bool known_model = false;
  bool prefilled = false;       // a prefill worker took the first step: the second one is next, or in hand
  std::string prefill_address;  // of that worker
  bool response_started = false;
  bool moved = false;       // it was taken back from a worker that may have worked on it
  double wait_until_s = 0;  // as long as no worker has taken its step
  double answering_s = 0;   // since when `slot` has it
  int tokens = 0;
  std::size_t body_bytes = 0;
  std::multimap<double, RequestId>::iterator deadline;

  // The chain whose worker has the step in hand; null: it waits for one.
  [[nodiscard]] const SlotPtr& at() const { return prefilled || slot != nullptr ? slot : prefill; }
  // The chain that the policy placed it at, as far as it has to do with it still.
  [[nodiscard]] const SlotPtr& placed_at() const {
    if (prefill != nullptr || prefilled) return prefill;
    return slot != nullptr ? slot : queued_at;
  }
};

}  // namespace windlass::gateway
