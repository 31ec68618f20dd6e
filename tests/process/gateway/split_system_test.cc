// The real gateway in front of real workers that share requests: some compute prompts, others answer
// (docs/decisions/2026-11-22-kv-is-pulled.md).
#include <algorithm>
#include <atomic>
#include <csignal>

#include <gtest/gtest.h>

#include "tests/free_port.h"
#include "tests/loopback.h"
#include "tests/process/gateway/real_workers.h"

namespace windlass::gateway::testing {
namespace {

class SplitSystem : public RealWorkers {
 protected:
  static constexpr int kRequests = 24;  // every third is streamed

  struct Setting {
    std::string host = "127.0.0.1";  // where the gateway and other workers reach a worker
    int prefill_slots = 4, decode_slots = 4;
    dispatch::PolicySettings dispatch = {.policy = dispatch::kDefaultPolicy};
  };

  SplitSystem() : SplitSystem(Setting{}) {}
  explicit SplitSystem(Setting setting) : setting_(std::move(setting)) {}
  void SetUp() override {
    Worker::SetUp();
    std::vector<std::string> requests;
    for (int i = 0; i < kRequests; ++i) {
      nlohmann::json request = request_of(i, 10);
      request["stream"] = i % 3 == 2;
      requests.push_back(request.dump());
    }
    expect_answers_to(std::move(requests));
    for (const char* role : {"prefill", "decode"}) {
      for (int i = 0; i < 2; ++i) {
        const bool four = setting_.host == "127.0.0.1";
        const std::string port = std::to_string(four ? windlass::free_port() : free_port_of_both_families());
        const std::string listen = four ? setting_.host : "[::]";  // the test itself asks over IPv4
        workers_.push_back({std::stoi(port), start_at(std::stoi(port), {"--role", role, "--listen", listen + ":" + port})});
        const dispatch::Role is = role == std::string("prefill") ? dispatch::Role::kPrefill : dispatch::Role::kDecode;
        const int slots = is == dispatch::Role::kPrefill ? setting_.prefill_slots : setting_.decode_slots;
        chains_.push_back(in_role(is, chain(role + std::to_string(i), setting_.host + ":" + port, 1 + i, slots)));
      }
    }
    start_gateway(chains_, setting_.dispatch);
  }

  void expect_nothing_in_flight() const {
    for (const char* name : {"prefill0", "prefill1", "decode0", "decode1"}) {
      EXPECT_TRUE(wait_until([&] { return gateway_->metric("windlass_gateway_requests_in_flight", {{"chain", name}}) <= 0; }));
    }
    EXPECT_TRUE(wait_until([&] { return sum_of("windlass_worker_kv_cache_blocks_used") == 0; }));  // soon after the last answer
  }
  // Many requests at once, and what became of each.
  void expect_shared_work() {
    ask_all([] {});
    expect_nothing_in_flight();
    EXPECT_EQ(sum_of("windlass_worker_requests_finished_total{model=\"tiny\",reason=\"prefilled\"}"), kRequests);
    EXPECT_EQ(sum_of("windlass_worker_kv_transfers_total{model=\"tiny\",outcome=\"received\"}"), kRequests);
    for (std::size_t i = 0; i < workers_.size(); ++i) EXPECT_GT(metric_at(i, "windlass_worker_iteration_seconds_count"), 0);
  }
  // Summed over the workers that answer.
  [[nodiscard]] double sum_of(const std::string& series) const {
    double sum = 0;
    for (std::size_t i = 0; i < workers_.size(); ++i) sum += std::max(0.0, metric_at(i, series));
    return sum;
  }

  std::vector<dispatch::Chain> chains_;  // first those of the prefill workers
  const Setting setting_;
};

// Under Splitwise's policy, whose prompts wait for nobody while a decode worker has room.
class MixedPoolSystem : public SplitSystem {
 protected:
  MixedPoolSystem()
      : SplitSystem({.prefill_slots = 8,
                     .decode_slots = 2,
                     .dispatch = {.policy = dispatch::PolicyKind::kSplitwise, .mixed_pool_threshold_tokens = 0}}) {}

  void signal_to(const std::string& role, int signal) {
    for (std::size_t i = 0; i < workers_.size(); ++i) {
      if ((i < 2) == (role == "prefill")) workers_[i].process->signal(signal);
    }
  }
  [[nodiscard]] double served_by_mixed_pool() const {
    return gateway_->metric("windlass_gateway_mixed_pool_requests_total", {{"model", "tiny"}});
  }
  [[nodiscard]] double in_mixed_pool() const {
    return gateway_->metric("windlass_gateway_mixed_pool_workers", {{"model", "tiny"}});
  }
  void expect_only_own_pools() const {
    expect_nothing_in_flight();
    EXPECT_EQ(in_mixed_pool(), 0) << "back in their own pools";
  }
};

class SplitSystemOnIpv6 : public SplitSystem {
 protected:
  SplitSystemOnIpv6() : SplitSystem({.host = "[::1]"}) {}

