// Tests that the servers of a chain are one worker: created, drained, failing and ending together.
#include "controller/runtime/chain_runtime.h"

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/base/rng.h"
#include "tests/effort.h"

namespace windlass::controller {
namespace {

using ::testing::HasSubstr;

// A runtime in memory. Servers become ready, fail and end as a test says.
class Servers final : public WorkerRuntime {
 public:
  void step(Instant now) override { now_ = now; }
  [[nodiscard]] bool synced() const override { return true; }
  [[nodiscard]] std::string problem() const override { return {}; }
  [[nodiscard]] std::vector<Worker> workers() const override { return all; }
  [[nodiscard]] std::map<std::string, GpuCapacity> capacity(const std::vector<ClassSelector>&) const override { return {}; }
  [[nodiscard]] Result<void> check(const Launch&) override { return {}; }
  [[nodiscard]] Result<void> create(const Launch& spec) override {
    if (find(spec.name) != nullptr) return Error{ErrorCode::kAlreadyExists, spec.name};
    if (static_cast<int>(all.size()) >= quota) return Error{ErrorCode::kResourceExhausted, "quota"};
    Worker worker;
    worker.name = spec.name;
    worker.gpus = spec.gpus;
    worker.stages = spec.stages;
    worker.stage = spec.stage;
    worker.spec_hash = spec.hash();
    worker.created_s = now_.wall_s;
    worker.uid = spec.name + "#" + std::to_string(++made_);
    worker.address = "host-" + spec.name + ":80";
    worker.node = "node-" + spec.name;
    all.push_back(worker);
    return {};
  }
  [[nodiscard]] bool name_taken(const std::string&, const std::string&) const override { return false; }
  [[nodiscard]] double not_before_s() const override { return 0; }
  [[nodiscard]] Result<void> set_disruption_budgets(const std::vector<DisruptionBudget>&) override { return {}; }
  [[nodiscard]] Result<void> begin_drain(const Worker& worker, Instant now) override {
    return with(worker, [&](Worker& one) {
      if (!one.draining_since_s) one.draining_since_s = now.wall_s;
    });
  }
  [[nodiscard]] Result<void> begin_role_change(const Worker&, const std::string&, Instant) override { return {}; }
  [[nodiscard]] Result<void> end_role_change(const Worker&) override { return {}; }
  [[nodiscard]] Result<void> terminate(const Worker& worker, std::optional<double>) override {
    return with(worker, [](Worker& one) {
      one.terminating = true;
      one.ready = false;
    });
  }
  [[nodiscard]] Result<void> release(const Worker& worker) override {
    std::erase_if(all, [&](const Worker& one) { return one.name == worker.name && one.finished; });
    return {};
  }

  Worker* find(const std::string& name) {
    const auto found = std::find_if(all.begin(), all.end(), [&](const Worker& one) { return one.name == name; });
    return found == all.end() ? nullptr : &*found;
  }

  std::vector<Worker> all;
  int quota = 1000;

 private:
  template <class Change>
  Result<void> with(const Worker& worker, Change change) {
    Worker* const found = find(worker.name);
    if (found == nullptr || found->uid != worker.uid) return Error{ErrorCode::kNotFound, worker.name};
    change(*found);
    return {};
  }

  Instant now_;
  int made_ = 0;
};

class Chains : public ::testing::Test {
 protected:
  void step(double by_s = 1) {
    now_.wall_s += by_s;
    now_.monotonic_s += by_s;
    const std::vector<Worker> before = servers_.all;
    chains_.step(now_);
    EXPECT_EQ(servers_.all, before) << "step() is also called by controllers that do not lead";
    EXPECT_TRUE(chains_.settle(now_).ok());
  }
  static Launch launch(const std::string& name, int stages) {
    Launch spec;
    spec.name = name;
    spec.stages = stages;
    spec.gpus = 2 * stages;
    return spec;
  }
  void make_ready() {
    for (Worker& server : servers_.all) {
      server.ready = true;
      server.ready_s = now_.wall_s;
    }
  }
  Worker only() {
    const auto all = chains_.workers();
    EXPECT_EQ(all.size(), 1U);
    return all.empty() ? Worker{} : all.front();
  }

