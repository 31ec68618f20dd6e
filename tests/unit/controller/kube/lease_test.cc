// LeaderElector: acquiring, renewing, losing and releasing; and seeded runs in which two candidates must never lead at the same
// time.
#include "controller/kube/lease.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/effort.h"
#include "tests/unit/controller/kube/world.h"

namespace windlass::kube {
namespace {

using namespace resources;
using nlohmann::json;

LeaseOptions options_for(const std::string& identity) {
  LeaseOptions options;
  options.name_space = "default";
  options.identity = identity;
  options.seed = std::hash<std::string>()(identity);
  return options;
}

// One controller: a transport, a client and an elector, with a clock of its own rate and origin.
struct Candidate {
  Candidate(fakes::FakeApiServer& api, const std::string& identity, double origin_s = 0, double rate = 1)
      : wire(api.connect(identity)),
        client(*wire, api.url(), *credentials),
        elector(client, options_for(identity)),
        origin_s(origin_s),
        rate(rate) {
    client.set_write_gate([] { return false; });  // the elector's own requests must pass the gate
  }
  [[nodiscard]] double local(double true_s) const { return origin_s + true_s * rate; }
  [[nodiscard]] Instant instant(double true_s) const { return {wall_offset_s + true_s, local(true_s)}; }
  [[nodiscard]] bool leading(double true_s) const { return elector.leading(local(true_s)); }
  [[nodiscard]] bool due(double true_s) const { return local(true_s) >= elector.next_step_at(); }
  void step(double true_s) { elector.step(instant(true_s)); }

