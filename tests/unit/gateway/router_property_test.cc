// The router under thousands of seeded random event sequences, against a model of what must hold after every event.
#include <cmath>
#include <map>
#include <set>

#include <gtest/gtest.h>

#include "gateway/router.h"
#include "planner/base/rng.h"

namespace windlass::gateway {
namespace {

constexpr double kTtftS = 1;

// Plays random events and checks, after each, the promises of router.h from the outside: it keeps its own books of what was
// dispatched where, from the actions alone.
class Play {
 public:
  Play(std::uint64_t seed, dispatch::PolicyKind policy, dispatch::QueueOrder order = dispatch::QueueOrder::kObjective)
      : rng_(seed, "router"),
        waits_centrally_(dispatch::keeps_requests_back(policy)),
        by_arrival_(order == dispatch::QueueOrder::kArrival),
        by_lengths_(policy == dispatch::PolicyKind::kAladdin),
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
    EXPECT_TRUE(holds_.empty());
  }

 private:
  struct Held {
    std::string model, chain, address;
  };

  std::string any_model() { return rng_.integer(0, 9) == 0 ? "none" : rng_.integer(0, 1) == 0 ? "m0" : "m1"; }

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
      for (int k = 0; k < 4; ++k) {
        if (rng_.integer(0, 2) == 0) continue;
        const std::string id = std::string(name) + "-" + std::to_string(k);
        const std::string address = id + ":" + std::to_string(rng_.integer(0, 9) == 0 ? 81 : 80);
        route.chains.push_back({id,
                                {address},
                                dispatch::Role::kUnified,
                                1.0 + static_cast<double>(rng_.integer(0, 3)),
                                static_cast<int>(rng_.integer(0, 3)),
                                rng_.integer(0, 3) == 0});
        if (!by_lengths_) continue;
        route.chains.back().latency = static_cast<int>(rng_.integer(-1, 1));
        route.chains.back().share = rng_.integer(0, 1) == 0 ? 1 : 0.5;
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
    const auto what = rng_.integer(0, 107);
    if (what < 12) {
      table_ = random_table();
      take(router_.table_changed(now_s_, table_).actions);
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
      if (held) refused_at_[holds_.at(pick).address] = now_s_;
      if (held) holds_.erase(pick);
      take(router_.refused(now_s_, pick, static_cast<Refusal>(rng_.integer(0, 2))));
    } else if (what < 70) {
      router_.accepted(pick);
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

  // A worker falls silent, out of reach or answers again; often while it is not even in the table.
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
    const std::set<RequestId> moved_before = moved_;
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
      } else if (const auto* reject = std::get_if<Reject>(&action)) {
        ASSERT_FALSE(finished_.contains(reject->id));
        ASSERT_FALSE(started_.contains(reject->id)) << "an error response after the answer began";
        ASSERT_TRUE(rejected_.insert(reject->id).second);
      } else if (const auto* cancel = std::get_if<Cancel>(&action)) {
        ASSERT_FALSE(finished_.contains(cancel->id));
        ASSERT_EQ(cancel->nothing_sent, !started_.contains(cancel->id));
      } else if (const auto* recall = std::get_if<Recall>(&action)) {
        ASSERT_TRUE(holds_.contains(recall->id));
        ASSERT_FALSE(started_.contains(recall->id)) << "taken back after its answer began";
        ASSERT_TRUE(moved_.insert(recall->id).second) << "moved twice";
        holds_.erase(recall->id);
      } else if (const auto* dispatch = std::get_if<Dispatch>(&action)) {
        ASSERT_FALSE(finished_.contains(dispatch->id)) << "dispatched after its end";
        ASSERT_FALSE(holds_.contains(dispatch->id)) << "held twice";
        check_dispatch(*dispatch);
        holds_.emplace(dispatch->id, Held{arrived_.at(dispatch->id), dispatch->chain, dispatch->address});
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

  // The chain is in the table, takes requests and has a slot. With one queue for all, an older request of the model waits only
  // if it cannot meet its objective any more (by the largest share of it that a first token is ever thought to take) and this
  // one can.
  void check_dispatch(const Dispatch& dispatch) {
    const std::string& model = arrived_.at(dispatch.id);
    const auto* chain = listed(model, dispatch.chain, dispatch.address);
    ASSERT_NE(chain, nullptr) << "dispatched to a chain that is not in the table";
    ASSERT_FALSE(chain->draining);
    ASSERT_TRUE(answers(dispatch.address)) << "dispatched to a worker that does not answer";
    ASSERT_LT(held_at(dispatch.address), chain->capacity) << "more than its slots";
    for (const auto& [id, name] : arrived_) {
      if (!waits_centrally_) break;
      if (name != model || finished_.contains(id) || holds_.contains(id)) continue;
      if (sequence_.at(id) >= sequence_.at(dispatch.id)) continue;
      ASSERT_FALSE(by_arrival_) << "an older request waits";
      ASSERT_GT(now_s_ - arrived_at_.at(id), kTtftS * (1 - dispatch::FirstTokenTail::kMostShare) - 1e-9)
          << "in time, and older";
      ASSERT_LE(now_s_ - arrived_at_.at(dispatch.id), kTtftS) << "late, and younger";
    }
  }

  bool answers(const std::string& address) const {
    const auto found = contacts_.find(address);
    return found == contacts_.end() || found->second == Contact::kAnswers;
  }

  int held_at(const std::string& address) const {
    int count = 0;
    for (const auto& [id, held] : holds_) count += held.address == address ? 1 : 0;
    return count;
  }

  void check() {
    // The router's own counts agree with ours.
    std::map<std::string, int> waiting;
    for (const auto& [id, model] : arrived_) {
      if (!finished_.contains(id) && !holds_.contains(id)) ++waiting[model];
    }
    int waiting_in_router = 0;
    for (const auto& [model, length] : router_.queue_lengths()) {
      ASSERT_EQ(length, waiting[model]) << model;
      waiting_in_router += length;
    }
    int total_waiting = 0;
    for (const auto& [model, count] : waiting) total_waiting += count;
    ASSERT_EQ(total_waiting, waiting_in_router) << "a request waits for a model that is not in the table";
    int in_flight = 0;
    for (const auto& load : router_.chain_loads()) {
      in_flight += load.in_flight;
      ASSERT_GE(load.in_flight, 0);
    }
    ASSERT_EQ(in_flight, static_cast<int>(holds_.size()));
    ASSERT_EQ(router_.open_requests(), holds_.size() + static_cast<std::size_t>(total_waiting));
    // Nobody waits before a free slot, but for chains that refused within the longest pause; or, where requests wait at chains,
    // nobody waits while every chain that takes requests has a free slot; or, where they are placed by their lengths, before a
    // chain that has nothing.
    for (const auto& route : table_.models) {
      if (waiting[route.served_name] == 0) continue;
      std::string free;
      bool any_full = false;
      for (const auto& chain : route.chains) {
        const auto refused = refused_at_.find(chain.hops.front());
        const bool resting = refused != refused_at_.end() && now_s_ - refused->second <= 2.0;
        if (chain.draining || chain.capacity == 0 || !answers(chain.hops.front())) continue;
        const bool full = held_at(chain.hops.front()) >= (by_lengths_ ? 1 : chain.capacity);
        any_full = any_full || full;
        if (!full && !resting) free = chain.id;
      }
      ASSERT_TRUE(free.empty() || (!waits_centrally_ && any_full)) << "a request waits before a free slot of " << free;
    }
    if (router_.open_requests() > 0) {
      ASSERT_TRUE(router_.next_deadline_s().has_value());
    }
  }

  Rng rng_;
  bool waits_centrally_;  // never at a chain
  bool by_arrival_;
  bool by_lengths_;  // tables say what latencies the chains have
  Router router_;
  dispatch::RoutingTable table_;
  std::int64_t counter_ = 0;
  double now_s_ = 0;
  RequestId next_id_ = 1;
  std::map<RequestId, std::string> arrived_;
  std::map<RequestId, std::size_t> sequence_;
  std::map<RequestId, double> arrived_at_;
  std::map<RequestId, Held> holds_;
  std::set<RequestId> finished_, rejected_, started_;
  std::set<RequestId> moved_;  // a worker may have worked on it in vain
  std::map<std::string, Contact> contacts_;
  std::map<std::string, double> refused_at_;
};

// Given 3,000 seeded sequences of 120 random events (arrivals, tables that add, drain, move and drop chains and models,
// refusals, failures, workers that fall silent and return, completions, clients that leave, late and repeated reports,
// time-outs); every promise of router.h holds after each.
TEST(RouterProperties, HoldOverRandomEvents) {
  for (std::uint64_t seed = 1; seed <= 3000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Play play(seed, dispatch::PolicyKind::kJffc);
    play.run(120);
    if (::testing::Test::HasFailure()) return;
  }
}

// Given 1,000 of them with a queue by arrival; the same.
TEST(RouterProperties, HoldByArrival) {
  for (std::uint64_t seed = 1; seed <= 1000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Play play(seed, dispatch::PolicyKind::kJffc, dispatch::QueueOrder::kArrival);
    play.run(120);
    if (::testing::Test::HasFailure()) return;
  }
}

// Given 20 longer sequences of 600 events; the same.
TEST(RouterProperties, HoldOverLongRuns) {
  for (std::uint64_t seed = 100001; seed <= 100020; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Play play(seed, dispatch::PolicyKind::kJffc);
    play.run(600);
    if (::testing::Test::HasFailure()) return;
  }
}

// Given the other policies, 400 sequences each of 120 random events; the promises that hold for every policy do so after each.
TEST(RouterProperties, HoldUnderEveryPolicy) {
  for (const auto policy : dispatch::kAllPolicies) {
    for (std::uint64_t seed = 1; seed <= 400; ++seed) {
      SCOPED_TRACE(std::string(dispatch::to_string(policy)) + ", seed " + std::to_string(seed));
      Play play(seed, policy);
      play.run(120);
      if (::testing::Test::HasFailure()) return;
    }
  }
}

}  // namespace
}  // namespace windlass::gateway
