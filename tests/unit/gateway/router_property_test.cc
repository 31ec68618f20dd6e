// The router under thousands of seeded random event sequences, compared with a model of its invariants after every event.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include <gtest/gtest.h>

#include "gateway/router.h"
#include "planner/base/rng.h"
#include "tests/effort.h"

namespace windlass::gateway {
namespace {

constexpr double kTtftS = 1;

// Plays random events and checks the promises of router.h from outside after each: it records what was dispatched where, using
// the actions alone. A request that is not over is at the worker that has its current step, or waits; a prefilled one may also
// be held by its prefill worker.
class Play {
 public:
  // Without a policy, tables choose those of the models.
  Play(std::uint64_t seed, std::optional<dispatch::PolicyKind> policy,
       dispatch::QueueOrder order = dispatch::QueueOrder::kObjective)
      : rng_(seed, "router"),
        policy_(policy),
        by_arrival_(order == dispatch::QueueOrder::kArrival),
        by_lengths_(policy.value_or(dispatch::PolicyKind::kAladdin) == dispatch::PolicyKind::kAladdin),
        router_(RouterOptions{8, 5, 20, policy, seed, 300, order}) {}

  void run(int steps) {
    for (int i = 0; i < steps && !::testing::Test::HasFatalFailure(); ++i) {
      now_s_ += rng_.uniform() * 0.3;
      const Actions due = router_.tick(now_s_);
      take(due);
      step();
      check();
    }
    take(router_.shut_down(now_s_));
    EXPECT_EQ(finished_.size(), arrived_.size());
    EXPECT_EQ(router_.open_requests(), 0U);
    EXPECT_TRUE(holds_.empty() && kept_.empty());
    for (const auto& load : router_.chain_loads()) EXPECT_EQ(load.in_flight, 0) << load.chain;
  }

  // Number of second steps that began: a test without any has tested none.
  [[nodiscard]] int second_steps() const { return second_steps_; }
  // Number of phases that prefill chains did for decode chains.
  [[nodiscard]] int mixed() const { return mixed_; }
  // Number of requests in flight, and of those that waited, when a table changed their model's policy.
  [[nodiscard]] std::pair<int, int> under_new_policy() const { return under_new_policy_; }

 private:
  struct Held {
    std::string model, chain, address;
    Step step = Step::kWhole;
    bool other_role = false;
  };

  std::string any_model() { return rng_.integer(0, 9) == 0 ? "none" : rng_.integer(0, 1) == 0 ? "m0" : "m1"; }

  // Of the model in the table.
  [[nodiscard]] dispatch::PolicyKind kind_of(const std::string& model) const {
    if (policy_) return *policy_;
    for (const auto& route : table_.models) {
      if (route.served_name == model) return dispatch::gateway_policy(route.dispatch);
    }
    return dispatch::kDefaultPolicy;
  }
  // Any chain begins a request and does a second step.
  [[nodiscard]] bool has_mixed_pool(const std::string& model) const {
    return kind_of(model) == dispatch::PolicyKind::kSplitwise;
  }
  // Its requests never wait at a chain.
  [[nodiscard]] bool waits_centrally(const std::string& model) const { return dispatch::keeps_requests_back(kind_of(model)); }

  dispatch::PolicySettings any_policy() {
    dispatch::PolicySettings settings;
    const auto draw = rng_.integer(0, static_cast<std::int64_t>(dispatch::kGatewayPolicies.size()));
    if (draw > 0) settings.policy = dispatch::kGatewayPolicies[static_cast<std::size_t>(draw - 1)];
    if (rng_.integer(0, 1) == 0) settings.placement.ttft_s = kTtftS / 2;
    settings.huawei.assumed_output_tokens = static_cast<double>(100 * rng_.integer(0, 1));
    return settings;
  }

  void count_under_new_policies(const std::map<std::string, dispatch::PolicyKind>& before) {
    for (const auto& [id, model] : arrived_) {
      if (finished_.contains(id) || !before.contains(model) || before.at(model) == kind_of(model)) continue;
      ++(holds_.contains(id) ? under_new_policy_.first : under_new_policy_.second);
    }
  }

