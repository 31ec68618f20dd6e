// ProbeSchedule in virtual time: how many probes it sends for tables of every size, and how soon it notices a dead worker.
#include "gateway/probe_schedule.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace windlass::gateway {
namespace {

// Workers that answer immediately, except the dead ones: a probe of a dead worker takes its full time.
struct Fleet {
  explicit Fleet(int count) {
    for (int i = 0; i < count; ++i) addresses.insert(name(i));
    set();
  }
  static std::string name(int i) { return fmt::format("10.0.{}.{}:8000", i / 256, i % 256); }
  void set() {
    schedule.set_addresses(addresses, now_s, [this](const ProbeSchedule::Target& one) { removed.insert(one.address); });
  }
  void run(double seconds) {
    for (const double end_s = now_s + seconds; now_s < end_s; now_s += ProbeSchedule::kLookEveryS / 2) step();
  }
  void step() {
    for (auto it = late.begin(); it != late.end() && it->first <= now_s;) {
      const auto target = it->second;
      it = late.erase(it);
      schedule.done(target, now_s, Probe::kNoConnection);
      if (target->asking) ask(target);
    }
    if (now_s + 1e-9 < next_look_s) return;
    next_look_s = now_s + ProbeSchedule::kLookEveryS;
    for (const auto& target : schedule.due(now_s)) ask(target);
  }
  void ask(const ProbeSchedule::TargetPtr& target) {
    ++probes;
    ++asked[target->address];
    if (gone.contains(target->address)) {
      late.emplace(now_s + ContactTracker::kProbeTimeoutS, target);
    } else {
      schedule.done(target, now_s, Probe::kAnswered);
    }
  }
  [[nodiscard]] Contact contact(int i) const { return schedule.find(name(i))->tracker.contact(); }

  ProbeSchedule schedule;
  std::set<std::string> addresses, gone, removed;
  std::multimap<double, ProbeSchedule::TargetPtr> late;
  std::map<std::string, int> asked;
  double now_s = 100, next_look_s = 100;
  int probes = 0;
};

// Given a small table of idle workers; expects each to be probed at the full pace, so that a vanished one is noticed within 2 s
// even without requests, whenever it vanishes.
TEST(ProbeSchedule, SmallTablesAreProbedAtTheFullPace) {
  for (int phase = 0; phase < 20; ++phase) {
    Fleet fleet(50);
    fleet.run(3 + phase * 0.05);
    EXPECT_GE(fleet.asked[Fleet::name(0)], 5);
    fleet.gone.insert(Fleet::name(7));
    fleet.run(2);
    EXPECT_EQ(fleet.contact(7), Contact::kUnreachable) << phase;
    EXPECT_EQ(fleet.contact(8), Contact::kAnswers);
  }
}

// Given ten thousand idle workers for a minute; expects the probes to stay within their allowance, and each worker to have its
// turn.
TEST(ProbeSchedule, LargeTablesAreBounded) {
  Fleet fleet(10'000);
  fleet.run(60);
  EXPECT_LE(fleet.probes, 61 * ProbeSchedule::kIdleProbesPerS);
  EXPECT_GE(fleet.probes, 55 * ProbeSchedule::kIdleProbesPerS);
  EXPECT_EQ(fleet.asked.size(), 10'000U);
  for (const auto& [address, count] : fleet.asked) EXPECT_LE(count, 2) << address;
}

// Given ten thousand workers of which some hold requests and send nothing; expects one of these that vanishes, and an idle one
// that vanished before its first request, to be out within 2 s, at every moment.
TEST(ProbeSchedule, AVanishedBusyWorkerIsNoticed) {
  for (int phase = 0; phase < 20; ++phase) {
    Fleet fleet(10'000);
    std::vector<std::shared_ptr<void>> requests;
    for (int i = 0; i < 100; ++i) requests.push_back(fleet.schedule.use(Fleet::name(i * 97)));
    fleet.run(1 + phase * 0.05);
    fleet.gone = {Fleet::name(97), Fleet::name(5001)};
    requests.push_back(fleet.schedule.use(Fleet::name(5001)));
    fleet.run(2);
    EXPECT_EQ(fleet.contact(97), Contact::kUnreachable) << phase;
    EXPECT_EQ(fleet.contact(5001), Contact::kUnreachable) << phase;
    EXPECT_EQ(fleet.contact(0), Contact::kAnswers);
  }
}

// Given workers that hold requests, one of which sends bytes all the time; expects only the silent one to be probed, and to be
// idle again when its request ends.
TEST(ProbeSchedule, AWorkerThatSendsIsNotProbed) {
  Fleet fleet(10'000);
  auto speaking = fleet.schedule.use(Fleet::name(1));
  auto silent = fleet.schedule.use(Fleet::name(2));
  fleet.run(45);  // every worker had a turn
  fleet.asked.clear();
  for (int i = 0; i < 100; ++i) {
    (void)fleet.schedule.find(Fleet::name(1))->tracker.heard(fleet.now_s);
    fleet.run(0.1);
  }
  EXPECT_EQ(fleet.asked[Fleet::name(1)], 0);
  EXPECT_GE(fleet.asked[Fleet::name(2)], 15);
  silent.reset();
  fleet.asked.clear();
  fleet.run(10);
  EXPECT_LE(fleet.asked[Fleet::name(2)], 2);
}

// Given a thousand of ten thousand workers that vanish, are noticed in turn, and return; expects failing workers to have their
// own allowance, and all to answer again soon.
TEST(ProbeSchedule, LostWorkersComeBack) {
  Fleet fleet(10'000);
  for (int i = 0; i < 1000; ++i) fleet.gone.insert(Fleet::name(i * 10));
  fleet.run(60);
  int lost = 0;
  for (int i = 0; i < 10'000; ++i) lost += fleet.contact(i) == Contact::kAnswers ? 0 : 1;
  EXPECT_EQ(lost, 1000);
  const int before = fleet.probes;
  fleet.run(10);
  EXPECT_LE(fleet.probes - before, 10 * (2 * ProbeSchedule::kIdleProbesPerS) + 200);
  fleet.gone.clear();
  fleet.run(8);
  for (int i = 0; i < 10'000; ++i) ASSERT_EQ(fleet.contact(i), Contact::kAnswers) << i;
}

// Given a worker that leaves the table with a request, and one that leaves during its probe; expects both to be reported, no
// more probes, and no harm from the request's end.
TEST(ProbeSchedule, RemovedWorkersAreForgotten) {
  Fleet fleet(3);
  auto request = fleet.schedule.use(Fleet::name(0));
  fleet.gone.insert(Fleet::name(1));
  fleet.run(1);
  fleet.addresses = {Fleet::name(2)};
  fleet.set();
  EXPECT_EQ(fleet.removed, (std::set<std::string>{Fleet::name(0), Fleet::name(1)}));
  fleet.late.clear();
  fleet.asked.clear();
  fleet.run(2);
  EXPECT_EQ(fleet.asked.size(), 1U);
  request.reset();
  EXPECT_EQ(fleet.schedule.find(Fleet::name(0)), nullptr);
  EXPECT_EQ(fleet.schedule.use(Fleet::name(0)), nullptr);
  EXPECT_EQ(fleet.schedule.size(), 1U);
}

}  // namespace
}  // namespace windlass::gateway
