// Steps over connections: used as long as there are some, with HTTP as the fallback; everything received over them is bounded.
#include "worker/parallel/chain_steps.h"

#include <atomic>
#include <cstring>
#include <future>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/unit/worker/chain_mesh.h"
#include "tests/unit/worker/fake_backend.h"

namespace windlass::worker {
namespace {

using ::testing::HasSubstr;
using testing::Mesh;
using testing::session_of;

constexpr const char* kWorkerOfSteps = "127.0.0.1:1";

template <typename Condition>
bool in_time(const Condition& condition) {
  const SteadyClock clock;
  const double until_s = clock.now_s() + 20;
  for (;;) {
    if (condition()) return true;  // do not evaluate it again: it may have side effects
    if (clock.now_s() >= until_s) return false;
    std::this_thread::yield();
  }
}

// A client whose HTTP side answers reservations with a port, and everything else with its own name.
class ChainStepCalls : public ::testing::Test {
 protected:
  void make(double idle_s = ChainStepClient::kIdleS) {
    client_.reset();
    client_.emplace(
        [this](const ChainCall& call, const ChainAnswered& answered) {
          over_http_ += call.verb == ChainVerb::kStep ? 1 : 0;
          ChainAnswer answer{200, "", "http"};
          if (call.verb == ChainVerb::kReserve) answer.step_port = port_;
          answered(std::move(answer));
        },
        idle_s);
    post_ = client_->post();
  }
  ChainAnswer ask(ChainVerb verb, const std::string& body = "", double timeout_s = 20, std::size_t max_bytes = 1000) {
    std::promise<ChainAnswer> answer;
    post_({kWorkerOfSteps, verb, body, timeout_s, max_bytes}, [&](ChainAnswer found) { answer.set_value(std::move(found)); });
    return answer.get_future().get();
  }
  // Returns false if there is no connection.
  bool reserve() {
    EXPECT_TRUE(ask(ChainVerb::kReserve).ok());
    return in_time([&] { return client_->ready(kWorkerOfSteps); });
  }
  // A worker that says hello and then runs `serve`.
  void listen(std::function<void(int socket)> serve) {
    other_.reset();
    other_ = TcpServer::open("127.0.0.1", "a test", [serve = std::move(serve)](int socket) {
               set_limits(socket, 20, 20);
               char hello[sizeof(kChainStepsHello)];
               iovec parts[] = {{hello, sizeof(hello)}};
               if (receive_all(socket, hello, sizeof(hello)) && send_all(socket, parts)) serve(socket);
             }).value();
    port_ = other_->port();
  }
  static std::string next_step(int socket) {
    ChainStepHead head{};
    if (!receive_all(socket, &head, sizeof(head))) return "";
    std::string step(head.bytes, '\0');
    return receive_all(socket, step.data(), step.size()) ? step : "";
  }
  static bool send(int socket, const ChainStepAnswerHead& head, std::string bytes) {
    ChainStepAnswerHead copy = head;
    iovec parts[] = {{&copy, sizeof(copy)}, {bytes.data(), bytes.size()}};
    return send_all(socket, parts);
  }
  static void echo(int socket) {
    for (std::string step = next_step(socket); !step.empty(); step = next_step(socket)) {
      if (!send(socket, {200, 0, step.size()}, step)) return;
    }
  }