  dispatch::Role any_role() {
    const auto draw = rng_.integer(0, 6);
    return draw == 0 ? dispatch::Role::kUnified : draw < 4 ? dispatch::Role::kPrefill : dispatch::Role::kDecode;
  }

  dispatch::RoutingTable random_table() {
    dispatch::RoutingTable table;
    table.version = {1, ++counter_};
    for (const char* name : {"m0", "m1"}) {
      if (rng_.integer(0, 7) == 0) continue;
      dispatch::ModelRoute route;
      route.served_name = name;
      route.ttft_slo_s = kTtftS;
      route.tpot_slo_s = 0.1;
      route.max_queued = static_cast<int>(rng_.integer(0, 6));
      route.dispatch = any_policy();
      const bool two_steps = rng_.integer(0, 2) != 0;
      for (int k = 0; k < 4; ++k) {
        if (rng_.integer(0, 2) == 0) continue;
        const std::string id = std::string(name) + "-" + std::to_string(k);
        const std::string address = id + ":" + std::to_string(rng_.integer(0, 9) == 0 ? 81 : 80);
        route.chains.push_back({id,
                                {address},
                                two_steps ? any_role() : dispatch::Role::kUnified,
                                1.0 + static_cast<double>(rng_.integer(0, 3)),
                                static_cast<int>(rng_.integer(0, 3)),
                                rng_.integer(0, 3) == 0});
        if (!by_lengths_) continue;
        route.chains.back().latency = static_cast<int>(rng_.integer(-1, 1));
        route.chains.back().share = rng_.integer(0, 1) == 0 ? 1 : 0.5;
      }
      for (auto& chain : route.chains) {
        for (std::size_t to = 0; chain.role == dispatch::Role::kPrefill && to < route.chains.size(); ++to) {
          if (route.chains[to].role != dispatch::Role::kDecode || rng_.integer(0, 2) == 0) continue;
          chain.decode_weights.push_back({static_cast<int>(to), static_cast<double>(rng_.integer(0, 3))});
        }
      }
      if (by_lengths_) {
        route.latencies = {{1e-3, 0.01, 1e-6, 1e-4, 0.01, 2000, 16, 8}, {2e-3, 0.02, 1e-6, 1e-4, 0.03, 500, 16, 8}};
        if (rng_.integer(0, 9) == 0) route.tpot_slo_s = 0.2;
      }
      table.models.push_back(route);
    }
    return table;
  }

