// Answers between workers over HTTP, as the client reads them: never more than it allows.
#include <future>
#include <string>
#include <thread>

#include <arpa/inet.h>
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "worker/serve/chain_http.h"

namespace windlass::worker {
namespace {

using ::testing::HasSubstr;

constexpr const char* kCall = "a step";

// Listens on a port of its own.
class Listener {
 public:
  Listener() : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = ::htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(at);
    EXPECT_EQ(::bind(socket_, reinterpret_cast<const sockaddr*>(&at), size), 0);
    EXPECT_EQ(::listen(socket_, 4), 0);
    const timeval limit{20, 0};  // after this time nobody will call
    EXPECT_EQ(::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)), 0);
    EXPECT_EQ(::getsockname(socket_, reinterpret_cast<sockaddr*>(&at), &size), 0);
    address_ = fmt::format("127.0.0.1:{}", ::ntohs(at.sin_port));
  }
  ~Listener() { ::close(socket_); }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  // The next connection, once a call of answer_of() has arrived on it.
  [[nodiscard]] int called() const {
    const int peer = ::accept(socket_, nullptr, nullptr);
    read_call(peer);
    return peer;
  }
  // Reads all of it: closing with unread data would reset the connection.
  static void read_call(int peer) {
    std::string bytes;
    char byte = 0;
    while (!bytes.ends_with(kCall) && ::recv(peer, &byte, 1, 0) == 1) bytes += byte;
    EXPECT_THAT(bytes, ::testing::EndsWith(kCall));
  }
  [[nodiscard]] const std::string& address() const { return address_; }

 private:
  int socket_;
  std::string address_;
};

// Accepts one connection, reads what arrives first and writes `head`, then `more` as often as the peer accepts it, up to kMost
// bytes.
class Answering {
 public:
  static constexpr std::size_t kMost = 256U << 20U;

  Answering(const std::string& head, const std::string& more) : thread_([this, head, more] { answer(head, more); }) {}
  ~Answering() { thread_.join(); }
  Answering(const Answering&) = delete;
  Answering& operator=(const Answering&) = delete;

  [[nodiscard]] const std::string& address() const { return listener_.address(); }
  // Returns once the other side has closed the connection, or accepted everything.
  [[nodiscard]] std::size_t taken() { return taken_.get_future().get(); }

 private:
  void answer(const std::string& head, const std::string& more) {
    const int peer = listener_.called();
    std::size_t taken = 0;
    const auto write = [&](const std::string& text) {
      std::size_t done = 0;
      while (done < text.size()) {
        const auto n = ::send(peer, text.data() + done, text.size() - done, MSG_NOSIGNAL);
        if (n <= 0) return false;
        done += static_cast<std::size_t>(n);
      }
      taken += text.size();
      return true;
    };
    bool open = write(head);
    while (open && !more.empty() && taken < kMost) open = write(more);
    char byte = 0;
    if (open && more.empty()) static_cast<void>(::recv(peer, &byte, 1, 0));  // until it is closed
    taken_.set_value(taken);
    ::close(peer);
  }

  const Listener listener_;
  std::promise<std::size_t> taken_;
  std::thread thread_;
};

ChainAnswer answer_of(const ChainPost& post, const std::string& address, std::size_t max_bytes, double timeout_s = 5,
                      ChainVerb verb = ChainVerb::kStep) {
  std::promise<ChainAnswer> answer;
  post({address, verb, kCall, timeout_s, max_bytes}, [&](ChainAnswer found) { answer.set_value(std::move(found)); });
  return answer.get_future().get();
}

ChainPost calls() { return call_over_http(std::make_shared<HttpClient>()); }

