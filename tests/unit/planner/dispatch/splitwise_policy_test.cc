// Splitwise's mixed pool: which machine gets which phase of a request, and the books of a gateway's policy.
#include "planner/dispatch/splitwise_policy.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "planner/base/rng.h"
#include "planner/dispatch/mixed_pool.h"
#include "planner/dispatch/packed_worker.h"
#include "tests/effort.h"

namespace windlass::dispatch {
namespace {

struct Machine {
  bool is_mixed = false;
  int waits = 0;
  std::int64_t tokens = 0, promised = 0, room = 1000;
  bool admits = true;

  [[nodiscard]] bool mixed() const { return is_mixed; }
  [[nodiscard]] int waiting() const { return waits; }
  [[nodiscard]] std::int64_t pending() const { return tokens; }
  [[nodiscard]] bool has_unpromised(std::int64_t more) const { return promised + more <= room; }
};

// Machines numbered from `first` on.
struct Pool {
  std::vector<Machine> machines;
  int first = 0;

  [[nodiscard]] const Machine& at(int number) const { return machines[static_cast<std::size_t>(number - first)]; }
  template <class Passes, class Key>
  [[nodiscard]] int least(Passes passes, Key key) const {
    int best = -1;
    for (int i = first; i < first + static_cast<int>(machines.size()); ++i) {
      if (passes(at(i)) && (best < 0 || key(at(i)) < key(at(best)))) best = i;
    }
    return best;
  }
  template <class Passes>
  [[nodiscard]] int fewest_pending(Passes passes) const {
    return least(passes, [](const Machine& machine) { return machine.tokens; });
  }
  template <class Passes>
  [[nodiscard]] int fewest_promised(Passes passes) const {
    return least(passes, [](const Machine& machine) { return machine.promised; });
  }
  template <class Passes>
  [[nodiscard]] int preferred(Passes passes) const {
    return fewest_pending(passes);
  }
};

bool admitted(const Machine& machine) { return machine.admits; }

// Given the paper's order: the own pool while its shortest queue is at most the threshold; then the mixed pool, own role first,
// where the queue is short; then the other pool; then the own role whatever its queue. Expects machine_by_queue() to choose so
// on random machines.
TEST(MixedPool, FollowsThePapersOrder) {
  for (std::uint64_t seed = 1; seed <= effort(2000U, 100'000U); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed, "machines");
    Pool own, other;
    own.machines.resize(static_cast<std::size_t>(rng.integer(0, 4)));
    other.machines.resize(static_cast<std::size_t>(rng.integer(0, 4)));
    other.first = 100;
    const std::int64_t tokens = rng.integer(1, 5), threshold = rng.integer(0, 20);
    for (Pool* pool : {&own, &other}) {
      for (Machine& one : pool->machines) {
        one = {rng.integer(0, 2) == 0, static_cast<int>(rng.integer(0, 2)), rng.integer(0, 20), 0, 0, rng.integer(0, 5) != 0};
      }
    }
    const auto is_short = [&](const Machine& one) { return one.waits == 0 || one.tokens + tokens <= threshold; };
    const auto pure = [](const Machine& one) { return one.admits && !one.is_mixed; };
    const int shortest = own.fewest_pending(pure);
    // (how late in the order, pending tokens, number)
    std::vector<std::tuple<int, std::int64_t, int>> order;
    for (const Pool* pool : {&own, &other}) {
      for (std::size_t i = 0; i < pool->machines.size(); ++i) {
        const Machine& one = pool->machines[i];
        const int number = pool->first + static_cast<int>(i);
        const bool mine = pool == &own;
        if (!one.admits) continue;
        int rank = mine ? 4 : 5;
        if (number == shortest && is_short(one))
          rank = 0;
        else if (one.is_mixed && is_short(one))
          rank = mine ? 1 : 2;
        else if (!one.is_mixed && !mine)
          rank = 3;
        if (rank < 5) order.emplace_back(rank, one.tokens, number);
      }
    }
    const int expected = order.empty() ? -1 : std::get<2>(*std::min_element(order.begin(), order.end()));
    ASSERT_EQ(machine_by_queue(own, other, tokens, threshold, admitted), expected);
  }
}

// Given machines with and without room; expects the tokens at the one of the token pool with the least promised; then in the
// mixed pool; then at a prompt machine; and where nobody has room, at the token machine with the least promised. Without a
// mixed pool the pools do not count.
TEST(MixedPool, TokensGoWhereMemoryIs) {
  Pool tokens{{{.promised = 500}, {.promised = 300}, {.is_mixed = true, .promised = 100}}};
  Pool prompts{{{.promised = 50}, {.is_mixed = true, .promised = 200}}, 10};
  const auto chosen = [&](std::int64_t needed, bool mixed_pool = true) {
    return machine_by_memory(tokens, prompts, needed, mixed_pool, admitted);
  };
  EXPECT_EQ(chosen(100), 1);
  EXPECT_EQ(chosen(100, false), 2);
  EXPECT_EQ(chosen(800), 2) << "the token machine of the mixed pool";
  tokens.machines[2].admits = false;
  EXPECT_EQ(chosen(800), 11) << "the prompt machine that is in the mixed pool already";
  EXPECT_EQ(chosen(900), 10) << "a prompt machine enters the mixed pool";
  EXPECT_EQ(chosen(900, false), 1);
  EXPECT_EQ(chosen(1000), 1) << "nobody has room";
}

// Two prefill and two decode chains, keys 1 to 4, of four slots each.
class SplitwiseBooks : public ::testing::Test {
 protected:
  SplitwiseBooks() {
    memory_.kv_capacity_tokens = 1000;
    for (int k = 0; k < 4; ++k) {
      ChainState state{1, 4, 0, false, static_cast<std::uint64_t>(k + 1), &memory_};
      state.role = k < 2 ? Role::kPrefill : Role::kDecode;
      states_.push_back(state);
    }
    policy_.reset(states_);
  }

  std::size_t place(std::uint64_t id, int tokens, int output_tokens = 50) {
    const RequestLengths request{id, tokens, output_tokens};
    const auto chain = policy_.choose_for(request, 0);
    EXPECT_TRUE(chain.has_value());
    policy_.placed(*chain, request);
    return *chain;
  }
  std::optional<std::size_t> second(std::uint64_t id) {
    return policy_.second_step({id, 0, 0}, [this](std::size_t chain) { return !full_.contains(chain); });
  }

  PackingModel memory_;
  std::vector<ChainState> states_;
  std::set<std::size_t> full_;
  SplitwisePolicy policy_{300};
};

// Given prompts that fill the queues of both prefill chains; expects the next ones at decode chains, which serve them whole and
// are in the mixed pool until the first token; a prompt that a worker has begun is no queue.
TEST_F(SplitwiseBooks, ABurstOfPromptsGoesToDecodeChains) {
  EXPECT_EQ(place(1, 200), 0U);
  EXPECT_EQ(place(2, 200), 1U);
  EXPECT_FALSE(policy_.stays(1));
  EXPECT_EQ(policy_.mixed_chains(), 0);
  EXPECT_EQ(place(3, 200), 2U);
  EXPECT_TRUE(policy_.stays(3));
  EXPECT_EQ(policy_.mixed_chains(), 1);
  policy_.begun(1);
  EXPECT_EQ(place(4, 150), 0U);
  policy_.first_token(3, 0);
  EXPECT_EQ(policy_.mixed_chains(), 0) << "it only makes tokens again";
  policy_.ended(3, 50);
  for (const std::uint64_t id : {1, 2, 4}) policy_.first_token(id, 0);
  EXPECT_EQ(place(5, 290), 0U);
}

// Given a second prompt that fits below the threshold; expects it at the shorter queue of the own pool.
TEST_F(SplitwiseBooks, ShortQueuesStayInTheirPool) {
  EXPECT_EQ(place(1, 100), 0U);
  EXPECT_EQ(place(2, 90), 1U);
  EXPECT_EQ(place(3, 90), 1U);
  EXPECT_EQ(place(4, 90), 0U);
  EXPECT_EQ(policy_.mixed_chains(), 0);
}

// Given decode chains whose memory is promised; expects a request to stay at the prefill chain of its prompt, which is in the
// mixed pool until the request ends.
TEST_F(SplitwiseBooks, TokensWithoutRoomGoToPrefillChains) {
  for (const std::uint64_t id : {1, 2}) {
    place(id, 100, 850);
    EXPECT_GE(second(id).value(), 2U);
    policy_.first_token(id, 0);
  }
  EXPECT_EQ(place(3, 100), 0U);
  EXPECT_TRUE(policy_.stays(3));
  EXPECT_EQ(policy_.mixed_chains(), 1);
  policy_.ended(3, 50);
  EXPECT_EQ(policy_.mixed_chains(), 0);
}

// Given a promised chain that is full when the prompt is ready; expects the other decode chain, to which the promise moves; and
// no chain while all are full.
TEST_F(SplitwiseBooks, APromiseMovesToAFreeChain) {
  place(1, 100);
  const std::size_t promised = second(1).value();
  full_.insert(promised);
  const std::size_t other = second(1).value();
  EXPECT_NE(other, promised);
  EXPECT_GE(other, 2U);
  full_.clear();
  EXPECT_EQ(second(1), other);
  for (std::size_t k = 0; k < 4; ++k) full_.insert(k);
  EXPECT_EQ(second(1), std::nullopt);
  full_.clear();
  EXPECT_EQ(second(1), other);
}

// Given only prefill chains that take requests, or only decode chains; expects whole requests there. Given none; expects none.
TEST_F(SplitwiseBooks, OneRoleServesAlone) {
  for (const std::size_t k : {2, 3}) states_[k].draining = true;
  policy_.reset(states_);
  EXPECT_LT(place(1, 100), 2U);
  EXPECT_TRUE(policy_.stays(1));
  for (std::size_t k = 0; k < 4; ++k) states_[k].draining = k < 2;
  policy_.reset(states_);
  EXPECT_GE(place(2, 5000), 2U);
  EXPECT_TRUE(policy_.stays(2));
  for (ChainState& state : states_) state.draining = true;
  policy_.reset(states_);
  EXPECT_EQ(policy_.choose(), std::nullopt);
}

// Given prefill chains that make no tokens; expects their prompts to be promised to decode chains, also without room there, no
// second step at them, and none of them while no decode chain takes requests.
TEST_F(SplitwiseBooks, AChainThatKeepsToItsRoleMakesNoTokens) {
  for (const std::size_t k : {0, 1}) states_[k].own_role_only = true;
  policy_.reset(states_);
  for (const std::uint64_t id : {1, 2, 3}) {
    EXPECT_LT(place(id, 100, 850), 2U);
    EXPECT_FALSE(policy_.stays(id));
    policy_.begun(id);
    policy_.first_token(id, 0);
  }
  full_ = {2, 3};
  EXPECT_EQ(second(1), std::nullopt);
  states_[1].own_role_only = false;
  policy_.update(1, states_[1]);
  policy_.ended(3, 50);
  EXPECT_EQ(second(2), 1U);
  for (const std::size_t k : {2, 3}) states_[k].draining = true;
  policy_.reset(states_);
  EXPECT_EQ(policy_.choose(), 1U);
  states_[1].own_role_only = true;
  policy_.update(1, states_[1]);
  EXPECT_EQ(policy_.choose(), std::nullopt);
}

// Given two gateways with half of each chain; expects the threshold to be reached with half of the tokens.
TEST_F(SplitwiseBooks, PendingTokensAreScaledByTheShare) {
  for (ChainState& state : states_) state.share = 0.5;
  policy_.reset(states_);
  EXPECT_EQ(place(1, 140), 0U);
  EXPECT_EQ(place(2, 140), 1U);
  EXPECT_GE(place(3, 30), 2U);
}

// Given random histories of requests, tables and late reports; expects every count to return to nothing: no chain is mixed, and
// the next prompts go where they would go at the start.
TEST(SplitwisePolicyProperty, BooksReturnToNothing) {
  for (std::uint64_t seed = 1; seed <= effort(200U, 5000U); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed, "history");
    PackingModel memory;
    memory.kv_capacity_tokens = 2000;
    std::vector<ChainState> states;
    const auto any_states = [&] {
      states.clear();
      for (std::uint64_t key = 1; key <= 5; ++key) {
        if (rng.integer(0, 4) == 0) continue;
        ChainState state{1, static_cast<int>(rng.integer(0, 3)), 0, rng.integer(0, 4) == 0, key, &memory};
        state.role = static_cast<Role>(rng.integer(0, 2));
        state.own_role_only = rng.integer(0, 3) == 0;
        states.push_back(state);
      }
    };
    SplitwisePolicy policy(100);
    any_states();
    policy.reset(states);
    for (int event = 0; event < 150; ++event) {
      const RequestLengths request{static_cast<std::uint64_t>(rng.integer(1, 12)), static_cast<int>(rng.integer(0, 90)), 0};
      switch (rng.integer(0, 6)) {
        case 0:
        case 1:
          if (const auto chain = policy.choose_for(request, 0)) {
            ASSERT_TRUE(states[*chain].takes_requests());
            policy.placed(*chain, request);
          } else {
            for (const ChainState& state : states) {
              ASSERT_FALSE(state.takes_requests() && !(state.own_role_only && state.role == Role::kPrefill));
            }
          }
          break;
        case 2: policy.begun(request.id); break;
        case 3: policy.first_token(request.id, 0); break;
        case 4: policy.ended(request.id, static_cast<int>(rng.integer(0, 50))); break;
        case 5:
          if (const auto chain = policy.second_step(request, [&](std::size_t k) { return k % 2 == 0; })) {
            ASSERT_TRUE(states[*chain].takes_requests());
            ASSERT_EQ(*chain % 2, 0U);
            ASSERT_FALSE(states[*chain].own_role_only && states[*chain].role == Role::kPrefill);
          }
          break;
        default: any_states(); policy.reset(states);
      }
    }
    for (std::uint64_t id = 1; id <= 12; ++id) policy.ended(id, 0);
    EXPECT_EQ(policy.mixed_chains(), 0);
    SplitwisePolicy fresh(100);
    fresh.reset(states);
    for (std::uint64_t id = 1; id <= 12; ++id) {
      const RequestLengths request{id, 60, 40};
      const auto chain = policy.choose_for(request, 0);
      ASSERT_EQ(chain, fresh.choose_for(request, 0));
      if (!chain) break;
      policy.placed(*chain, request);
      fresh.placed(*chain, request);
      ASSERT_EQ(policy.stays(id), fresh.stays(id));
    }
  }
}

}  // namespace
}  // namespace windlass::dispatch