  void step() {
    const auto what = rng_.integer(0, 137);
    if (what < 12) {
      const auto before = router_.policies();
      table_ = random_table();
      count_under_new_policies(before);
      take(router_.table_changed(now_s_, table_).actions);
      return;
    }
    if (what >= 108) {
      go_on_with_first_step(what >= 128);
      return;
    }
    if (what >= 100) {
      change_contact();
      return;
    }
    if (what < 55) {
      const RequestId id = next_id_++;
      const std::string model = any_model();
      arrived_.emplace(id, model);
      sequence_.emplace(id, sequence_.size());
      arrived_at_.emplace(id, now_s_);
      const auto bytes = by_lengths_ ? static_cast<std::size_t>(rng_.integer(0, 4000)) : 0;
      take(router_.arrived(now_s_, id, model, rng_.integer(0, 1) == 0, bytes));
      return;
    }
    // Something happens to a random request, over or not: late and repeated reports must do no harm.
    if (arrived_.empty()) return;
    const bool open = !holds_.empty() && rng_.integer(0, 9) != 0;
    auto pick = open ? std::next(holds_.begin(), rng_.integer(0, static_cast<std::int64_t>(holds_.size()) - 1))->first
                     : static_cast<RequestId>(rng_.integer(1, static_cast<std::int64_t>(next_id_) - 1));
    const bool held = holds_.contains(pick);
    if (what < 65) {
      if (held && started_.contains(pick)) return;  // a worker cannot refuse what it has begun to answer
      const auto why = static_cast<Refusal>(rng_.integer(0, 3));
      if (held && why == Refusal::kRole && holds_.at(pick).other_role) {
        own_role_at_[holds_.at(pick).address] = now_s_;
      } else if (held) {
        refused_at_[holds_.at(pick).address] = now_s_;
        refused_for_[holds_.at(pick).address] = why;
      }
      if (held) holds_.erase(pick);
      take(router_.refused(now_s_, pick, why));
    } else if (what < 70) {
      if (held && refused_for_[holds_.at(pick).address] != Refusal::kDraining) refused_at_.erase(holds_.at(pick).address);
      take(router_.accepted(now_s_, pick));
    } else if (what < 75) {
      if (!held) return;
      router_.response_started(pick);
      router_.tokens_sent(now_s_, pick, 1);
      started_.insert(pick);
    } else if (what < 82) {
      const bool may_move = rng_.integer(0, 1) == 0;
      const bool moves = held && may_move && !started_.contains(pick) && !moved_.contains(pick);
      if (moves) {
        moved_.insert(pick);
        refused_at_[holds_.at(pick).address] = now_s_;
        refused_for_[holds_.at(pick).address] = Refusal::kConnect;
        holds_.erase(pick);
      }
      take(router_.failed(now_s_, pick, "broken", may_move));
      ASSERT_TRUE(moves || !held || finished_.contains(pick)) << "broken a second time, and not over";
    } else if (what < 87) {
      take(router_.client_gone(now_s_, pick));
    } else if (held) {
      take(router_.completed(now_s_, pick, {200, 3, 4}));
    }
  }

  // A prefill worker's head arrives, or its body ends, for any request; otherwise it must have no effect.
  void go_on_with_first_step(bool ends) {
    std::vector<RequestId> there;
    if (ends) {
      for (const auto& [id, held] : kept_) there.push_back(id);
    } else {
      for (const auto& [id, held] : holds_) {
        if (held.step == Step::kPrefill && !started_.contains(id)) there.push_back(id);
      }
    }
    if (there.empty() || rng_.integer(0, 9) == 0) {
      const auto any = static_cast<RequestId>(rng_.integer(1, static_cast<std::int64_t>(next_id_)));
      if (std::find(there.begin(), there.end(), any) != there.end()) return;
      if (started_.contains(any)) return;  // that worker already sent its answer
      const Actions none = ends ? router_.prefill_ended(now_s_, any) : router_.prefilled(now_s_, any);
      ASSERT_TRUE(none.empty());
      return;
    }
    const RequestId id = there[static_cast<std::size_t>(rng_.integer(0, static_cast<std::int64_t>(there.size()) - 1))];
    if (ends) {
      kept_.erase(id);
      take(router_.prefill_ended(now_s_, id));
      return;
    }
    kept_.insert(holds_.extract(id));
    prefilled_[id] = kept_.at(id).address;
    take(router_.prefilled(now_s_, id));
  }

  // A worker falls silent, becomes unreachable or answers again, often while it is not in the table.
  void change_contact() {
    const std::string model = rng_.integer(0, 1) == 0 ? "m0" : "m1";
    const std::string address = model + "-" + std::to_string(rng_.integer(0, 3)) + ":80";
    const auto contact = static_cast<Contact>(rng_.integer(0, 3));
    std::set<RequestId> there;
    for (const auto& [id, held] : holds_) {
      if (held.address == address) there.insert(id);
    }
    const Contact before = contacts_.contains(address) ? contacts_.at(address) : Contact::kAnswers;
    contacts_[address] = contact;
    if (contact == Contact::kAnswers && before != contact) own_role_at_.erase(address);
    const std::set<RequestId> moved_before = moved_;
    if (contact == Contact::kLost && contact != before) {
      std::erase_if(kept_, [&](const auto& kept) { return kept.second.address == address; });
    }
    take(router_.contact_changed(now_s_, address, contact));
    for (const RequestId id : there) {
      const bool still = holds_.contains(id) && holds_.at(id).address == address;
      const bool changed = contact != before;
      if (contact <= Contact::kSilent) {
        ASSERT_TRUE(still) << "taken from a worker that may be at work";
      }
      if (changed && contact == Contact::kLost) {
        ASSERT_FALSE(still) << "left with a lost worker";
      }
      if (changed && contact == Contact::kUnreachable) {
        ASSERT_EQ(still, started_.contains(id) || moved_before.contains(id));
      }
    }
  }

