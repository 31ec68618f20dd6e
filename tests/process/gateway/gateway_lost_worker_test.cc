// Workers that fall silent, die, or lose their node without notice, behind the real gateway.
#include <csignal>
#include <cstdlib>

#include <arpa/inet.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/process/gateway/harness.h"

namespace windlass::gateway::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// A server whose machine can be cut off: from then on it accepts no connection and answers nothing, and open connections stay
// silently open, as after a power failure.
class Node {
 public:
  Node() {
    listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    address_.sin_family = AF_INET;
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address_;
    ::bind(listener_, reinterpret_cast<sockaddr*>(&address_), size);
    ::listen(listener_, 0);
    ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address_), &size);
    acceptor_ = std::thread([this] { accept_loop(); });
  }
  ~Node() {
    cut_off_ = true;
    ::shutdown(listener_, SHUT_RDWR);
    if (acceptor_.joinable()) acceptor_.join();
    for (auto& connection : connections_) connection.shut_down();
    for (auto& thread : threads_) thread.join();
    ::close(listener_);
    for (const int fd : fillers_) ::close(fd);
  }

  [[nodiscard]] std::string address() const { return "127.0.0.1:" + std::to_string(ntohs(address_.sin_port)); }
  [[nodiscard]] int requests() const { return requests_; }

  void cut_off() {
    cut_off_ = true;
    const auto wake = Connection::connect(ntohs(address_.sin_port));  // wakes the accept loop, which then sees the flag
    acceptor_.join();
    // Fill the backlog with connections that are never accepted; after that the kernel drops the first packet of new ones.
    for (int i = 0; i < 4; ++i) {
      const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
      ::connect(fd, reinterpret_cast<sockaddr*>(&address_), sizeof address_);
      fillers_.push_back(fd);
    }
  }

 private:
  void accept_loop() {
    while (true) {
      const int fd = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (cut_off_ || fd < 0) {
        if (fd >= 0) fillers_.push_back(fd);
        return;
      }
      connections_.emplace_back(fd);
      Connection& connection = connections_.back();
      threads_.emplace_back([this, &connection] {
        while (const auto request = read_message(connection)) {
          const bool probe = is_probe(*request);
          if (!probe) ++requests_;
          if (probe && !cut_off_) connection.write("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        }
      });
    }
  }

  int listener_ = -1;
  sockaddr_in address_{};
  std::atomic<bool> cut_off_ = false;
  std::atomic<int> requests_ = 0;
  std::list<Connection> connections_;
  std::vector<std::thread> threads_;
  std::vector<int> fillers_;
  std::thread acceptor_;
};

std::string worker_of(const std::optional<Message>& answer) { return answer ? answer->header("x-windlass-worker") : ""; }

bool silent(const GatewayProcess& gateway, int count) {
  return wait_until([&] { return gateway.metric("windlass_gateway_silent_workers", {{"model", "tiny"}}) == count; });
}

// Given the faster of two workers suspended (SIGSTOP) in the middle of a stream; expects no new requests for it. When it
// resumes (SIGCONT), expects new requests for it again and a stream without gaps.
TEST(GatewayLostWorker, AStoppedWorkerIsTakenOutAndIn) {
  WorkerProcess fast("fast"), slow("slow");
  FakeController controller;
  controller.set_table(table(1, {chain("fast", fast.address(), 9), chain("slow", slow.address(), 1)}));
  GatewayProcess gateway({controller.url()});
  ASSERT_TRUE(gateway.obeys({1, 1}));
  auto client = Connection::connect(gateway.port());
  ASSERT_TRUE(client && client->write(post("/v1/chat/completions", chat("tiny", "hi", true))));
  ASSERT_EQ(worker_of(read_head(*client)), id_of("fast"));
  ASSERT_EQ(read_chunk(*client), token_event("fast"));
  fast.signal(SIGSTOP);
  ASSERT_TRUE(silent(gateway, 1));
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(worker_of(ask(gateway.port(), post("/v1/chat/completions", chat("tiny", "hi", false)))), id_of("slow"));
  }
  fast.signal(SIGCONT);
  ASSERT_TRUE(silent(gateway, 0));
  EXPECT_EQ(worker_of(ask(gateway.port(), post("/v1/chat/completions", chat("tiny", "hi", false)))), id_of("fast"));
  std::string rest;
  for (auto bytes = read_chunk(*client); bytes && !bytes->empty(); bytes = read_chunk(*client)) rest += *bytes;
  EXPECT_THAT(rest, HasSubstr(kDoneEvent));
  EXPECT_THAT(rest, Not(HasSubstr("error")));
}