  std::unique_ptr<fakes::FakeConnection> wire;
  std::unique_ptr<CredentialSource> credentials = no_credentials();
  KubeClient client;
  LeaderElector elector;
  double origin_s, rate;
  double wall_offset_s = 1.7e9;
  bool busy = false;
};

json lease_of(const fakes::FakeApiServer& api) { return *api.object(kLeases, "default", "windlass-controller"); }

// Given no lease; expects the first step to create one with our name, and term 1.
TEST(LeaderElector, CreatesTheLease) {
  fakes::FakeApiServer api;
  Candidate a(api, "a");
  EXPECT_FALSE(a.leading(0));
  a.step(0);
  EXPECT_TRUE(a.leading(0));
  EXPECT_EQ(a.elector.term(), 1);
  EXPECT_EQ(a.elector.holder(), "a");
  json spec = lease_of(api)["spec"];
  EXPECT_EQ(spec["holderIdentity"], "a");
  EXPECT_EQ(spec["leaseDurationSeconds"], 15);
  EXPECT_EQ(spec["leaseTransitions"], 1);
  EXPECT_EQ(spec["acquireTime"], "2023-11-14T22:13:20.000000Z");
}

// Given a leader that gets no answers any more; expects leading() to become false at the renew deadline without a call of
// step().
TEST(LeaderElector, LeadingEndsAtTheRenewDeadline) {
  fakes::FakeApiServer api;
  Candidate a(api, "a");
  a.step(0);
  EXPECT_TRUE(a.leading(9.99));
  EXPECT_FALSE(a.leading(10));
  EXPECT_FALSE(a.leading(1e9));
}

// Given renewals every retry period; expects the leader to keep leading, with one request each.
TEST(LeaderElector, Renews) {
  fakes::FakeApiServer api;
  Candidate a(api, "a");
  for (double t = 0; t < 100; t += 0.5) {
    a.step(t);
    ASSERT_TRUE(a.leading(t));
  }
  EXPECT_EQ(a.elector.term(), 1);
  EXPECT_LE(a.wire->log().size(), 2U + 50U);
}

// Given a silent leader; expects a rival to take over no earlier than 15 s after it saw the last renewal, with the next term,
// and the old leader to stand by when it returns.
TEST(LeaderElector, RivalTakesOverAfterTheLeaseRanOut) {
  fakes::FakeApiServer api;
  Candidate a(api, "a"), b(api, "b", 5000, 1);
  a.step(0);
  double took_s = 0;
  for (double t = 0; t < 40 && took_s == 0; t += 0.25) {
    b.step(t);
    if (b.leading(t)) took_s = t;
  }
  EXPECT_GE(took_s, 15);
  EXPECT_LE(took_s, 18);
  EXPECT_EQ(b.elector.term(), 2);
  a.step(41);
  EXPECT_FALSE(a.leading(41));
  EXPECT_EQ(a.elector.holder(), "b");
}

// Given a candidate whose read of the lease takes 34 s, while another acquires and renews it; expects that it does not treat
// the record as 34 s old, because then two would lead.
TEST(LeaderElector, ALongRequestDoesNotMakeTheRivalLookDead) {
  fakes::FakeApiServer api;
  Candidate a(api, "a"), b(api, "b");
  a.step(0);
  ASSERT_TRUE(a.leading(0));
  bool stood_still = false;
  a.wire->drop_request = [&](const HttpRequest&) {
    if (!stood_still) {
      stood_still = true;
      for (double t = 2; t < 36; t += 0.5) b.step(t);
    }
    return false;
  };
  a.step(2);
  ASSERT_TRUE(stood_still);
  ASSERT_TRUE(b.leading(36));
  a.step(36);
  a.step(38);
  EXPECT_FALSE(a.leading(38));
  EXPECT_EQ(a.elector.holder(), "b");
}

// Given a release; expects the leader to stop immediately and a rival to lead at its next step, without waiting for the lease's
// duration.
TEST(LeaderElector, ReleaseLetsTheNextOneIn) {
  fakes::FakeApiServer api;
  Candidate a(api, "a"), b(api, "b");
  a.step(0);
  b.step(1);
  EXPECT_FALSE(b.leading(1));
  ASSERT_TRUE(a.elector.release(a.instant(2)).ok());
  EXPECT_FALSE(a.leading(2));
  b.step(4);
  EXPECT_TRUE(b.leading(4));
  EXPECT_EQ(b.elector.term(), 2);
}

// Given a new process with the identity of a silent one; expects it to wait like any rival and to start a new term, and the old
// one not to lead when it returns.
TEST(LeaderElector, TheSameIdentityIsNotTheSameTerm) {
  fakes::FakeApiServer api;
  Candidate first(api, "a"), second(api, "a");
  second.wall_offset_s += 3600;
  first.step(0);
  second.step(1);
  EXPECT_FALSE(second.leading(1));
  for (double t = 1; t < 25; t += 0.5) second.step(t);
  EXPECT_TRUE(second.leading(24.5));
  EXPECT_EQ(second.elector.term(), 2);
  first.step(25);
  EXPECT_FALSE(first.leading(25)) << "the holder has its name, but the tenure is another's";
}

// Given an acquisition whose response is lost; expects the next step to see that the lease is ours and to lead.
TEST(LeaderElector, RecognisesItsTermWhenTheAnswerWasLost) {
  fakes::FakeApiServer api;
  Candidate a(api, "a");
  int requests = 0;
  a.wire->drop_request = [&](const HttpRequest&) {
    a.wire->faults.drop_after = ++requests == 2 ? 1 : 0;  // the create
    return false;
  };
  a.step(0);
  EXPECT_FALSE(a.leading(0));
  EXPECT_EQ(lease_of(api)["spec"]["holderIdentity"], "a");
  a.step(3);
  EXPECT_TRUE(a.leading(3));
  EXPECT_EQ(a.elector.term(), 1);
}

// Given labels that somebody else put on the Lease; expects our renewals to keep them.
TEST(LeaderElector, KeepsOthersMetadata) {
  fakes::FakeApiServer api;
  Candidate a(api, "a");
  a.step(0);
  api.edit(kLeases, "default", "windlass-controller", [](json& lease) { lease["metadata"]["labels"]["team"] = "x"; });
  for (double t = 0; t < 10; t += 1) a.step(t);
  EXPECT_TRUE(a.leading(9.5));
  EXPECT_EQ(lease_of(api)["metadata"]["labels"]["team"], "x");
}

// Given a deleted lease; expects a term above every earlier one.
TEST(LeaderElector, TermsGrowPastADeletedLease) {
  fakes::FakeApiServer api;
  Candidate a(api, "a");
  a.step(0);
  api.edit(kLeases, "default", "windlass-controller", [](json& lease) { lease["spec"]["leaseTransitions"] = 7; });
  a.step(3);
  api.delete_object(kLeases, "default", "windlass-controller");
  a.step(6);
  EXPECT_TRUE(a.leading(6));
  EXPECT_EQ(a.elector.term(), 8);
}

// Given contradictory durations; expects messages with the rule and the value.
TEST(LeaderElector, RefusesImpossibleDurations) {
  LeaseOptions options = options_for("a");
  EXPECT_TRUE(LeaderElector::validate(options).ok());
  options.renew_deadline_s = 20;
  auto refused = LeaderElector::validate(options);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message, "lease: lease duration: must be more than the renew deadline of 20 s (got 15 s)");
  options = options_for("");
  EXPECT_EQ(LeaderElector::validate(options).error().message, "lease: identity: must be set (got nothing)");
}

// Given two or three electors with their own clocks, latency, lost requests and responses, errors, partitions and pauses, by
// seed; expects that two never lead at the same time, that terms grow with every new leader, and that one leads again after
// recovery.
TEST(LeaderElector, TwoNeverLeadAtTheSameTime) {
  int failovers = 0;
  for (std::uint64_t seed = 1; seed <= effort(16U, 150U); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng random(seed, "lease test");
    fakes::FakeApiServer api({.seed = seed});
    std::vector<std::unique_ptr<Candidate>> all;
    for (std::int64_t i = 0, n = random.integer(2, 3); i < n; ++i) {
      all.push_back(
          std::make_unique<Candidate>(api, "c" + std::to_string(i), random.uniform(0, 1e6), random.uniform(0.9, 1.1)));
      all.back()->wall_offset_s += random.uniform(-1e5, 1e5);  // unsynchronized wall clocks
      fakes::FaultRates& faults = all.back()->wire->faults;
      faults.latency_s = random.uniform(0, 1.5);
      faults.drop_before = random.uniform(0, 0.2);
      faults.drop_after = random.uniform(0, 0.2);
      faults.error_500 = random.uniform(0, 0.2);
    }
    std::int64_t highest_term = 0;
    Candidate* last_leader = nullptr;
    bool violated = false;
    int depth = 0;
    auto check = [&] {
      Candidate* leader = nullptr;
      for (auto& candidate : all) {
        if (!candidate->leading(api.now())) continue;
        violated = violated || leader != nullptr;
        leader = candidate.get();
      }
      if (leader == nullptr) return;
      std::int64_t term = leader->elector.term();
      violated = violated || term < highest_term || (leader != last_leader && term == highest_term);
      if (last_leader != nullptr && leader != last_leader) ++failovers;
      highest_term = term;
      last_leader = leader;
    };
    // While one candidate waits for a response, time passes for all, and the others take their own steps.
    std::function<void(double)> elapse = [&](double seconds) {
      double end_s = api.now() + seconds;
      ++depth;
      while (api.now() < end_s) {
        api.set_now(std::min(end_s, api.now() + 0.25));
        check();
        for (auto& candidate : all) {
          if (depth > 3 || candidate->busy || !candidate->due(api.now()) || random.uniform() < 0.1) continue;
          candidate->busy = true;
          candidate->step(api.now());
          candidate->busy = false;
          check();
        }
      }
      --depth;
    };
    api.on_elapse = elapse;
    for (int i = 0; i < 60 && !violated; ++i) {
      auto& candidate = all[static_cast<std::size_t>(random.integer(0, static_cast<std::int64_t>(all.size()) - 1))];
      double dice = random.uniform();
      if (dice < 0.15) candidate->wire->partitioned = !candidate->wire->partitioned;
      if (dice > 0.9 && !candidate->busy) {  // the process is suspended for a while, as by a debugger or a live migration
        candidate->busy = true;
        elapse(random.uniform(0, 30));
        candidate->busy = false;
      }
      if (dice > 0.85 && dice < 0.88) {
        candidate->busy = true;
        (void)candidate->elector.release(candidate->instant(api.now()));
        candidate->busy = false;
      }
      elapse(random.uniform(0, 8));
    }
    ASSERT_FALSE(violated);
    for (auto& candidate : all) {
      candidate->wire->partitioned = false;
      candidate->wire->faults = {};
    }
    elapse(60);
    ASSERT_FALSE(violated);
    bool somebody = false;
    for (auto& candidate : all) somebody = somebody || candidate->leading(api.now());
    EXPECT_TRUE(somebody);
  }
  EXPECT_GT(failovers, effort(8, 100));
}

}  // namespace
}  // namespace windlass::kube