  void take(const Actions& actions) {
    for (const Action& action : actions) {
      if (const auto* finished = std::get_if<Finished>(&action)) {
        ASSERT_TRUE(arrived_.contains(finished->id));
        ASSERT_TRUE(finished_.insert(finished->id).second) << "answered twice: " << finished->id;
        ASSERT_EQ(finished->record.model, arrived_.at(finished->id));
        holds_.erase(finished->id);
        kept_.erase(finished->id);
        prefilled_.erase(finished->id);
      } else if (const auto* reject = std::get_if<Reject>(&action)) {
        ASSERT_FALSE(finished_.contains(reject->id));
        ASSERT_FALSE(started_.contains(reject->id)) << "an error response after the answer began";
        ASSERT_TRUE(rejected_.insert(reject->id).second);
        const bool at_workers = holds_.contains(reject->id) || kept_.contains(reject->id);
        ASSERT_EQ(at_workers, cancelled_.contains(reject->id)) << "broken off, unless no worker had it";
      } else if (const auto* cancel = std::get_if<Cancel>(&action)) {
        ASSERT_FALSE(finished_.contains(cancel->id));
        ASSERT_EQ(cancel->nothing_sent, !started_.contains(cancel->id));
        ASSERT_TRUE(cancelled_.insert(cancel->id).second);
      } else if (const auto* recall = std::get_if<Recall>(&action); recall != nullptr && recall->to_beginning) {
        ASSERT_TRUE(prefilled_.contains(recall->id) && !holds_.contains(recall->id));
        ASSERT_FALSE(second_steps_possible(arrived_.at(recall->id))) << "its first step was thrown away";
        kept_.erase(recall->id);
        prefilled_.erase(recall->id);
      } else if (recall != nullptr) {
        ASSERT_TRUE(holds_.contains(recall->id));
        ASSERT_FALSE(started_.contains(recall->id)) << "taken back after its answer began";
        ASSERT_TRUE(moved_.insert(recall->id).second) << "moved twice";
        holds_.erase(recall->id);
      } else if (const auto* dispatch = std::get_if<Dispatch>(&action)) {
        ASSERT_FALSE(finished_.contains(dispatch->id)) << "dispatched after its end";
        ASSERT_FALSE(holds_.contains(dispatch->id)) << "held twice";
        check_dispatch(*dispatch);
        holds_.emplace(dispatch->id, Held{arrived_.at(dispatch->id), dispatch->chain, dispatch->address, dispatch->step,
                                          dispatch->mixed_pool});
      }
    }
  }

  const dispatch::Chain* listed(const std::string& model, const std::string& id, const std::string& address) const {
    for (const auto& route : table_.models) {
      if (route.served_name != model) continue;
      for (const auto& chain : route.chains) {
        if (chain.id == id && chain.hops.front() == address) return &chain;
      }
    }
    return nullptr;
  }

  bool is_listed(const std::string& address) const {
    return std::any_of(table_.models.begin(), table_.models.end(), [&](const auto& route) {
      return std::any_of(route.chains.begin(), route.chains.end(),
                         [&](const auto& one) { return one.hops.front() == address; });
    });
  }

  // Whether some chain of the model has this role, takes requests and answers.
  bool serves(const std::string& model, dispatch::Role role) const {
    for (const auto& route : table_.models) {
      if (route.served_name != model) continue;
      for (const auto& chain : route.chains) {
        if (chain.role == role && !chain.draining && answers(chain.hops.front())) return true;
      }
    }
    return false;
  }

