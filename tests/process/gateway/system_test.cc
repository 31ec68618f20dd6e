// The real controller with real gateways: TLS and tokens between them, and slots that two gateways share. The controller starts
// gateway_test_worker instead of the real worker.
#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "controller/kube/curl_transport.h"
#include "tests/free_port.h"
#include "tests/paths.h"
#include "tests/process/gateway/harness.h"
#include "tests/unit/controller/kube/test_certificates.h"

extern char** environ;

namespace windlass::gateway::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
namespace fs = std::filesystem;

constexpr double kLongS = 60;  // the whole system starts, on a busy machine

// examples/tiny.yaml with one worker, in its own folder, and the controller that serves it.
class System {
 public:
  System() {
    std::string name = (fs::temp_directory_path() / "windlass-system-XXXXXX").string();
    path_ = ::mkdtemp(name.data());
    fs::create_directories(path_ / "objects");
    fs::create_directories(path_ / "build/models/tiny");
    put("build/models/tiny/config.json", "{}");  // the test's worker reads none of it
  }
  ~System() {
    if (pid_ > 0) {
      ::kill(pid_, SIGTERM);
      int status = 0;
      if (!wait_until([&] { return ::waitpid(pid_, &status, WNOHANG) == pid_; })) {
        ::kill(pid_, SIGKILL);
        ::waitpid(pid_, &status, 0);
      }
    }
    fs::remove_all(path_);
  }

  void put(const std::string& name, const std::string& text) const {
    std::ofstream(path_ / (name + ".new"), std::ios::binary | std::ios::trunc) << text;
    fs::rename(path_ / (name + ".new"), path_ / name);
  }
  [[nodiscard]] std::string at(const std::string& name) const { return (path_ / name).string(); }

  // `scaling` replaces the example's limits.
  void place_service(const std::string& scaling) const {
    std::ifstream example(source_path("/examples/tiny.yaml"));
    std::string text{std::istreambuf_iterator<char>(example), std::istreambuf_iterator<char>()};
    const std::string bounds = "minWorkers: 1\n    maxWorkers: 4";
    text.replace(text.find(bounds), bounds.size(), scaling);
    put("objects/tiny.yaml", text);
  }

  void start(std::vector<std::string> flags) {
    port_ = free_port();
    std::vector<std::string> all = {build_path("/windlass-controller"),
                                    "--store",
                                    "dir:" + path_.string(),
                                    "--runtime",
                                    "local",
                                    "--local-gpus",
                                    "4",
                                    "--tick",
                                    "200ms",
                                    "--model-root",
                                    path_.string(),
                                    "--worker-binary",
                                    build_path("/gateway_test_worker"),
                                    "--listen",
                                    "127.0.0.1:" + std::to_string(port_)};
    all.insert(all.end(), flags.begin(), flags.end());
    std::vector<char*> argv;
    for (auto& word : all) argv.push_back(word.data());
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 2, at("controller.log").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (::posix_spawn(&pid_, argv[0], &actions, nullptr, argv.data(), environ) != 0) pid_ = -1;
    posix_spawn_file_actions_destroy(&actions);
  }

  [[nodiscard]] int port() const { return port_; }
  [[nodiscard]] std::string log() const {
    std::ifstream file(at("controller.log"));
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }

 private:
  fs::path path_;
  int pid_ = -1;
  int port_ = 0;
};

int status_of(kube::HttpTransport& client, const std::string& url, const std::string& token) {
  kube::HttpRequest request{"GET", url, {}, "", 5};
  if (!token.empty()) request.headers["Authorization"] = "Bearer " + token;
  const auto answer = client.send(request);
  return answer.ok() ? answer->status : 0;
}