// Given the faster of two workers killed (SIGKILL) with a stream and an unanswered request in flight; expects an error event in
// the stream, an answer from the other worker for the request, both counted, and new requests at the other worker.
TEST(GatewayLostWorker, AKilledWorkersRequests) {
  WorkerProcess fast("fast"), slow("slow");
  FakeController controller;
  controller.set_table(table(1, {chain("fast", fast.address(), 9), chain("slow", slow.address(), 1)}));
  GatewayProcess gateway({controller.url()});
  ASSERT_TRUE(gateway.obeys({1, 1}));
  auto stream = Connection::connect(gateway.port());
  ASSERT_TRUE(stream && stream->write(post("/v1/chat/completions", chat("tiny", "hi", true))));
  ASSERT_EQ(worker_of(read_head(*stream)), id_of("fast"));
  auto hanging = Connection::connect(gateway.port());
  ASSERT_TRUE(hanging && hanging->write(post("/v1/chat/completions", chat("tiny", "hang at fast", false))));
  ASSERT_TRUE(wait_until([&] { return gateway.metric("windlass_gateway_requests_in_flight", {{"chain", "fast"}}) == 2; }));
  fast.signal(SIGKILL);
  EXPECT_EQ(worker_of(read_message(*hanging)), id_of("slow"));
  std::string rest;
  for (auto bytes = read_chunk(*stream); bytes && !bytes->empty(); bytes = read_chunk(*stream)) rest += *bytes;
  EXPECT_THAT(rest, HasSubstr("data: {\"error\":{"));
  EXPECT_THAT(rest, Not(HasSubstr(kDoneEvent)));
  EXPECT_EQ(gateway.metric("windlass_gateway_upstream_errors_total", {{"reason", "broken"}}), 2);
  ASSERT_TRUE(silent(gateway, 1));
  EXPECT_EQ(worker_of(ask(gateway.port(), post("/v1/chat/completions", chat("tiny", "hi", false)))), id_of("slow"));
}

// Given a node that is cut off, without a reset, with an unanswered request in flight; expects another worker to answer it.
TEST(GatewayLostWorker, ANodeThatIsCutOff) {
  Node node;
  WorkerProcess slow("slow");
  FakeController controller;
  controller.set_table(table(1, {chain("node", node.address(), 9), chain("slow", slow.address(), 1)}));
  GatewayProcess gateway({controller.url()});
  ASSERT_TRUE(gateway.obeys({1, 1}));
  auto client = Connection::connect(gateway.port());
  ASSERT_TRUE(client && client->write(post("/v1/chat/completions", chat("tiny", "hi", false))));
  ASSERT_TRUE(wait_until([&] { return node.requests() == 1; }));
  node.cut_off();
  EXPECT_EQ(worker_of(read_message(*client)), id_of("slow"));
  EXPECT_EQ(gateway.metric("windlass_gateway_upstream_errors_total", {{"reason", "recalled"}}), 1);
  EXPECT_TRUE(wait_until([&] { return gateway.log().find("is unreachable") != std::string::npos; })) << gateway.log();
  EXPECT_EQ(worker_of(ask(gateway.port(), post("/v1/chat/completions", chat("tiny", "hi", false)))), id_of("slow"));
}

// Given a draining worker that leaves the table and ends with a stream and an unanswered request; expects another worker to
// answer the request, an error in the stream, and both counted as drain timeouts.
TEST(GatewayLostWorker, ADrainTimeoutMovesOrEndsRequests) {
  WorkerProcess old("old"), young("young");
  FakeController controller;
  controller.set_table(table(1, {chain("old", old.address(), 9)}));
  GatewayProcess gateway({controller.url()});
  ASSERT_TRUE(gateway.obeys({1, 1}));
  auto stream = Connection::connect(gateway.port());
  ASSERT_TRUE(stream && stream->write(post("/v1/chat/completions", chat("tiny", "hi", true))));
  ASSERT_EQ(worker_of(read_head(*stream)), id_of("old"));
  auto hanging = Connection::connect(gateway.port());
  ASSERT_TRUE(hanging && hanging->write(post("/v1/chat/completions", chat("tiny", "hang at old", false))));
  ASSERT_TRUE(wait_until([&] { return gateway.metric("windlass_gateway_requests_in_flight", {{"chain", "old"}}) == 2; }));
  controller.set_table(table(2, {chain("young", young.address())}));
  ASSERT_TRUE(gateway.obeys({1, 2}));
  old.signal(SIGKILL);
  EXPECT_EQ(worker_of(read_message(*hanging)), id_of("young"));
  std::string rest;
  for (auto bytes = read_chunk(*stream); bytes && !bytes->empty(); bytes = read_chunk(*stream)) rest += *bytes;
  EXPECT_THAT(rest, HasSubstr("data: {\"error\":{"));
  EXPECT_EQ(gateway.metric("windlass_gateway_upstream_errors_total", {{"reason", "drain_timeout"}}), 2);
}

}  // namespace
}  // namespace windlass::gateway::testing