  // According to the table alone.
  bool second_steps_possible(const std::string& model) const {
    for (const auto& route : table_.models) {
      if (route.served_name != model) continue;
      for (const auto& chain : route.chains) {
        if (chain.role == dispatch::Role::kDecode && !chain.draining) return true;
      }
    }
    return false;
  }

  bool can_begin_at(const std::string& model, dispatch::Role role) const {
    if (has_mixed_pool(model)) return true;
    switch (role) {
      case dispatch::Role::kUnified: return true;
      case dispatch::Role::kPrefill: return serves(model, dispatch::Role::kDecode);
      case dispatch::Role::kDecode: return !serves(model, dispatch::Role::kPrefill);
    }
    return false;
  }

  void check_step(const Dispatch& dispatch, dispatch::Role role) {
    const auto prefilled = prefilled_.find(dispatch.id);
    const bool mixed_pool = has_mixed_pool(arrived_.at(dispatch.id));
    mixed_ += dispatch.mixed_pool ? 1 : 0;
    ASSERT_EQ(dispatch.step == Step::kDecode, prefilled != prefilled_.end());
    ASSERT_EQ(dispatch.mixed_pool, role == dispatch::Role::kPrefill && dispatch.step != Step::kPrefill);
    ASSERT_TRUE(mixed_pool || !dispatch.mixed_pool);
    ASSERT_FALSE(dispatch.mixed_pool && keeps_to_own_role(dispatch.address)) << "it has just refused such a phase";
    if (dispatch.step == Step::kDecode) {
      ASSERT_TRUE(mixed_pool || role == dispatch::Role::kDecode);
      ASSERT_EQ(dispatch.prefill_address, prefilled->second);
      ++second_steps_;
      return;
    }
    ASSERT_EQ(dispatch.step == Step::kPrefill, role == dispatch::Role::kPrefill && !dispatch.mixed_pool);
    ASSERT_EQ(dispatch.prefill_address, "");
    ASSERT_TRUE(can_begin_at(arrived_.at(dispatch.id), role)) << "begun at a " << dispatch::to_string(role) << " chain";
  }

  // The chain is in the table, takes requests and has a slot. With one queue for all, an older request of the model waits for
  // the same step only if it can no longer meet its objective (assuming the largest share of it that a first token may take)
  // and this one can.
  void check_dispatch(const Dispatch& dispatch) {
    const std::string& model = arrived_.at(dispatch.id);
    const auto* chain = listed(model, dispatch.chain, dispatch.address);
    ASSERT_NE(chain, nullptr) << "dispatched to a chain that is not in the table";
    ASSERT_FALSE(chain->draining);
    ASSERT_TRUE(answers(dispatch.address)) << "dispatched to a worker that does not answer";
    ASSERT_LT(held_at(dispatch.address), chain->capacity) << "more than its slots";
    check_step(dispatch, chain->role);
    const bool decodes = dispatch.step == Step::kDecode;
    for (const auto& [id, name] : arrived_) {
      if (!waits_centrally(model) && !decodes) break;
      if (name != model || finished_.contains(id) || holds_.contains(id) || prefilled_.contains(id) != decodes) continue;
      if (sequence_.at(id) >= sequence_.at(dispatch.id)) continue;
      ASSERT_FALSE(by_arrival_) << "an older request waits";
      ASSERT_GT(now_s_ - arrived_at_.at(id), kTtftS * (1 - dispatch::FirstTokenTail::kMaxShare) - 1e-9) << "in time, and older";
      ASSERT_LE(now_s_ - arrived_at_.at(dispatch.id), kTtftS) << "late, and younger";
    }
  }

  bool answers(const std::string& address) const {
    const auto found = contacts_.find(address);
    return found == contacts_.end() || found->second == Contact::kAnswers;
  }

  // It refused a phase of the other role within a minute.
  bool keeps_to_own_role(const std::string& address) const {
    const auto found = own_role_at_.find(address);
    return found != own_role_at_.end() && now_s_ - found->second < 60;
  }

