// The server over loopback, with slow, wrong and vanishing clients. Limits are small here; no test waits for a time limit
// except those that say so, and these wait for milliseconds.
#include "metrics/net/http_service.h"

#include <atomic>
#include <future>
#include <mutex>
#include <thread>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/http_connection.h"
#include "tests/loopback.h"

namespace windlass::net {
namespace {

using test_client::ask;
using test_client::Connection;
using test_client::get;

using test_client::post;
using test_client::read_chunk;
using test_client::read_head;
using test_client::read_message;
using test_client::wait_until;

constexpr auto kNever = std::chrono::minutes(10);

HttpServer::Options options_with(HttpLimits limits = {}) {
  limits.head_time = limits.body_time = limits.idle_time = kNever;
  HttpServer::Options options;
  options.limits = limits;
  options.refusal_body = [](const Refusal& refused) { return refused.message; };
  return options;
}

// A service on its own port.
struct Served {
  explicit Served(HttpService::Handler handler, HttpServer::Options options = options_with())
      : service(std::move(options), std::move(handler), 2) {
    opened = service.open({"127.0.0.1", "0"}).ok();
  }
  [[nodiscard]] int port() const { return std::stoi(service.bound().port); }

  HttpService service;
  bool opened = false;
};

void echo(const ServerCall& call) {
  call.answer({200, call.method() + " " + call.target() + " " + call.body(), "text/plain", {}});
}

// Given a hundred pipelined requests, split anywhere, chunked or not; expects an answer to each, in order.
TEST(HttpService, AnswersInTheOrderOfRequests) {
  Served served(echo);
  ASSERT_TRUE(served.opened);
  auto client = Connection::connect(served.port());
  ASSERT_TRUE(client);
  std::string all;
  for (int i = 0; i < 50; ++i) {
    all +=
        post("/p?i=" + std::to_string(i), std::to_string(i)) +
        "POST /c HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2;x=y\r\nab\r\n1\r\nc\r\n0\r\nX: trailer\r\n\r\n\r\n";
  }
  std::thread writer([&] {
    for (std::size_t at = 0; at < all.size(); at += 37) client->write(std::string_view(all).substr(at, 37));
  });
  for (int i = 0; i < 50; ++i) {
    const auto one = read_message(*client);
    const auto other = read_message(*client);
    EXPECT_TRUE(one && one->body == fmt::format("POST /p?i={} {}", i, i)) << i;
    EXPECT_TRUE(other && other->body == "POST /c abc") << i;
  }
  writer.join();
}

// Given a server at "::", expects answers over IPv4 and over IPv6.
TEST(HttpService, ListensOnBothFamilies) {
  if (!has_ipv6_loopback()) GTEST_SKIP() << "this machine has no ::1";
  HttpService service(options_with(), echo, 1);
  ASSERT_TRUE(service.open({"::", "0"}).ok());
  const int port = std::stoi(service.bound().port);
  const auto answer = ask(port, get("/four"));
  EXPECT_TRUE(answer && answer->body == "GET /four ");

  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_addr = in6addr_loopback;
  address.sin6_port = htons(static_cast<std::uint16_t>(port));
  const int socket = ::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  Connection client(socket);
  ASSERT_EQ(::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  client.write(get("/six"));
  const auto other = read_message(client);
  EXPECT_TRUE(other && other->body == "GET /six ");
}

// Given a call's parts; expects them as sent, and a trailer not to count as a header.
TEST(HttpService, PassesTheRequestToTheHandler) {
  Served served([](const ServerCall& call) {
    call.answer({200,
                 call.path() + "|" + call.query("a") + "|" + call.query("bad") + "|" + call.query("none") + "|" +
                     call.header("x-one") + "|" + call.header("x-trailer"),
                 "text/plain",
                 {{"X-Good", "1"}, {"X-Bad", "1\r\nX-Injected: 1"}}});
  });
  ASSERT_TRUE(served.opened);
  const auto answer = ask(served.port(),
                          "POST http://h/p%20q?b=2&a=%41+b&bad=%zz HTTP/1.1\r\nHost: h\r\nX-ONE: 1\r\n"
                          "Transfer-Encoding: chunked\r\n\r\n0\r\nX-Trailer: 1\r\n\r\n");
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->body, "/p%20q|A+b|||1|");
  EXPECT_EQ(answer->header("x-good"), "1");
  EXPECT_EQ(answer->header("x-injected"), "");
}

// Given answers that close their connection: because the client, the handler or HTTP/1.0 wants it; expects each to do so.
TEST(HttpService, ClosesWhenAsked) {
  Served served([](const ServerCall& call) {
    HttpResponse response{200, "x", "text/plain", {}};
    if (call.path() == "/last") response.headers.emplace_back("connection", "Close");
    call.answer(std::move(response));
  });
  ASSERT_TRUE(served.opened);
  for (const std::string& request : {get("/last"), std::string("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"),
                                     std::string("GET / HTTP/1.0\r\n\r\n")}) {
    auto client = Connection::connect(served.port());
    ASSERT_TRUE(client && client->write(request + get("/next")));
    const auto answer = read_message(*client);
    ASSERT_TRUE(answer) << request;
    EXPECT_EQ(answer->header("connection"), "close") << request;
    EXPECT_TRUE(client->peer_closes()) << request;
  }
}

// Given a body written piece by piece; expects each piece as it is written, the end, and nothing after it.
TEST(HttpService, StreamsPieceByPiece) {
  std::promise<ServerCall> asked;
  std::promise<bool> sent;
  Served served([&](const ServerCall& call) {
    call.begin({200, "first", "text/plain", {{"X-Own", "1"}}}, [&](bool whole) { sent.set_value(whole); });
    asked.set_value(call);
  });
  ASSERT_TRUE(served.opened);
  auto client = Connection::connect(served.port());
  ASSERT_TRUE(client && client->write(get("/")));
  const auto head = read_head(*client);
  ASSERT_TRUE(head);
  EXPECT_EQ(head->header("x-own"), "1");
  EXPECT_EQ(read_chunk(*client), "first");
  const ServerCall call = asked.get_future().get();
  call.write("second");
  EXPECT_EQ(read_chunk(*client), "second");
  call.finish();
  EXPECT_EQ(read_chunk(*client), "");
  EXPECT_TRUE(sent.get_future().get());
  call.write("after the end");
  call.answer({200, "a second answer", "text/plain", {}});
}

// Given answers that break off, are released without an answer, or come from a handler that throws; expects the client to see
// that, and the next one to be served.
TEST(HttpService, IncompleteAnswersBreakTheConnection) {
  Served served([](const ServerCall& call) {
    if (call.path() == "/throws") throw std::runtime_error("on purpose");
    if (call.path() == "/throws-else") throw 1;
    if (call.path() == "/lets-go") return;
    if (call.path() == "/silent") return call.break_off();
    if (call.path() == "/breaks") {
      call.begin({200, "part", "text/plain", {}});
      return call.break_off();
    }
    if (call.path() == "/forgets") return call.begin({200, "part", "text/plain", {}});
    call.answer({200, "ok", "text/plain", {}});
  });
  ASSERT_TRUE(served.opened);
  for (const char* path : {"/throws", "/throws-else", "/lets-go"}) {
    const auto answer = ask(served.port(), get(path));
    ASSERT_TRUE(answer) << path;
    EXPECT_EQ(answer->status(), 500) << path;
  }
  for (const char* path : {"/silent", "/breaks", "/forgets"}) EXPECT_FALSE(ask(served.port(), get(path))) << path;
  EXPECT_EQ(ask(served.port(), get("/"))->body, "ok");
}

// Given clients that leave before an answer has begun, in the middle of a stream, and with a reset; expects the handler to be
// told, and further writes to do no harm.
TEST(HttpService, ReportsClientsThatLeave) {
  for (const bool streams : {false, true}) {
    for (const bool resets : {false, true}) {
      std::promise<ServerCall> asked;
      std::promise<void> left;
      Served served([&](const ServerCall& call) {
        call.on_left([&] { left.set_value(); });
        if (streams) call.begin({200, "first", "text/plain", {}});
        asked.set_value(call);
      });
      ASSERT_TRUE(served.opened);
      auto client = Connection::connect(served.port());
      // A pipelined request: its bytes hide the end of the connection.
      ASSERT_TRUE(client && client->write(get("/") + (resets ? get("/next") : "")));
      const ServerCall call = asked.get_future().get();
      if (resets) {
        client->reset();
      } else {
        client->close();
      }
      left.get_future().wait();
      for (int i = 0; i < 3; ++i) call.write(std::string(100'000, 'x'));
      call.finish();
    }
  }
}

// Given requests that no handler may see; expects each to be answered and its connection to be closed.
TEST(HttpService, RefusesBeforeTheHandler) {
  std::atomic<int> handled = 0;
  HttpLimits limits;
  limits.head_bytes = 1024;
  limits.body_bytes = 1000;
  HttpServer::Options options = options_with(limits);
  options.admit = [](const http::request_header<>& head) -> std::optional<Refusal> {
    if (head.find("X-Key") != head.end()) return std::nullopt;
    return Refusal{401, "no key", "", "WWW-Authenticate: Bearer\r\n"};
  };
  options.max_body = [](const http::request_header<>& head) { return head.target() == "/large" ? 2000U : 1000U; };
  Served served(
      [&](const ServerCall& call) {
        ++handled;
        echo(call);
      },
      std::move(options));
  ASSERT_TRUE(served.opened);
  const std::string key = "X-Key: 1\r\n";
  const std::string chunked = "POST / HTTP/1.1\r\nHost: a\r\n" + key + "Transfer-Encoding: chunked\r\n\r\n";
  const std::vector<std::pair<std::string, int>> cases = {
      {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 900\r\n\r\n", 401},  // without a byte of the body
      {post("/", "", key + "X-Long: " + std::string(1024, 'x') + "\r\n"), 431},
      {"POST / HTTP/1.1\r\nHost: a\r\n" + key + "Content-Length: 1001\r\n\r\n", 413},
      {"POST / HTTP/1.1\r\nHost: a\r\n" + key + "Content-Length: 1001\r\nExpect: 100-continue\r\n\r\n", 413},
      {chunked + "3e9\r\n", 413},
      {chunked + "40000000\r\n", 413},
      {chunked + "ffffffffffffffff\r\n", 413},
      {chunked + "-1\r\n", 400},
      {chunked + "x\r\n", 400},
      {chunked + "1\r\naXX\r\n", 400},
      {chunked + "1;" + std::string(200'000, 'e'), 400},
      {chunked + "0\r\nX: " + std::string(200'000, 't'), 400},
      {"GET / HTTP/1.1\n", 400},
      {"\x16\x03\x01", 400},
  };
  for (const auto& [request, status] : cases) {
    auto client = Connection::connect(served.port());
    ASSERT_TRUE(client);
    client->write(request);
    const auto answer = read_message(*client);
    ASSERT_TRUE(answer) << request.substr(0, 100);
    EXPECT_EQ(answer->status(), status) << request.substr(0, 100) << answer->body;
    EXPECT_EQ(answer->header("connection"), "close");
    client->finish_writing();
    EXPECT_TRUE(client->peer_closes());
  }
  EXPECT_EQ(handled, 0);
  EXPECT_EQ(ask(served.port(), post("/large", std::string(1500, 'b'), key))->status(), 200);
}

// Given bodies that need more memory than there is; expects the last to be refused, and to hold none while its client reads the
// answer.
TEST(HttpService, BodiesHaveOneBudget) {
  std::promise<ServerCall> first;
  std::atomic<int> calls = 0;
  HttpServer::Options options = options_with();
  options.memory = std::make_shared<MemoryBudget>(150'000);
  const auto memory = options.memory;
  Served served(
      [&](const ServerCall& call) {
        if (++calls == 1) return first.set_value(call);
        echo(call);
      },
      std::move(options));
  ASSERT_TRUE(served.opened);
  auto holds = Connection::connect(served.port());
  ASSERT_TRUE(holds && holds->write(post("/", std::string(100'000, 'a'))));
  std::optional<ServerCall> held = first.get_future().get();
  auto refused = Connection::connect(served.port());
  ASSERT_TRUE(refused && refused->write(post("/", std::string(100'000, 'b'))));
  const auto answer = read_message(*refused);
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->status(), 503);
  EXPECT_EQ(answer->header("retry-after"), "1");
  EXPECT_EQ(ask(served.port(), post("/", std::string(40'000, 'c')))->status(), 200);
  held->answer({200, "", "text/plain", {}});
  EXPECT_EQ(read_message(*holds)->status(), 200);
  held.reset();
  EXPECT_TRUE(wait_until([&] { return memory->held_bytes() == 0; }));
  EXPECT_EQ(ask(served.port(), post("/", std::string(100'000, 'd')))->status(), 200);
}

// Given clients that send bodies and leave before any handler has run; expects the budget to count each body until its call is
// released.
TEST(HttpService, ABodyCountsWhileItIsHeld) {
  constexpr std::size_t kClients = 3;
  constexpr std::size_t kBodyBytes = 40'000;
  HttpLimits limits;
  limits.connections = kClients;
  HttpServer::Options options = options_with(limits);
  options.admit = [](const http::request_header<>& head) -> std::optional<Refusal> {
    if (head.target() != "/refused") return std::nullopt;
    return Refusal{401, "", "", ""};
  };
  const auto memory = options.memory;
  std::atomic<int> handled = 0;
  std::shared_future<void> may_run;
  Served served(
      [&](const ServerCall&) {
        may_run.wait();
        ++handled;
      },
      std::move(options));
  ASSERT_TRUE(served.opened);
  std::promise<void> run;  // declared before the service, whose handlers wait for it
  may_run = run.get_future().share();
  std::vector<Connection> clients;
  for (std::size_t i = 0; i < kClients; ++i) {
    clients.push_back(Connection::connect(served.port()).value());
    ASSERT_TRUE(clients.back().write(post("/", std::string(kBodyBytes, 'a'))));
  }
  ASSERT_TRUE(wait_until([&] { return memory->held_bytes() == kClients * kBodyBytes; }));
  clients.clear();
  // The server has noticed that they left when it accepts equally many others.
  ASSERT_TRUE(wait_until([&] {
    clients.clear();
    bool all_in = true;
    for (std::size_t i = 0; i < kClients; ++i) {
      clients.push_back(Connection::connect(served.port()).value());
      all_in = all_in && clients.back().write(get("/refused")) && read_message(clients.back());
    }
    return all_in;
  }));
  EXPECT_EQ(handled, 0);
  EXPECT_EQ(memory->held_bytes(), kClients * kBodyBytes);
  run.set_value();
  EXPECT_TRUE(wait_until([&] { return memory->held_bytes() == 0; }));
  EXPECT_EQ(handled, 3);
}

// Given the maximum number of connections, some of them idle; expects a new one to be served and the longest idle one to be
// closed. If all have running requests, expects the new one to be closed.
TEST(HttpService, IdleConnectionsMakeRoom) {
  std::mutex mutex;
  std::vector<ServerCall> held;
  const auto held_count = [&] {
    const std::scoped_lock lock(mutex);
    return held.size();
  };
  HttpLimits limits;
  limits.connections = 4;
  Served served(
      [&](const ServerCall& call) {
        if (call.path() != "/held") return echo(call);
        const std::scoped_lock lock(mutex);
        held.push_back(call);
      },
      options_with(limits));
  ASSERT_TRUE(served.opened);
  std::vector<Connection> clients;
  for (int i = 0; i < 4; ++i) {
    clients.push_back(Connection::connect(served.port()).value());
    // Answered, so that it is known to be accepted; or half a head.
    if (i < 2) {
      ASSERT_TRUE(clients.back().write(get("/")) && read_message(clients.back()));
    } else {
      ASSERT_TRUE(clients.back().write("GET /half HTTP/1.1\r\n"));
    }
  }
  EXPECT_EQ(ask(served.port(), get("/new"))->status(), 200);
  EXPECT_TRUE(clients[0].peer_closes());
  clients.clear();
  for (int i = 0; i < 4; ++i) {
    clients.push_back(Connection::connect(served.port()).value());
    ASSERT_TRUE(clients.back().write(get("/held")));
    ASSERT_TRUE(wait_until([&] { return held_count() == static_cast<std::size_t>(i + 1); }));
  }
  auto fifth = Connection::connect(served.port());
  ASSERT_TRUE(fifth);
  EXPECT_TRUE(fifth->peer_closes());
  const std::scoped_lock lock(mutex);
  for (const ServerCall& call : held) call.answer({200, "", "text/plain", {}});
  for (Connection& client : clients) EXPECT_EQ(read_message(client)->status(), 200);
}

// Given clients that send a head, a body, or nothing, too slowly; expects each time limit to end them.
TEST(HttpService, SlowClientsEnd) {
  HttpServer::Options options = options_with();
  options.limits.head_time = options.limits.body_time = options.limits.idle_time = std::chrono::milliseconds(20);
  Served served(echo, std::move(options));
  ASSERT_TRUE(served.opened);
  for (const char* begins : {"", "GET / HT", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nab"}) {
    auto client = Connection::connect(served.port());
    ASSERT_TRUE(client && client->write(begins));
    EXPECT_TRUE(client->peer_closes()) << begins;
  }
}

// Given a client that reads nothing of a stream; expects bounded memory for it, and the stream to end.
TEST(HttpService, AClientThatReadsNothingHoldsBoundedMemory) {
  std::promise<bool> sent;
  std::promise<ServerCall> asked;
  Served served([&](const ServerCall& call) {
    call.begin({200, "", "text/plain", {}}, [&](bool whole) { sent.set_value(whole); });
    asked.set_value(call);
  });
  ASSERT_TRUE(served.opened);
  auto client = Connection::connect(served.port());
  ASSERT_TRUE(client && client->write(get("/")));
  const ServerCall call = asked.get_future().get();
  auto end = sent.get_future();
  while (end.wait_for(std::chrono::seconds(0)) != std::future_status::ready) call.write(std::string(1U << 20U, 'x'));
  EXPECT_FALSE(end.get());
}

// Given a service that closes with running requests; expects those that end in time to be answered, the others to be broken
// off, and calls that outlive it to do no harm.
TEST(HttpService, ClosesWithRequestsInHand) {
  std::mutex mutex;
  std::vector<ServerCall> held;
  std::optional<Connection> patient, late;
  bool closed = true;
  {
    Served served([&](const ServerCall& call) {
      const std::scoped_lock lock(mutex);
      held.push_back(call);
    });
    ASSERT_TRUE(served.opened);
    patient.emplace(Connection::connect(served.port()).value());
    ASSERT_TRUE(patient && patient->write(get("/")));
    ASSERT_TRUE(wait_until([&] {
      const std::scoped_lock lock(mutex);
      return held.size() == 1;
    }));
    std::thread answers([&] { held[0].answer({200, "in time", "text/plain", {}}); });
    closed = served.service.close(test_client::kDeadlineS);
    answers.join();
  }
  EXPECT_TRUE(closed);
  EXPECT_EQ(read_message(*patient)->body, "in time");
  {
    Served served([&](const ServerCall& call) {
      const std::scoped_lock lock(mutex);
      held.push_back(call);
    });
    late.emplace(Connection::connect(served.port()).value());
    ASSERT_TRUE(late && late->write(get("/")));
    ASSERT_TRUE(wait_until([&] {
      const std::scoped_lock lock(mutex);
      return held.size() == 2;
    }));
    closed = served.service.close(0);
  }
  EXPECT_FALSE(closed);
  EXPECT_TRUE(late->peer_closes());
  held[1].answer({200, "too late", "text/plain", {}});
  held[1].on_left([] {});
  held[1].post([] {});
}

// A handler that reports that it has answered.
HttpServer::Handler answering(asio::io_context& io) {
  return [&io](Stream& stream, HttpRequest&) -> asio::awaitable<bool> {
    const std::string answer = simple_response(200, "text/plain", "hello", false);
    error_code error;
    co_await asio::async_write(stream.socket(), asio::buffer(answer), to(error));
    io.stop();
    co_return false;
  };
}

// Given a socket that already listens, and a client that connects before the server accepts; expects the client to wait and be
// answered.
TEST(HttpServer, AdoptsASocketThatListens) {
  const int listening = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ASSERT_EQ(::listen(listening, 8), 0);  // on a port that the kernel chooses
  asio::io_context io;
  HttpServer server(io, answering(io), options_with());
  const auto adopted = server.adopt(listening);
  ASSERT_TRUE(adopted.ok()) << adopted.error().message;
  auto client = Connection::connect(std::stoi(server.bound().port));
  ASSERT_TRUE(client && client->write(get("/")));
  server.accept();
  io.run();
  const auto answer = read_message(*client);
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->body, "hello");
}

// Given descriptors of a socket that does not listen, of a file, and of nothing; expects an error with the number.
TEST(HttpServer, AdoptsNothingElse) {
  asio::io_context io;
  HttpServer server(io, answering(io), options_with());
  const int idle = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  for (const int number : {idle, 0, 4'000'000}) {
    const auto adopted = server.adopt(number);
    ASSERT_FALSE(adopted.ok());
    EXPECT_EQ(adopted.error().message, fmt::format("must be the number of a socket that listens (got {})", number));
  }
  ::close(idle);
}

}  // namespace
}  // namespace windlass::net