  void SetUp() override {
    if (!has_ipv6_loopback()) GTEST_SKIP() << "this machine has no ::1";
    SplitSystem::SetUp();
  }
};

// Given more requests than slots; expects the texts of a single worker, each prompt computed once and received once, every
// worker used, and nothing held at the end.
TEST_F(SplitSystem, ManyRequestsShareFourWorkers) { expect_shared_work(); }

// Given workers with IPv6 addresses; expects the same.
TEST_F(SplitSystemOnIpv6, ManyRequestsShareFourWorkers) { expect_shared_work(); }

// Given a prefill worker that dies under load; expects an answer for every client.
TEST_F(SplitSystem, APrefillWorkerDiesUnderLoad) {
  ask_all([&] {
    EXPECT_TRUE(
        wait_until([&] { return sum_of("windlass_worker_kv_transfers_total{model=\"tiny\",outcome=\"received\"}") >= 2; }));
    workers_[1].process->signal(SIGKILL);
  });
  expect_nothing_in_flight();
}

// Given prefill workers that answer probes, but each keeps a prompt that it does not begin; expects decode workers to serve the
// other requests whole in the mixed pool, one after the other, and then those that are refused at last. Expects the texts of a
// single worker. With other prefill workers, expects a prompt there again.
TEST_F(MixedPoolSystem, DecodeWorkersComputePrompts) {
  std::atomic<int> kept = 0;
  Gate refuse;
  const auto keep = [&](Connection& connection, const Message&) {
    ++kept;
    if (refuse.wait()) connection.write(json_response(503, "{}", "X-Windlass-Rejected: full\r\n"));
  };
  FakeServer first(keep), second(keep);
  std::vector<dispatch::Chain> busy = chains_;
  busy[0].hops = {first.address()};
  busy[1].hops = {second.address()};
  set_table(2, busy, setting_.dispatch);
  ASSERT_TRUE(gateway_->obeys({1, 2}));

  std::vector<Answer> answers;
  for (const std::size_t i : {0U, 1U}) answers.push_back(begin(i));
  ASSERT_TRUE(wait_until([&] { return kept == 2; }));
  EXPECT_EQ(served_by_mixed_pool(), 0);
  while (answers.size() < kRequests) {
    answers.push_back(begin(answers.size()));
    answers.back().wait();
  }
  EXPECT_EQ(kept, 2);
  EXPECT_TRUE(wait_until([&] { return served_by_mixed_pool() == kRequests - 2; }));
  refuse.open();
  expect_texts_of_one_worker(answers);
  expect_only_own_pools();

  const std::string prefilled = "windlass_worker_requests_finished_total{model=\"tiny\",reason=\"prefilled\"}";
  EXPECT_EQ(sum_of(prefilled), 0);
  set_table(3, chains_, setting_.dispatch);
  ASSERT_TRUE(gateway_->obeys({1, 3}));
  const auto last = begin(0).get();
  ASSERT_TRUE(last);
  EXPECT_EQ(last->status(), 200);
  EXPECT_TRUE(wait_until([&] { return sum_of(prefilled) == 1; }));
  EXPECT_EQ(served_by_mixed_pool(), kRequests);
}

// Given decode workers that have stopped when a burst comes; expects prefill workers to make the tokens of requests in the
// mixed pool: at most four requests wait for the slots of decode workers.
TEST_F(MixedPoolSystem, PrefillWorkersMakeTokens) {
  signal_to("decode", SIGSTOP);
  ask_all([&] {
    EXPECT_TRUE(wait_until([&] { return served_by_mixed_pool() >= 8; }));
    signal_to("decode", SIGCONT);
  });
  expect_only_own_pools();
}

// Given a prefill worker that dies under load; expects an answer for every client.
TEST_F(MixedPoolSystem, APrefillWorkerDiesUnderLoad) {
  ask_all([&] {
    EXPECT_TRUE(wait_until([&] { return sum_of("windlass_worker_iteration_seconds_count") >= 8; }));
    workers_[1].process->signal(SIGKILL);
  });
  expect_nothing_in_flight();
}

}  // namespace
}  // namespace windlass::gateway::testing