// Given a controller and a gateway with TLS and the same token; expects the gateway to get its table, the controller to read
// the gateway's metrics (the snapshot has values that only they provide), both to answer only /health without the token, and a
// changed token file to apply without a restart. Expects a gateway with another token to be refused, and no token in any log.
TEST(System, TlsAndTokens) {
  const std::string token = "first-token-0123456789", next = "second-token-0123456789";
  const kube::TestAuthority authority("installation");
  System system;
  system.place_service("mode: Paused");
  const auto controller_leaf = authority.issue("controller", {"IP:127.0.0.1"});
  const auto gateway_leaf = authority.issue("gateway", {"DNS:windlass-gateway"});
  system.put("controller.crt", controller_leaf.certificate_pem);
  system.put("controller.key", controller_leaf.private_key_pem);
  system.put("gateway.crt", gateway_leaf.certificate_pem);
  system.put("gateway.key", gateway_leaf.private_key_pem);
  system.put("ca.crt", authority.pem());
  system.put("token", token);
  system.put("wrong", "another-token-0123456789");
  system.start({"--tls-cert", system.at("controller.crt"), "--tls-key", system.at("controller.key"), "--token-file",
                system.at("token"), "--gateway-ca", system.at("ca.crt")});
  const std::string controller = "https://127.0.0.1:" + std::to_string(system.port());
  const auto flags = [&](const std::string& token_file) {
    return std::vector<std::string>{"--controller-ca",  system.at("ca.crt"),      "--token-file",    system.at(token_file),
                                    "--admin-tls-cert", system.at("gateway.crt"), "--admin-tls-key", system.at("gateway.key")};
  };
  kube::CurlOptions curl;
  curl.tls.ca_pem = authority.pem();
  kube::CurlTransport client(curl);
  curl.tls.server_name = "windlass-gateway";
  kube::CurlTransport admin_client(curl);
  ASSERT_TRUE(wait_until([&] { return status_of(client, controller + "/healthz", "") == 200; }, kLongS)) << system.log();

  GatewayProcess gateway({controller}, flags("token"));
  ASSERT_TRUE(gateway.started()) << gateway.log();
  const std::string admin = "https://127.0.0.1:" + std::to_string(gateway.admin_port());
  ASSERT_TRUE(wait_until([&] { return status_of(admin_client, admin + "/ready", "") == 200; }, kLongS)) << gateway.log();
  for (const char* path : {"/v1/snapshot", "/v1/plan", "/v1/routing-table?gateway=x&admin=y:1", "/metrics"}) {
    EXPECT_EQ(status_of(client, controller + path, ""), 401) << path;
    EXPECT_EQ(status_of(client, controller + path, "first-token-012345678"), 401) << path;
  }
  EXPECT_EQ(status_of(client, controller + "/metrics", token), 200);
  for (const char* path : {"/metrics", "/latencies"}) {
    EXPECT_EQ(status_of(admin_client, admin + path, ""), 401) << path;
    EXPECT_EQ(status_of(admin_client, admin + path, token), 200) << path;
  }
  EXPECT_EQ(status_of(admin_client, admin + "/health", ""), 200);
  EXPECT_TRUE(wait_until(
      [&] {
        const auto answer = client.send({"GET", controller + "/v1/snapshot", {{"Authorization", "Bearer " + token}}, "", 5});
        if (!answer.ok() || answer->status != 200) return false;
        const auto snapshot = nlohmann::json::parse(answer->body);
        return snapshot["services"][0]["demand"].contains("queued") && !snapshot["services"][0]["demand"]["queued"].is_null();
      },
      kLongS))
      << system.log();

  GatewayProcess stranger({controller}, flags("wrong"));
  EXPECT_TRUE(wait_until(
      [&] { return stranger.log().find("--token-file: must be the token that the controller expects") != std::string::npos; }));
  EXPECT_EQ(status_of(admin_client, "https://127.0.0.1:" + std::to_string(stranger.admin_port()) + "/ready", ""), 503);

  system.put("token", next);
  EXPECT_TRUE(wait_until([&] { return status_of(client, controller + "/v1/snapshot", next) == 200; }));
  EXPECT_TRUE(wait_until([&] { return status_of(admin_client, admin + "/metrics", next) == 200; }));
  EXPECT_EQ(status_of(client, controller + "/v1/snapshot", token), 401);
  EXPECT_EQ(status_of(admin_client, admin + "/ready", ""), 200);
  for (const std::string& log : {system.log(), gateway.log(), stranger.log()}) EXPECT_THAT(log, Not(HasSubstr("token-01234")));
}