  std::atomic<int> over_http_ = 0;  // steps
  std::atomic<int> ended_ = 0;      // connections, in tests that count them
  int port_ = 0;
  std::unique_ptr<TcpServer> other_;
  std::optional<ChainStepClient> client_;
  ChainPost post_;
};

// Given a port in the answer to a reservation; expects steps, and only steps, to use a connection. Without a port, all calls
// use HTTP.
TEST_F(ChainStepCalls, OnlyStepsUseConnections) {
  listen(echo);
  make();
  EXPECT_EQ(ask(ChainVerb::kStep, "too early").body, "http");
  ASSERT_TRUE(reserve());
  over_http_ = 0;
  for (int i = 0; i < 50; ++i) EXPECT_EQ(ask(ChainVerb::kStep, fmt::format("step {}", i)).body, fmt::format("step {}", i));
  EXPECT_EQ(over_http_, 0);
  EXPECT_EQ(ask(ChainVerb::kKeep).body, "http");
  EXPECT_EQ(ask(ChainVerb::kRow).body, "http");
  port_ = 0;  // like a worker of an older version at the same address
  EXPECT_TRUE(ask(ChainVerb::kReserve).ok());
  EXPECT_EQ(ask(ChainVerb::kStep, "step").body, "http");
}

// Given more simultaneous steps than connections; expects those without one to use HTTP, and the next ones to find more
// connections.
TEST_F(ChainStepCalls, ConnectionsFollowTheirNeed) {
  constexpr int kAtOnce = 4;
  std::promise<void> go;
  const std::shared_future<void> gone = go.get_future().share();
  listen([gone](int socket) {
    for (std::string step = next_step(socket); !step.empty(); step = next_step(socket)) {
      gone.wait();
      if (!send(socket, {200, 0, step.size()}, step)) return;
    }
  });
  make();
  ASSERT_TRUE(reserve());
  std::atomic<int> answered = 0;
  const auto ask_at_once = [&] {
    post_({kWorkerOfSteps, ChainVerb::kStep, "step", 20, 1000}, [&](const ChainAnswer& answer) {
      EXPECT_TRUE(answer.ok()) << answer.body;
      ++answered;
    });
  };
  for (int i = 0; i < kAtOnce; i += 2) {
    ask_at_once();
    ask_at_once();  // which finds none
    EXPECT_TRUE(in_time([&] { return client_->ready(kWorkerOfSteps); }));
  }
  EXPECT_EQ(over_http_, kAtOnce / 2);
  go.set_value();
  EXPECT_TRUE(in_time([&] { return answered == kAtOnce; }));
}

// Given a port where nobody listens, or another protocol is spoken; expects steps over HTTP.
TEST_F(ChainStepCalls, FallsBackToHttpWithoutAStepServer) {
  listen(echo);
  other_.reset();
  make();
  EXPECT_TRUE(ask(ChainVerb::kReserve).ok());
  EXPECT_EQ(ask(ChainVerb::kStep, "step").body, "http");
  other_ = TcpServer::open("127.0.0.1", "a test", [](int socket) {
             char hello[] = "HTTP/1.1 400 Bad Request";
             iovec parts[] = {{hello, sizeof(hello)}};
             static_cast<void>(send_all(socket, parts));
           }).value();
  port_ = other_->port();
  EXPECT_TRUE(ask(ChainVerb::kReserve).ok());
  EXPECT_EQ(ask(ChainVerb::kStep, "step").body, "http");
  other_.reset();
  EXPECT_FALSE(client_->ready(kWorkerOfSteps));
}

// Given a connection that breaks between or during steps; expects that step over HTTP, once. After the next reservation there
// is a new connection, even on another port.
TEST_F(ChainStepCalls, BrokenConnectionsFallBackToHttp) {
  for (const bool during : {false, true}) {
    SCOPED_TRACE(during ? "during a step" : "between two");
    listen([during](int socket) {
      const std::string step = next_step(socket);
      if (send(socket, {200, 0, step.size()}, step) && during) next_step(socket);
    });
    over_http_ = 0;
    make();
    ASSERT_TRUE(reserve());
    EXPECT_EQ(ask(ChainVerb::kStep, "step").body, "step");
    EXPECT_EQ(ask(ChainVerb::kStep, "step").body, "http");
    EXPECT_EQ(over_http_, 1);
    listen(echo);
    ASSERT_TRUE(reserve());
    EXPECT_EQ(ask(ChainVerb::kStep, "step").body, "step");
    EXPECT_EQ(over_http_, 1);
  }
}

// Given a worker that accepts a step and stays silent; expects no answer after the timeout, and no second attempt.
TEST_F(ChainStepCalls, SilentWorkerGivesNoAnswer) {
  listen([](int socket) {
    while (!next_step(socket).empty()) {
    }
  });
  make();
  ASSERT_TRUE(reserve());
  const ChainAnswer answer = ask(ChainVerb::kStep, "step", 0.2);
  EXPECT_EQ(answer.status, 0);
  EXPECT_EQ(answer.body, "did not answer in time");
  EXPECT_EQ(over_http_, 0);
}

// Given answers that are too long, have no status, or are cut off; expects no answer and no second attempt.
TEST_F(ChainStepCalls, IgnoresHostileAnswers) {
  for (const auto& [head, says] :
       {std::pair{ChainStepAnswerHead{200, 0, 1001}, "must have a status from 100 to 599 and at most"},
        std::pair{ChainStepAnswerHead{200, 0, std::numeric_limits<std::uint64_t>::max()}, "must have a status"},
        std::pair{ChainStepAnswerHead{200, 65, 0}, "must have a status"},
        std::pair{ChainStepAnswerHead{0, 0, 3}, "(got 0 and 3)"},
        std::pair{ChainStepAnswerHead{200, 0, 9}, "broke during the answer"}}) {
    listen([head = head](int socket) {
      if (!next_step(socket).empty()) send(socket, head, "few");
    });
    make();
    ASSERT_TRUE(reserve());
    const ChainAnswer answer = ask(ChainVerb::kStep, "step");
    EXPECT_EQ(answer.status, 0);
    EXPECT_THAT(answer.body, HasSubstr(says));
    EXPECT_EQ(over_http_, 0);
  }
}

// Given connections without steps; expects them to end after a while. The next step uses HTTP, and later ones have a connection
// again.
TEST_F(ChainStepCalls, IdleConnectionsEnd) {
  listen([&](int socket) {
    echo(socket);
    ++ended_;
  });
  make(0.3);
  EXPECT_TRUE(ask(ChainVerb::kReserve).ok());
  EXPECT_TRUE(in_time([&] { return ended_ == 1; }));
  EXPECT_EQ(ask(ChainVerb::kStep, "step").body, "http");
  EXPECT_TRUE(in_time([&] { return ask(ChainVerb::kStep, "step").body == "step"; }));
}

// Given a step in progress when its client ends; expects no answer. Later calls use HTTP.
TEST_F(ChainStepCalls, EndOfTheClientBreaksOffSteps) {
  std::promise<void> there;
  listen([&](int socket) {
    next_step(socket);
    there.set_value();
    next_step(socket);
  });
  make();
  ASSERT_TRUE(reserve());
  std::promise<ChainAnswer> answer;
  post_({kWorkerOfSteps, ChainVerb::kStep, "step", 20, 1000}, [&](ChainAnswer found) { answer.set_value(std::move(found)); });
  there.get_future().wait();
  client_.reset();
  EXPECT_EQ(answer.get_future().get().body, "this worker is stopping");
  EXPECT_EQ(ask(ChainVerb::kStep, "step").body, "http");
}

// A test's own connection to a step server.
class Caller {
 public:
  explicit Caller(int port) : socket_(connect_to(kWorkerOfSteps, port).value()) { set_limits(socket_, 20, 20); }
  ~Caller() { ::close(socket_); }
  Caller(const Caller&) = delete;
  Caller& operator=(const Caller&) = delete;
  void send(std::string bytes) const {
    iovec parts[] = {{bytes.data(), bytes.size()}};
    EXPECT_TRUE(send_all(socket_, parts));
  }
  void say_hello() const {
    send(std::string(kChainStepsHello, sizeof(kChainStepsHello)));
    char hello[sizeof(kChainStepsHello)];
    EXPECT_TRUE(receive_all(socket_, hello, sizeof(hello)));
  }
  void send_step(const std::string& step, std::uint64_t said_bytes) const {
    send(std::string(reinterpret_cast<const char*>(&said_bytes), sizeof(said_bytes)) + step);
  }
  [[nodiscard]] int status() const {
    ChainStepAnswerHead head{};
    if (!receive_all(socket_, &head, sizeof(head))) return -1;
    std::string rest(head.rejected_bytes + head.body_bytes, '\0');
    return receive_all(socket_, rest.data(), rest.size()) ? static_cast<int>(head.status) : -1;
  }
  [[nodiscard]] bool ended() const {
    char byte = 0;
    return !receive_all(socket_, &byte, 1);
  }