  int held_at(const std::string& address) const {
    int count = 0;
    for (const auto* holders : {&holds_, &kept_}) {
      for (const auto& [id, held] : *holders) count += held.address == address ? 1 : 0;
    }
    return count;
  }

  void check() {
    // The router's own counts agree with ours.
    std::map<std::string, int> waiting, decode_waiting;
    for (const auto& [id, model] : arrived_) {
      if (finished_.contains(id) || holds_.contains(id)) continue;
      ++(prefilled_.contains(id) ? decode_waiting : waiting)[model];
    }
    check_lengths(router_.queue_lengths(), waiting);
    check_lengths(router_.decode_queue_lengths(), decode_waiting);
    std::map<std::string, int> at_chains, in_flight;
    for (const auto* holders : {&holds_, &kept_}) {
      for (const auto& [id, held] : *holders) ++at_chains[held.chain];
    }
    for (const auto& load : router_.chain_loads()) {
      ASSERT_GE(load.in_flight, 0);
      if (load.in_flight > 0) in_flight[load.chain] += load.in_flight;
    }
    ASSERT_EQ(in_flight, at_chains);
    ASSERT_EQ(router_.open_requests(), arrived_.size() - finished_.size());
    // A chain that has left the table and holds nothing is forgotten.
    std::erase_if(own_role_at_,
                  [this](const auto& refused) { return !is_listed(refused.first) && held_at(refused.first) == 0; });
    // No request waits before a free slot, except for chains that refused within the longest pause. Where requests wait at
    // chains: no request waits while every chain that takes requests has a free slot. Where requests are placed by length: no
    // request waits before an empty chain.
    for (const auto& route : table_.models) {
      if (decode_waiting[route.served_name] > 0) {
        ASSERT_TRUE(second_steps_possible(route.served_name)) << "second steps wait for nothing";
      }
      const auto kind = router_.policies().at(route.served_name);
      ASSERT_EQ(kind, kind_of(route.served_name));
      const bool by_lengths = kind == dispatch::PolicyKind::kAladdin;
      std::string free;
      bool any_full = false;
      for (const auto& chain : route.chains) {
        const auto refused = refused_at_.find(chain.hops.front());
        const bool resting = refused != refused_at_.end() && now_s_ - refused->second <= 2.0;
        if (chain.draining || chain.capacity == 0 || !answers(chain.hops.front())) continue;
        const bool has_slot = held_at(chain.hops.front()) < chain.capacity;
        if (chain.role == dispatch::Role::kDecode && decode_waiting[route.served_name] > 0) {
          ASSERT_TRUE(!has_slot || resting) << "a second step waits before a free slot of " << chain.id;
        }
        if (!can_begin_at(route.served_name, chain.role)) continue;
        const bool full = held_at(chain.hops.front()) >= (by_lengths ? 1 : chain.capacity);
        any_full = any_full || full;
        // What it begins would have to be finished by a decode chain, and these may rest.
        const bool may_wait = chain.role == dispatch::Role::kPrefill && keeps_to_own_role(chain.hops.front());
        if (!full && !resting && !may_wait) free = chain.id;
      }
      if (waiting[route.served_name] == 0) continue;
      ASSERT_TRUE(free.empty() || (!waits_centrally(route.served_name) && any_full))
          << "a request waits before a free slot of " << free;
    }
    if (router_.open_requests() > 0) {
      ASSERT_TRUE(router_.next_deadline_s().has_value());
    }
  }

  static void check_lengths(const std::map<std::string, int>& lengths, const std::map<std::string, int>& waiting) {
    for (const auto& [model, count] : waiting) {
      ASSERT_TRUE(lengths.contains(model)) << "requests wait for a model that is not in the table";
    }
    for (const auto& [model, length] : lengths) {
      const auto ours = waiting.find(model);
      ASSERT_EQ(length, ours == waiting.end() ? 0 : ours->second) << model;
    }
  }