// Clients of one gateway: each sends a request, waits for its answer, and sends the next.
class Clients {
 public:
  Clients(int port, int count) {
    for (int i = 0; i < count; ++i) {
      threads_.emplace_back([this, port] {
        while (!done_) {
          const auto answer = ask(port, post("/v1/chat/completions", chat("tiny", "hi", false)));
          if (done_) return;
          ++(answer && answer->status() == 200 ? served_ : failed_);
          if (!answer) return;  // the gateway is gone
        }
      });
    }
  }
  ~Clients() { stop(); }
  void stop() {
    done_ = true;
    for (auto& thread : threads_) thread.join();
    threads_.clear();
  }
  [[nodiscard]] int served() const { return served_; }
  [[nodiscard]] int failed() const { return failed_; }

 private:
  std::atomic<bool> done_ = false;
  std::atomic<int> served_ = 0, failed_ = 0;
  std::vector<std::thread> threads_;
};

// Given two gateways in front of one worker; expects slots to move to the gateway with a queue, to return when the other one
// has a queue too, and to go to the survivor when the other is killed (SIGKILL). Expects the survivor to lose no request, and
// the worker never to hold more requests than it has slots.
TEST(System, TwoGatewaysShareSlots) {
  System system;
  system.place_service("minWorkers: 1\n    maxWorkers: 1");
  system.start({});
  const std::string controller = "http://127.0.0.1:" + std::to_string(system.port());
  GatewayProcess a({controller}, {"--id", "a"});
  auto b = std::make_unique<GatewayProcess>(std::vector<std::string>{controller}, std::vector<std::string>{"--id", "b"});
  ASSERT_TRUE(a.started() && b->started()) << a.log() << b->log();
  int slots = 0;
  std::string worker;
  ASSERT_TRUE(wait_until(
      [&] {
        const auto snapshot = ask(system.port(), get("/v1/snapshot")), plan = ask(system.port(), get("/v1/plan"));
        if (!snapshot || !plan || plan->status() != 200) return false;
        const auto workers = nlohmann::json::parse(snapshot->body)["services"][0]["workers"];
        const auto pools = nlohmann::json::parse(plan->body)["services"][0]["pools"];
        if (workers.size() != 1 || workers[0]["state"] != "Ready" || pools.size() != 1) return false;
        worker = workers[0]["address"];
        slots = pools[0]["slots"];
        return a.ready() && b->ready();
      },
      kLongS))
      << system.log();
  ASSERT_GE(slots, 3) << "the example's worker has too few slots to share";
  const auto in_flight = [](const GatewayProcess& gateway) {
    return static_cast<int>(gateway.metric("windlass_gateway_requests_in_flight", {{"model", "tiny"}}));
  };

  Clients at_a(a.port(), 3 * slots);
  EXPECT_TRUE(wait_until([&] { return in_flight(a) > (slots + 1) / 2; }, kLongS)) << "slots did not follow the queue";
  auto at_b = std::make_unique<Clients>(b->port(), 3 * slots);
  EXPECT_TRUE(wait_until([&] { return in_flight(*b) >= slots / 2; }, kLongS)) << "slots did not come back";
  EXPECT_TRUE(wait_until([&] { return at_b->served() > 20; }, kLongS));
  b->signal(SIGKILL);
  EXPECT_TRUE(wait_until([&] { return in_flight(a) >= slots; }, kLongS)) << "a dead gateway's share did not return";
  at_b->stop();
  at_a.stop();
  EXPECT_GT(at_a.served(), 50);
  EXPECT_EQ(at_a.failed(), 0);
  const auto most = ask(std::atoi(worker.c_str() + worker.rfind(':') + 1), get("/most"));
  ASSERT_TRUE(most);
  // The killed gateway's share returned only after its last requests had ended at the worker.
  EXPECT_LE(std::atoi(most->body.c_str()), slots);
}

}  // namespace
}  // namespace windlass::gateway::testing
