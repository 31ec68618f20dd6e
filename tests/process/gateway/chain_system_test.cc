// The real gateway in front of real workers that each hold a part of the model
// (docs/decisions/2026-11-22-chains-of-workers.md).
#include <csignal>

#include <gtest/gtest.h>

#include "tests/process/gateway/real_workers.h"

namespace windlass::gateway::testing {
namespace {

class ChainSystem : public RealWorkers {
 protected:
  // Two chains, 0:1 > 1:2 > 2:3 and 0:2 > 1:3: in the second, both workers hold block 1.
  void SetUp() override {
    Worker::SetUp();
    std::ofstream(folder_ / "token") << "the-token-of-this-installation\n";
    std::vector<std::string> requests;
    for (int i = 0; i < 24; ++i) requests.push_back(request_of(i, 80).dump());
    expect_answers_to(std::move(requests));
    std::vector<dispatch::Chain> chains;
    for (const std::vector<std::string>& parts : {std::vector<std::string>{"0:1", "1:2", "2:3"}, {"0:2", "1:3"}}) {
      dispatch::Chain made;
      for (const std::string& blocks : parts) {
        workers_.push_back(start_one({"--blocks", blocks, "--token-file", (folder_ / "token").string()}));
        if (made.hops.empty()) {
          made =
              chain("c" + std::to_string(chains.size()), address(workers_.back()), 1 + static_cast<double>(chains.size()), 4);
        } else {
          made.hops.push_back(address(workers_.back()));
        }
      }
      chains.push_back(std::move(made));
    }
    start_gateway(std::move(chains));
  }

  void expect_nothing_held(const std::vector<std::size_t>& workers) const {
    for (const std::size_t i : workers) {
      EXPECT_TRUE(wait_until([&] { return metric_at(i, "windlass_worker_kv_cache_blocks_used") == 0; })) << i;
    }
  }
};

// Given more requests than slots; expects the texts of a single worker, both chains used, and nothing held at the end.
TEST_F(ChainSystem, ManyRequestsShareTwoChains) {
  ask_all([] {});
  expect_nothing_held({0, 1, 2, 3, 4});
  for (std::size_t i = 0; i < workers_.size(); ++i) EXPECT_GT(metric_at(i, "windlass_worker_iteration_seconds_count"), 0) << i;
}

// Given a later worker that dies while requests pass through it; expects an answer for every client: those requests start over
// at the other chain.
TEST_F(ChainSystem, ALaterWorkerDiesUnderLoad) {
  ask_all([&] {
    EXPECT_TRUE(wait_until([&] {
      // Suspend the worker, so that requests through it cannot end before it is killed.
      workers_[2].process->signal(SIGSTOP);
      const bool runs =
          metric_at(0, "windlass_worker_requests_running") > 0 && metric_at(0, "windlass_worker_requests_running") > 0;
      if (!runs) workers_[2].process->signal(SIGCONT);
      return runs;
    }));
    workers_[2].process->signal(SIGKILL);
  });
  expect_nothing_held({0, 1, 3, 4});
  const double broken = gateway_->metric("windlass_gateway_upstream_errors_total", {{"reason", "broken"}});
  EXPECT_GE(broken, 1);
}

// Given a chain whose cut moves back and forth under load; expects an answer for every client: running requests end first, and
// refused ones are served later or by the other chain.
TEST_F(ChainSystem, ACutMovesUnderLoad) {
  const auto change = [&](std::size_t i, const std::string& blocks) {
    const auto answer = worker::testing::ask(workers_[i].port, "POST", "/blocks", R"({"blocks":")" + blocks + R"("})",
                                             "Authorization: Bearer the-token-of-this-installation\r\n");
    EXPECT_EQ(answer.status, 200) << answer.body;
  };
  ask_all([&] {
    EXPECT_TRUE(wait_until([&] { return metric_at(4, "windlass_worker_iteration_seconds_count") > 3; }));
    change(4, "2:3");  // after 0:2
    change(4, "1:3");
    change(3, "0:1");
    change(3, "0:2");
  });
  expect_nothing_held({0, 1, 2, 3, 4});
  ask_all([] {});
}

}  // namespace
}  // namespace windlass::gateway::testing
