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

  // Where the gateway and other workers reach a worker.
  explicit SplitSystem(std::string host = "127.0.0.1") : host_(std::move(host)) {}
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
        const bool four = host_ == "127.0.0.1";
        const std::string port = std::to_string(four ? windlass::free_port() : free_port_of_both_families());
        const std::string listen = four ? host_ : "[::]";  // the test itself asks over IPv4
        workers_.push_back({std::stoi(port), start_at(std::stoi(port), {"--role", role, "--listen", listen + ":" + port})});
        const dispatch::Role is = role == std::string("prefill") ? dispatch::Role::kPrefill : dispatch::Role::kDecode;
        chains.push_back(in_role(is, chain(role + std::to_string(i), host_ + ":" + port, 1 + i, 4)));
      }
    }
    start_gateway(std::move(chains));
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
  const std::string host_;
};

class SplitSystemOnIpv6 : public SplitSystem {
 protected:
  SplitSystemOnIpv6() : SplitSystem("[::1]") {}

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

}  // namespace
}  // namespace windlass::gateway::testing