  Servers& servers_ = *new Servers;
  ChainRuntime chains_{std::unique_ptr<WorkerRuntime>(&servers_)};
  Instant now_{1000, 100};
};

// Given a chain of three servers; expects one worker, ready once all are, with the others' addresses and nodes in order.
TEST_F(Chains, AreOneWorker) {
  step();
  ASSERT_TRUE(chains_.create(launch("chat-0", 3)).ok());
  ASSERT_EQ(servers_.all.size(), 3U);
  EXPECT_EQ(servers_.all.back().name, "chat-0") << "the first server comes last";
  EXPECT_EQ(chains_.create(launch("chat-0", 3)).error().code, ErrorCode::kAlreadyExists);
  EXPECT_FALSE(only().ready);
  make_ready();
  servers_.find("chat-0-s2")->ready = false;
  EXPECT_FALSE(only().ready);
  make_ready();
  const Worker chain = only();
  EXPECT_TRUE(chain.ready);
  EXPECT_EQ(chain.name, "chat-0");
  EXPECT_EQ(chain.gpus, 6);
  EXPECT_EQ(chain.address, "host-chat-0:80");
  EXPECT_EQ(chain.later,
            (std::vector<ChainServer>{{"host-chat-0-s1:80", "node-chat-0-s1"}, {"host-chat-0-s2:80", "node-chat-0-s2"}}));
}

// Given whole workers next to a chain; expects them unchanged, in order of their names.
TEST_F(Chains, LeaveWholeWorkersAlone) {
  ASSERT_TRUE(chains_.create(launch("b", 2)).ok());
  ASSERT_TRUE(chains_.create(launch("c", 1)).ok());
  ASSERT_TRUE(chains_.create(launch("a", 1)).ok());
  const auto all = chains_.workers();
  ASSERT_EQ(all.size(), 3U);
  EXPECT_EQ(all[0], *servers_.find("a"));
  EXPECT_EQ(all[1].name, "b");
  EXPECT_EQ(all[2], *servers_.find("c"));
}

// Given a drained chain that is ended; expects its first server to end first and the others after it, then to be released as
// one.
TEST_F(Chains, EndFromTheFirstServerOn) {
  ASSERT_TRUE(chains_.create(launch("chat-0", 3)).ok());
  make_ready();
  ASSERT_TRUE(chains_.begin_drain(only(), now_).ok());
  EXPECT_TRUE(only().draining_since_s);
  step();
  ASSERT_TRUE(chains_.terminate(only(), 30).ok());
  step();
  EXPECT_TRUE(servers_.find("chat-0")->terminating);
  EXPECT_FALSE(servers_.find("chat-0-s1")->terminating) << "it may still compute for the first";
  servers_.find("chat-0")->finished = true;
  step();
  EXPECT_TRUE(servers_.find("chat-0-s1")->terminating && servers_.find("chat-0-s2")->terminating);
  EXPECT_FALSE(only().finished);
  for (Worker& server : servers_.all) server.finished = true;
  ASSERT_TRUE(only().finished);
  ASSERT_TRUE(chains_.release(only()).ok());
  EXPECT_TRUE(chains_.workers().empty());
}

// Given a server that somebody else ends, as when its node is emptied; expects the whole chain to end.
TEST_F(Chains, EndIfOneServerEnds) {
  ASSERT_TRUE(chains_.create(launch("chat-0", 3)).ok());
  make_ready();
  servers_.find("chat-0-s1")->terminating = true;
  step();
  EXPECT_TRUE(only().terminating);
  EXPECT_TRUE(servers_.find("chat-0")->terminating);
  std::erase_if(servers_.all, [](const Worker& one) { return one.name == "chat-0"; });
  step();
  EXPECT_TRUE(servers_.find("chat-0-s2")->terminating);
}

// Given a server that is gone; expects the chain to have failed, but not while the list may only be late, and to end as one.
TEST_F(Chains, FailWithoutAServer) {
  step();
  ASSERT_TRUE(chains_.create(launch("chat-0", 3)).ok());
  make_ready();
  std::erase_if(servers_.all, [](const Worker& one) { return one.stage == 0; });
  EXPECT_TRUE(chains_.workers().empty()) << "it may be one that is being created";
  step(ChainRuntime::kMissingS + 1);
  EXPECT_FALSE(only().ready);
  EXPECT_EQ(only().address, "");
  EXPECT_TRUE(only().failed);
  EXPECT_THAT(only().message, HasSubstr("2 of its 3 servers"));
  ASSERT_TRUE(chains_.terminate(only(), 30).ok());
  step();
  for (const Worker& server : servers_.all) EXPECT_TRUE(server.terminating) << server.name;
}

// Given trouble of a later server; expects it to be the chain's, with the server's number.
TEST_F(Chains, HaveTheirServersTrouble) {
  ASSERT_TRUE(chains_.create(launch("chat-0", 2)).ok());
  Worker& second = *servers_.find("chat-0-s1");
  second.failed = true;
  second.trouble = planner::WorkerTrouble::kCrashLoop;
  second.message = "exited with status 1";
  EXPECT_EQ(only().trouble, planner::WorkerTrouble::kCrashLoop);
  EXPECT_EQ(only().message, "server 2 of 2: exited with status 1");
}

// Given a quota that ends in the middle of a chain; expects an error, no worker in its slot, and the rest to be created by
// another attempt, but not with servers of another spec.
TEST_F(Chains, GoOnWithWhatIsThere) {
  step();
  servers_.quota = 2;
  EXPECT_EQ(chains_.create(launch("chat-0", 3)).error().code, ErrorCode::kResourceExhausted);
  EXPECT_TRUE(chains_.workers().empty());
  servers_.quota = 3;
  Launch other = launch("chat-0", 3);
  other.image = "newer";
  EXPECT_EQ(chains_.create(other).error().code, ErrorCode::kAlreadyExists);
  EXPECT_TRUE(chains_.create(launch("chat-0", 3)).ok());
  EXPECT_EQ(servers_.all.size(), 3U);
}

// Given a first server that vanishes as soon as it is ended, as a pod without a node does; expects the others to end.
TEST_F(Chains, EndThoughTheFirstServerVanishes) {
  step();
  ASSERT_TRUE(chains_.create(launch("chat-0", 3)).ok());
  ASSERT_TRUE(chains_.terminate(only(), 30).ok());
  std::erase_if(servers_.all, [](const Worker& one) { return one.stage == 0; });
  step();
  ASSERT_EQ(servers_.all.size(), 2U);
  for (const Worker& server : servers_.all) EXPECT_TRUE(server.terminating) << server.name;
}

// Given a chain that is ended while the node of its first server does not answer; expects the others to end anyway.
TEST_F(Chains, EndThoughTheFirstServersNodeIsLost) {
  step();
  ASSERT_TRUE(chains_.create(launch("chat-0", 2)).ok());
  servers_.find("chat-0")->trouble = planner::WorkerTrouble::kNodeLost;
  servers_.find("chat-0")->failed = true;
  ASSERT_TRUE(chains_.terminate(only(), 30).ok());
  step();
  EXPECT_TRUE(servers_.find("chat-0-s1")->terminating);
}

// Given random ends of servers, by themselves and by request; expects that in the end nothing of a chain of which a part ended
// is left.
TEST_F(Chains, NeverLeaveAPartBehind) {
  Rng rng(7, "chains");
  for (int round = 0; round < effort(200, 5000); ++round) {
    servers_.all.clear();
    step();
    ASSERT_TRUE(chains_.create(launch("chat-0", 4)).ok());
    make_ready();
    bool told = false;
    for (int i = 0; i < 40 && !servers_.all.empty(); ++i) {
      Worker& any = servers_.all[static_cast<std::size_t>(rng.integer(0, static_cast<std::int64_t>(servers_.all.size()) - 1))];
      const auto what = rng.integer(0, 4);
      if (what == 0 && i < 3) any.terminating = true;
      if (what == 1) any.finished = any.finished || any.terminating;
      if (what == 2 && any.terminating)
        std::erase_if(servers_.all, [name = any.name](const Worker& one) { return one.name == name; });
      if (what == 3 && i < 3) (void)chains_.begin_drain(only(), now_);
      step(20);
      // What the reconciler does.
      const auto all = chains_.workers();
      if (all.empty()) break;
      const Worker& chain = all.front();
      if (chain.finished) {
        ASSERT_TRUE(chains_.release(chain).ok());
      } else if ((chain.failed || chain.draining_since_s) && !chain.terminating) {
        ASSERT_TRUE(chains_.terminate(chain, 30).ok());
      }
      told = told || chain.terminating;
    }
    for (int i = 0; told && i < 6; ++i) {
      for (Worker& server : servers_.all) server.finished = server.terminating;
      step();
      for (const Worker& chain : chains_.workers()) {
        if (!chain.finished) continue;
        ASSERT_TRUE(chains_.release(chain).ok());
      }
    }
    ASSERT_TRUE(!told || servers_.all.empty()) << "round " << round;
  }
}

}  // namespace
}  // namespace windlass::controller