void write(int peer, const std::string& text) {
  EXPECT_EQ(::send(peer, text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
}

std::string answer_text(const std::string& body) {
  return fmt::format("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{}", body.size(), body);
}

// Given an answer of an allowed length; expects its status, reason and body.
TEST(WorkerAnswers, AreReadWhole) {
  Answering answering("HTTP/1.1 503 Full\r\nContent-Length: 7\r\nX-Windlass-Rejected: full\r\n\r\nno room", "");
  {
    const ChainPost post = calls();
    const std::string port = answering.address().substr(answering.address().find(':'));
    const ChainAnswer answer = answer_of(post, "localhost" + port, 7);
    EXPECT_EQ(answer.status, 503);
    EXPECT_EQ(answer.rejected, "full");
    EXPECT_EQ(answer.body, "no room");
  }
}

// Given a worker that stops and restarts at its address; expects a call that finds the kept connection broken to use a new one.
TEST(WorkerAnswers, UseANewConnectionAfterABrokenOne) {
  const Listener listener;
  std::promise<void> gone;
  std::thread worker([&] {
    for (int life = 0; life < 2; ++life) {
      const int peer = listener.called();
      write(peer, answer_text("done"));
      if (life == 0) {
        const linger at_once{1, 0};  // like a process that is killed
        ::setsockopt(peer, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
      }
      ::close(peer);
      if (life == 0) gone.set_value();
    }
  });
  {
    const ChainPost post = calls();
    EXPECT_EQ(answer_of(post, listener.address(), 10).body, "done");
    gone.get_future().get();
    EXPECT_EQ(answer_of(post, listener.address(), 10).body, "done");
  }
  worker.join();
}

// Given a worker that reads a call over a kept connection and stops without an answer; expects a repeatable call to use a new
// connection, and any other to have no answer.
TEST(WorkerAnswers, AreRetriedIfRepeatable) {
  for (const bool repeatable : {true, false}) {
    const Listener listener;
    std::thread worker([&] {
      const int first = listener.called();
      write(first, answer_text("one"));
      Listener::read_call(first);
      ::close(first);
      if (!repeatable) return;
      const int second = listener.called();
      write(second, answer_text("two"));
      ::close(second);
    });
    const ChainPost post = calls();
    const ChainVerb verb = repeatable ? ChainVerb::kKeep : ChainVerb::kReserve;
    EXPECT_EQ(answer_of(post, listener.address(), 10, 5, verb).body, "one");
    const ChainAnswer answer = answer_of(post, listener.address(), 10, 5, verb);
    EXPECT_EQ(answer.status, repeatable ? 200 : 0);
    EXPECT_THAT(answer.body, HasSubstr(repeatable ? "two" : ": answer: "));
    worker.join();
  }
}

// Given a worker that sends two answers to one call; expects the next call to get its own. Data before any call is not an
// answer.
TEST(WorkerAnswers, AreOfTheirCalls) {
  const Listener listener;
  std::thread worker([&] {
    for (const std::string& text : {answer_text("one") + answer_text("junk"), answer_text("two"),
                                    "HTTP/1.1 100 Continue\r\n\r\n" + answer_text("late")}) {
      const int peer = listener.called();
      write(peer, text);
      char byte = 0;
      static_cast<void>(::recv(peer, &byte, 1, 0));  // until it is closed, or another call arrives
      ::close(peer);
    }
  });
  {
    const ChainPost post = calls();
    EXPECT_EQ(answer_of(post, listener.address(), 10).body, "one");
    EXPECT_EQ(answer_of(post, listener.address(), 10).body, "two");
  }
  {
    const ChainPost post = calls();
    EXPECT_THAT(answer_of(post, listener.address(), 10).body, HasSubstr("unexpected status 100"));
  }
  worker.join();
}

// Given an answer larger than a string can be; expects no answer.
TEST(WorkerAnswers, MustFitIntoMemory) {
  Answering answering("HTTP/1.1 200 OK\r\nContent-Length: 9300000000000000000\r\n\r\n", "");
  const ChainPost post = calls();
  const ChainAnswer answer = answer_of(post, answering.address(), std::numeric_limits<std::size_t>::max());
  EXPECT_EQ(answer.status, 0);
  EXPECT_THAT(answer.body, HasSubstr(": answer: "));
}

// Given a client that ends with a call in progress; expects that call to be dropped, and later ones to fail immediately.
TEST(WorkerAnswers, EndWithTheClient) {
  const Listener listener;
  std::promise<void> called;
  std::thread worker([&] {
    const int peer = listener.called();
    called.set_value();
    char byte = 0;
    EXPECT_EQ(::recv(peer, &byte, 1, 0), 0);
    ::close(peer);
  });
  const auto client = std::make_shared<HttpClient>();
  const auto held = std::make_shared<int>(0);
  client->ask({listener.address(), "POST", "/", kCall, 20, 10}, [held](const Result<HttpAnswer>&) { ADD_FAILURE(); });
  called.get_future().wait();
  client->end();
  EXPECT_EQ(held.use_count(), 1);
  EXPECT_THAT(answer_of(call_over_http(client), listener.address(), 10).body, HasSubstr("this worker is stopping"));
  worker.join();
}

// Given a worker that is silent, or stops sending, for longer than a call's timeout, or that does not exist; expects no answer.
TEST(WorkerAnswers, TimeOut) {
  for (const char* head : {"", "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nno"}) {
    Answering answering(head, "");
    const ChainPost post = calls();
    const ChainAnswer answer = answer_of(post, answering.address(), 7, 0.1);
    EXPECT_EQ(answer.status, 0);
    EXPECT_THAT(answer.body, HasSubstr("answer: did not arrive in time"));
  }
  const ChainPost post = calls();
  for (const std::string& address : {Listener().address(), std::string("nowhere"), std::string("127.0.0.1:99999")}) {
    const ChainAnswer answer = answer_of(post, address, 7);
    EXPECT_EQ(answer.status, 0);
    EXPECT_THAT(answer.body, HasSubstr(address + ": connection: "));
  }
}

// Given chunked answers without an end, or with an overlong chunk; a length that is too large, missing or given in addition to
// chunks; a header, chunk extension or trailer without an end. Expects no answer, and the connection closed after what sockets
// buffer, long before all of it could have been read into memory.
TEST(WorkerAnswers, AreNotReadBeyondWhatIsAllowed) {
  const std::string chunk = "10000\r\n" + std::string(0x10000, 'x') + "\r\n";
  const std::string plain(0x10000, 'x');
  const struct {
    std::string head, more, says;
  } cases[] = {
      {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", chunk, "must have at most 4096 bytes"},
      {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n20000000\r\n", plain, "must have at most 4096 bytes"},
      {"HTTP/1.1 200 OK\r\nContent-Length: 10\r\nTransfer-Encoding: chunked\r\n\r\n", chunk, "bad Transfer-Encoding"},
      {"HTTP/1.1 200 OK\r\nContent-Length: 300000000\r\n\r\n", plain, "must have at most 4096 bytes"},
      {"HTTP/1.1 200 OK\r\n\r\n", plain, "must have at most 4096 bytes"},
      {"HTTP/1.1 200 OK\r\nX-Long: ", plain, "header limit"},
      {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;", plain, "buffer overflow"},
      {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX-Long: ", plain, "buffer overflow"},
  };
  for (const auto& [head, more, says] : cases) {
    Answering answering(head, more);
    const ChainPost post = calls();
    const ChainAnswer answer = answer_of(post, answering.address(), 4096);
    EXPECT_EQ(answer.status, 0) << head;
    EXPECT_THAT(answer.body, HasSubstr(says)) << head;
    EXPECT_LT(answering.taken(), Answering::kMost / 4) << head;
  }
}

}  // namespace
}  // namespace windlass::worker
