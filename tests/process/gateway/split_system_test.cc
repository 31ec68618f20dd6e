// The real gateway in front of real workers that share requests: some compute prompts, others answer
// (docs/decisions/2026-11-22-kv-is-pulled.md).
#include <algorithm>
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
    std::vector<dispatch::Chain> chains;
    for (const char* role : {"prefill", "decode"}) {
      for (int i = 0; i < 2; ++i) {
        const bool four = setting_.host == "127.0.0.1";
        const std::string port = std::to_string(four ? windlass::free_port() : free_port_of_both_families());
        const std::string listen = four ? setting_.host : "[::]";  // the test itself asks over IPv4
        workers_.push_back({std::stoi(port), start_at(std::stoi(port), {"--role", role, "--listen", listen + ":" + port})});
        const dispatch::Role is = role == std::string("prefill") ? dispatch::Role::kPrefill : dispatch::Role::kDecode;
        const int slots = is == dispatch::Role::kPrefill ? setting_.prefill_slots : setting_.decode_slots;
        chains.push_back(in_role(is, chain(role + std::to_string(i), setting_.host + ":" + port, 1 + i, slots)));
      }
    }
    start_gateway(std::move(chains), setting_.dispatch);
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

 private:
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
  // A role that does not work while a burst comes. At most four requests wait for it: one prompt at each prefill worker, or one
  // for each slot of the decode workers. The others are the other role's.
  void expect_the_other_role_helps(const std::string& stopped) {
    EXPECT_EQ(served_by_mixed_pool(), 0);
    signal_to(stopped, SIGSTOP);
    ask_all([&] {
      EXPECT_TRUE(wait_until([&] { return served_by_mixed_pool() >= 8; }));
      signal_to(stopped, SIGCONT);
    });
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

// Given prefill workers that have stopped when a burst of prompts comes; expects decode workers to serve requests whole in the
// mixed pool and to return to their own, an answer for every client, and the texts of a single worker. Once prefill workers go
// on and nobody waits, expects a prompt there again.
TEST_F(MixedPoolSystem, DecodeWorkersComputePrompts) {
  expect_the_other_role_helps("prefill");
  const std::string prefilled = "windlass_worker_requests_finished_total{model=\"tiny\",reason=\"prefilled\"}";
  const double before = sum_of(prefilled), served = served_by_mixed_pool();
  EXPECT_TRUE(wait_until([&] {
    const auto answer = ask(gateway_->port(), post(kCompletions, request_of(1, 5).dump()));
    return answer && answer->status() == 200 && sum_of(prefilled) > before;
  })) << "they answer probes again within a second or two";
  EXPECT_GE(served_by_mixed_pool(), served);
}

// Given decode workers that have stopped; expects prefill workers to make the tokens of requests in the mixed pool.
TEST_F(MixedPoolSystem, PrefillWorkersMakeTokens) { expect_the_other_role_helps("decode"); }

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