  Rng rng_;
  std::optional<dispatch::PolicyKind> policy_;
  bool by_arrival_;
  bool by_lengths_;  // tables give the chains' latencies
  Router router_;
  dispatch::RoutingTable table_;
  std::int64_t counter_ = 0;
  double now_s_ = 0;
  RequestId next_id_ = 1;
  std::map<RequestId, std::string> arrived_;
  std::map<RequestId, std::size_t> sequence_;
  std::map<RequestId, double> arrived_at_;
  std::map<RequestId, Held> holds_;             // at the worker that has the current step
  std::map<RequestId, Held> kept_;              // at the prefill worker after its head
  std::map<RequestId, std::string> prefilled_;  // from that head on, with the worker's address
  std::set<RequestId> finished_, rejected_, started_, cancelled_;
  int second_steps_ = 0;
  int mixed_ = 0;  // phases at a prefill chain that are not its own
  std::pair<int, int> under_new_policy_;
  std::set<RequestId> moved_;  // a worker may have worked on it in vain
  std::map<std::string, Contact> contacts_;
  std::map<std::string, double> refused_at_;
  std::map<std::string, Refusal> refused_for_;
  std::map<std::string, double> own_role_at_;  // when it refused a phase of the other role
};

// Given seeded sequences of 120 random events (arrivals; tables that add, drain, move and drop chains and models and change
// roles; first steps that are taken and that end; refusals, failures, silent workers that return; completions, clients that
// leave, late and repeated reports, timeouts); expects every promise of router.h to hold after each.
TEST(RouterProperties, HoldOverRandomEvents) {
  int second_steps = 0;
  for (std::uint64_t seed = 1; seed <= effort(300U, 3000U); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Play play(seed, dispatch::PolicyKind::kJffc);
    play.run(120);
    if (::testing::Test::HasFailure()) return;
    second_steps += play.second_steps();
  }
  EXPECT_GT(second_steps, effort(300, 3000));
}

// Given some of them with a queue in arrival order; expects the same.
TEST(RouterProperties, HoldByArrival) {
  for (std::uint64_t seed = 1; seed <= effort(100U, 1000U); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Play play(seed, dispatch::PolicyKind::kJffc, dispatch::QueueOrder::kArrival);
    play.run(120);
    if (::testing::Test::HasFailure()) return;
  }
}

// Given longer sequences of 600 events; expects the same.
TEST(RouterProperties, HoldOverLongRuns) {
  for (std::uint64_t seed = 100001; seed < 100001 + effort(3U, 20U); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Play play(seed, dispatch::PolicyKind::kJffc);
    play.run(600);
    if (::testing::Test::HasFailure()) return;
  }
}

// Given tables that also change the policies of models and their parameters; expects the promises for the policy in use to hold
// after each event, and changes while requests are in flight and while they wait.
TEST(RouterProperties, HoldWhilePoliciesChange) {
  int in_flight = 0, waiting = 0;
  for (std::uint64_t seed = 1; seed <= effort(300U, 3000U); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Play play(seed, std::nullopt);
    play.run(120);
    if (::testing::Test::HasFailure()) return;
    in_flight += play.under_new_policy().first;
    waiting += play.under_new_policy().second;
  }
  EXPECT_GT(in_flight, effort(300, 3000));
  EXPECT_GT(waiting, effort(300, 3000));
}

// Given the other policies, set by flag, and sequences of 120 random events; expects the promises for every policy to hold
// after each.
TEST(RouterProperties, HoldUnderEveryPolicy) {
  for (const auto policy : dispatch::kAllPolicies) {
    for (std::uint64_t seed = 1; seed <= effort(20U, 400U); ++seed) {
      SCOPED_TRACE(std::string(dispatch::to_string(policy)) + ", seed " + std::to_string(seed));
      Play play(seed, policy);
      play.run(120);
      if (::testing::Test::HasFailure()) return;
    }
  }
}

// Given Splitwise's policy with its mixed pool; expects the same promises, second steps, and phases at workers of the other
// role.
TEST(RouterProperties, HoldWithAMixedPool) {
  int second_steps = 0, mixed = 0;
  for (std::uint64_t seed = 1; seed <= effort(300U, 3000U); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Play play(seed, dispatch::PolicyKind::kSplitwise);
    play.run(seed % 20 == 0 ? 600 : 120);
    if (::testing::Test::HasFailure()) return;
    second_steps += play.second_steps();
    mixed += play.mixed();
  }
  EXPECT_GT(second_steps, effort(200, 2000));
  EXPECT_GT(mixed, effort(200, 2000));
}

// A table of prefill chains p0, p1 ... with these weights for the decode chains d0, d1 ..., all with the same rate and
// capacity.
dispatch::RoutingTable weighted_table(std::int64_t counter, const std::vector<std::vector<double>>& weights, int capacity) {
  dispatch::ModelRoute route;
  route.served_name = "m";
  route.max_queued = 1000000;
  for (std::size_t d = 0; d < weights.front().size(); ++d) {
    const std::string id = "d" + std::to_string(d);
    route.chains.push_back({id, {id + ":80"}, dispatch::Role::kDecode, 1, capacity});
  }
  for (std::size_t p = 0; p < weights.size(); ++p) {
    const std::string id = "p" + std::to_string(p);
    route.chains.push_back({id, {id + ":80"}, dispatch::Role::kPrefill, 1, 1000});
    for (std::size_t d = 0; d < weights[p].size(); ++d) {
      route.chains.back().decode_weights.push_back({static_cast<int>(d), weights[p][d]});
    }
  }
  return {{1, counter}, {route}};
}

// Given random weights (including 0) and requests that end in any order while nothing is full, with the same table sent again
// from time to time; expects each decode chain to have its share of each prefill chain's requests at any time, to within two,
// and those of weight 0 to have none.
TEST(RouterProperties, SecondStepsFollowTheWeights) {
  for (std::uint64_t seed = 1; seed <= effort(25U, 100U); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed, "weights");
    const auto decodes = static_cast<std::size_t>(rng.integer(1, 5));
    std::vector<std::vector<double>> weights(static_cast<std::size_t>(rng.integer(1, 3)));
    for (auto& of : weights) {
      for (std::size_t d = 0; d < decodes; ++d) of.push_back(rng.integer(0, 3) == 0 ? 0 : 0.05 + rng.uniform());
      of[static_cast<std::size_t>(rng.integer(0, static_cast<std::int64_t>(decodes) - 1))] = 1;
    }
    Router router(RouterOptions{1000000, 60, 600, dispatch::PolicyKind::kJffc, seed});
    std::int64_t counter = 1;
    ASSERT_TRUE(router.table_changed(0, weighted_table(counter, weights, 1000)).accepted);
    std::map<std::string, std::map<std::string, int>> sent;
    std::map<std::string, int> sent_by;
    for (RequestId id = 1; id <= 200; ++id) {
      const auto first = std::get<Dispatch>(router.arrived(0, id, "m", true).at(0));
      if (rng.integer(0, 9) == 0) (void)router.table_changed(0, weighted_table(++counter, weights, 1000));
      const auto second = std::get<Dispatch>(router.prefilled(0, id).at(0));
      ASSERT_EQ(second.step, Step::kDecode);
      ++sent[first.chain][second.chain];
      ++sent_by[first.chain];
      if (rng.integer(0, 1) == 0) (void)router.completed(0, static_cast<RequestId>(rng.integer(1, 200)), {});
      for (std::size_t p = 0; p < weights.size(); ++p) {
        const std::string from = "p" + std::to_string(p);
        double together = 0;
        for (const double weight : weights[p]) together += weight;
        for (std::size_t d = 0; d < decodes; ++d) {
          const int count = sent[from]["d" + std::to_string(d)];
          ASSERT_NEAR(count, sent_by[from] * weights[p][d] / together, weights[p][d] > 0 ? 2 : 0);
        }
      }
    }
  }
}

}  // namespace
}  // namespace windlass::gateway