 private:
  const int socket_;
};

// Given another protocol, steps of excessive length, or no stage; expects connections to end. Given invalid steps, or unknown
// sessions; expects the same answers as over HTTP, and the connection to stay.
TEST(ChainStepServing, StrangersAreTurnedAway) {
  Rng rng(1, "strangers");
  Mesh mesh(testing::config_with_layers(rng, 2), 1);
  mesh.add("b:1", {1, 2}, 24);
  const ChainStageOptions options{mesh.model, {1, 2}, 100, 24, 4};
  auto stage =
      std::make_shared<ChainStage>(options, mesh.backend({1, 2}, 24, 24, 4), mesh.post(), mesh.clock, mesh.head.metrics);
  std::mutex mutex;
  const auto server = ChainStepServer::open("127.0.0.1", [&] {
                        const std::scoped_lock lock(mutex);
                        return stage;
                      }).value();
  {
    const Caller other(server->port());
    other.send("GET / HTTP/1.1\r\n\r\n");
    EXPECT_TRUE(other.ended());
  }
  {
    const Caller caller(server->port());
    caller.say_hello();
    caller.send_step("no step", 7);
    EXPECT_EQ(caller.status(), 400);
    const std::vector<ChainChunk> chunks = {{session_of(1), 0, 1, true}};
    const std::string step =
        step_head(chunks) + std::string(static_cast<std::size_t>(mesh.model.hidden_size) * sizeof(float), '\0');
    caller.send_step(step, step.size());
    EXPECT_EQ(caller.status(), 404);
    caller.send_step("", max_step_bytes(mesh.model.hidden_size) + 1);
    EXPECT_TRUE(caller.ended());
  }
  const Caller caller(server->port());
  caller.say_hello();
  {
    std::shared_ptr<ChainStage> gone;
    const std::scoped_lock lock(mutex);
    gone.swap(stage);
  }
  caller.send_step("no step", 7);
  EXPECT_TRUE(caller.ended());
}

// Given a chain of three workers in a mesh of connections; expects every step of a request to use them.
TEST(ChainStepServing, WholeRequestsTakeConnections) {
  Rng rng(2, "requests");
  Mesh::steps_have_connections = true;
  Mesh mesh(testing::config_with_layers(rng, 3), 2);
  Mesh::steps_have_connections = false;
  mesh.add("b:1", {1, 2}, 24);
  mesh.add("c:1", {2, 3}, 24);
  EngineOptions options;
  options.max_running = 4;
  options.max_waiting = 4;
  options.max_context_tokens = 100;
  options.max_batch_tokens = 24;
  options.prefix_caching = false;
  testing::First chain(mesh, 1, options, 20);
  ASSERT_TRUE(chain.submit(1, testing::greedy({1, 2, 3}, 20), {"b:1", "c:1"}).ok());
  while (!chain.engine.idle()) {
    for (const TokenEvent& event : chain.step()) EXPECT_NE(event.finish, FinishReason::kError) << event.error;
  }
  EXPECT_EQ(mesh.steps_without_one, 0);
  mesh.expect_empty();
}

}  // namespace
}  // namespace windlass::worker
