// CurlTransport on real sockets: connections, TLS, timeouts, streams.
#include "controller/kube/curl_transport.h"

#include <algorithm>
#include <chrono>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/controller/kube/test_certificates.h"
#include "tests/unit/controller/kube/test_http_server.h"

namespace windlass::kube {
namespace {

using testing::HasSubstr;
using testing::Not;

const TestAuthority& authority() {
  static const TestAuthority kAuthority("windlass test authority");
  return kAuthority;
}

TestHttpServer::Tls server_tls() { return {authority().issue("server", {"IP:127.0.0.1"})}; }

CurlOptions trusting() {
  CurlOptions options;
  options.tls.ca_pem = authority().pem();
  return options;
}

HttpRequest get(const std::string& url, double timeout_s = 20) {
  HttpRequest request;
  request.url = url;
  request.timeout_s = timeout_s;
  return request;
}

void echo(const TestHttpServer::Request& request, TestHttpServer::Answer& answer) {
  answer.send(200, request.method + " " + request.target + " " + request.client_name + " " + request.body);
}

double now_s() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Polls until `enough` bytes have arrived, the stream has ended or a minute has passed.
struct Drained {
  std::string bytes;
  bool finished = false;
  std::optional<Error> error;
};
Drained drain(HttpStream& stream, std::size_t enough) {
  Drained out;
  eventually([&] {
    auto poll = stream.poll();
    if (!poll.ok()) {
      out.error = poll.error();
      return true;
    }
    out.bytes += poll->bytes;
    out.finished = poll->finished;
    return out.finished || out.bytes.size() >= enough;
  });
  return out;
}

// Given consecutive requests over TLS; expects one connection for all; methods, bodies and headers arrive unchanged.
TEST(CurlTransport, ReusesItsConnection) {
  TestHttpServer server(
      [](const auto& request, auto& answer) {
        answer.send(201, request.method + "|" + request.target + "|" + request.body + "|" + request.headers.at("x-test"),
                    "X-Answer: yes\r\nRetry-After: 3\r\n");
      },
      server_tls());
  CurlTransport transport(trusting());
  for (const char* method : {"GET", "POST", "PUT", "PATCH", "DELETE", "POST"}) {
    HttpRequest request = get(server.url() + "/path?a=b%20c");
    request.method = method;
    request.headers["X-Test"] = "v";
    if (request.method != "GET") request.body = "body";
    auto response = transport.send(request);
    ASSERT_TRUE(response.ok()) << response.error().message;
    EXPECT_EQ(response->status, 201);
    EXPECT_EQ(response->body, request.method + "|/path?a=b%20c|" + request.body + "|v");
    EXPECT_EQ(response->headers.at("x-answer"), "yes");
    EXPECT_EQ(response->headers.at("retry-after"), "3");
  }
  EXPECT_EQ(server.connections(), 1);
}

// Given several concurrent requests, one of them to an unreachable address; expects all results in the order of the requests,
// parallel execution, and reused connections in the next round.
TEST(CurlTransport, SendsConcurrently) {
  std::atomic<int> waiting = 0;
  TestHttpServer server([&](const auto& request, auto& answer) {
    // Each waits until three have arrived, so sequential requests would never be answered.
    ++waiting;
    eventually([&] { return waiting >= 3; });
    answer.send(200, request.target);
  });
  CurlTransport transport({});
  for (int round = 0; round < 2; ++round) {
    waiting = 0;
    auto responses = transport.send_all({get(server.url() + "/0"), get("http://127.0.0.1:1/nobody"), get(server.url() + "/2"),
                                         get("not a url"), get(server.url() + "/4")});
    ASSERT_EQ(responses.size(), 5U);
    for (std::size_t i : {0U, 2U, 4U}) {
      ASSERT_TRUE(responses[i].ok()) << responses[i].error().message;
      EXPECT_EQ(responses[i]->body, "/" + std::to_string(i));
    }
    ASSERT_FALSE(responses[1].ok());
    EXPECT_EQ(responses[1].error().code, ErrorCode::kUnavailable);
    ASSERT_FALSE(responses[3].ok());
    EXPECT_EQ(responses[3].error().code, ErrorCode::kInvalidArgument);
  }
  EXPECT_EQ(server.connections(), 3);
}

// Given bodies larger than their own limit or the joint limit; expects errors for these, and the others complete. A body that
// has been handed over no longer counts.
TEST(CurlTransport, LimitsEachBodyAndThoseUnderWay) {
  TestHttpServer server(
      [](const auto& request, auto& answer) { answer.send(200, std::string(std::stoul(request.target.substr(1)), 'x')); });
  CurlOptions options;
  options.max_responses_bytes = 300'000;
  options.max_parallel = 1;
  CurlTransport transport(options);
  std::vector<HttpRequest> requests;
  for (const char* bytes : {"200000", "200001", "200000", "300001", "100000"}) {
    requests.push_back(get(server.url() + "/" + bytes));
    requests.back().max_bytes = 200'000;
  }
  requests[3].max_bytes = 400'000;
  const auto responses = transport.send_all(requests);
  for (std::size_t i : {0U, 2U, 4U}) EXPECT_TRUE(responses[i].ok()) << i;
  ASSERT_FALSE(responses[1].ok() || responses[3].ok());
  EXPECT_EQ(responses[1].error().code, ErrorCode::kResourceExhausted);
  EXPECT_THAT(responses[1].error().message, HasSubstr("/200001: the response has more than 200000 bytes"));
  EXPECT_EQ(responses[3].error().code, ErrorCode::kResourceExhausted);
  EXPECT_THAT(responses[3].error().message, HasSubstr("/300001: the responses together are too large"));
}

// Given a server that answers a request only after the response to the one before has been handed over; expects all responses.
TEST(CurlTransport, HandsOverEachResponseAsItArrives) {
  std::atomic<int> taken = 0;
  TestHttpServer server([&](const auto& request, auto& answer) {
    const int index = std::stoi(request.target.substr(1));
    eventually([&] { return taken >= index; });
    answer.send(taken >= index ? 200 : 503, request.target);
  });
  CurlTransport transport({});
  std::vector<HttpRequest> requests;
  for (int i = 0; i < 4; ++i) requests.push_back(get(server.url() + "/" + std::to_string(i)));
  std::vector<std::size_t> order;
  transport.send_each(requests, [&](std::size_t index, const Result<HttpResponse>& response) {
    ASSERT_TRUE(response.ok()) << response.error().message;
    EXPECT_EQ(response->status, 200);
    order.push_back(index);
    ++taken;
  });
  EXPECT_THAT(order, testing::ElementsAre(0, 1, 2, 3));
}

// Given an HTTP error status; expects a response, not an error.
TEST(CurlTransport, AnErrorStatusIsAResponse) {
  TestHttpServer server([](const auto&, auto& answer) { answer.send(503, "later"); });
  CurlTransport transport({});
  auto response = transport.send(get(server.url()));
  ASSERT_TRUE(response.ok());
  EXPECT_EQ(response->status, 503);
  EXPECT_EQ(response->body, "later");
}

// Given a server whose certificate comes from another authority or has another name; expects an error. Given permission to skip
// the check, or the name to expect; expects success, with the real host in the Host header.
TEST(CurlTransport, VerifiesTheServer) {
  TestHttpServer server([](const auto& request, auto& answer) { answer.send(200, request.headers.at("host")); },
                        TestHttpServer::Tls{authority().issue("server", {"DNS:api.test"})});
  auto with = [&](TlsOptions tls) {
    CurlOptions options;
    options.tls = std::move(tls);
    CurlTransport transport(options);
    return transport.send(get(server.url()));
  };
  TestAuthority other("another authority");
  auto untrusted = with({.ca_pem = other.pem(), .server_name = "api.test"});
  ASSERT_FALSE(untrusted.ok());
  EXPECT_EQ(untrusted.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(untrusted.error().message, HasSubstr("certificate"));
  EXPECT_FALSE(with({}).ok());
  EXPECT_FALSE(with({.ca_pem = authority().pem()}).ok());
  EXPECT_TRUE(with({.insecure_skip_verify = true}).ok());
  auto named = with({.ca_pem = authority().pem(), .server_name = "api.test"});
  ASSERT_TRUE(named.ok()) << named.error().message;
  EXPECT_EQ(named->body, "127.0.0.1:" + std::to_string(server.port()));
}

// Given a server that requires client certificates; expects ours to be presented from memory, a renewed one to replace it on a
// new connection, and no answer without one.
TEST(CurlTransport, PresentsClientCertificates) {
  TestHttpServer::Tls tls = server_tls();
  tls.client_ca_pem = authority().pem();
  TestHttpServer server(echo, tls);
  CurlOptions options = trusting();
  CurlTransport nobody(options);
  EXPECT_FALSE(nobody.send(get(server.url())).ok());
  options.tls.client = authority().issue("alice");
  CurlTransport transport(options);
  auto response = transport.send(get(server.url() + "/x"));
  ASSERT_TRUE(response.ok()) << response.error().message;
  EXPECT_EQ(response->body, "GET /x alice ");
  transport.set_client_certificate(authority().issue("bob"));
  response = transport.send(get(server.url() + "/x"));
  ASSERT_TRUE(response.ok()) << response.error().message;
  EXPECT_EQ(response->body, "GET /x bob ");
}

// Given a server that never answers; expects kDeadlineExceeded after the request's timeout, and the transport to keep working.
TEST(CurlTransport, TimesOut) {
  TestHttpServer server([](const auto& request, auto& answer) {
    if (request.target == "/slow") {
      answer.wait_until_client_leaves();
      answer.close();
    } else {
      answer.send(200, "fast");
    }
  });
  CurlTransport transport({});
  double began_s = now_s();
  auto response = transport.send(get(server.url() + "/slow", 0.2));
  ASSERT_FALSE(response.ok());
  EXPECT_EQ(response.error().code, ErrorCode::kDeadlineExceeded);
  EXPECT_LT(now_s() - began_s, 8);
  EXPECT_TRUE(transport.send(get(server.url() + "/fast")).ok());
}

// Given a connection that breaks within a body, and a body larger than the limit; expects errors, not a truncated body.
TEST(CurlTransport, ATruncatedBodyIsAnError) {
  TestHttpServer server([](const auto& request, auto& answer) {
    if (request.target == "/broken") {
      answer.write("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf");
    } else {
      answer.send(200, std::string(5000, 'x'));
    }
    answer.close();
  });
  CurlOptions options;
  options.max_response_bytes = 4999;
  CurlTransport transport(options);
  auto broken = transport.send(get(server.url() + "/broken"));
  ASSERT_FALSE(broken.ok());
  EXPECT_EQ(broken.error().code, ErrorCode::kUnavailable);
  auto large = transport.send(get(server.url() + "/large"));
  ASSERT_FALSE(large.ok());
  EXPECT_EQ(large.error().code, ErrorCode::kResourceExhausted);
}

// Given a token in a header of a failing request, and a header that would inject another; expects errors without the token.
TEST(CurlTransport, SecretsStayOutOfErrors) {
  CurlTransport transport({});
  HttpRequest request = get("http://127.0.0.1:1/x?secret-query");
  request.headers["Authorization"] = "Bearer secret-token";
  auto failed = transport.send(request);
  ASSERT_FALSE(failed.ok());
  EXPECT_THAT(failed.error().message, Not(HasSubstr("secret")));
  EXPECT_THAT(failed.error().message, HasSubstr("GET http://127.0.0.1:1/x"));
  request.headers["Authorization"] = "Bearer secret-token\r\nX-Smuggled: 1";
  failed = transport.send(request);
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(failed.error().message, Not(HasSubstr("secret")));
}

// Given a watch; expects the status and the first line before the second is sent, a call of on_activity for each, and the end.
TEST(CurlTransport, StreamsArriveAsTheyAreSent) {
  std::unique_ptr<TestHttpServer> server;
  server = std::make_unique<TestHttpServer>(
      [&](const auto&, auto& answer) {
        answer.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nfirst\n\r\n");
        if (!server->wait_for_gate(1)) return;
        answer.write("7\r\nsecond\n\r\n");
        if (!server->wait_for_gate(2)) return;
        answer.write("0\r\n\r\n");
      },
      server_tls());
  std::atomic<int> activity = 0;
  CurlOptions options = trusting();
  options.on_activity = [&] { ++activity; };
  CurlTransport transport(options);
  auto stream = transport.stream(get(server->url() + "/watch"));
  ASSERT_TRUE(stream.ok()) << stream.error().message;
  EXPECT_EQ(drain(**stream, 6).bytes, "first\n");
  EXPECT_EQ((*stream)->status(), 200);
  auto nothing = (*stream)->poll();
  ASSERT_TRUE(nothing.ok());
  EXPECT_TRUE(nothing->bytes.empty());
  EXPECT_FALSE(nothing->finished);
  EXPECT_TRUE(eventually([&] { return activity >= 1; }));  // on_activity is called a moment after the data is there
  server->open_gate(1);
  EXPECT_EQ(drain(**stream, 7).bytes, "second\n");
  EXPECT_TRUE(eventually([&] { return activity >= 2; }));
  server->open_gate(2);
  EXPECT_TRUE(drain(**stream, 1).finished);
  EXPECT_TRUE(eventually([&] { return activity >= 3; }));
}

// Given a destroyed stream; expects its connection to be closed while others continue.
TEST(CurlTransport, DestroyingAStreamCancelsIt) {
  std::atomic<int> left = 0;
  TestHttpServer server([&](const auto& request, auto& answer) {
    answer.write("HTTP/1.1 200 OK\r\n\r\n" + request.target);
    if (answer.wait_until_client_leaves()) ++left;
    answer.close();
  });
  CurlTransport transport({});
  auto one = transport.stream(get(server.url() + "/one"));
  auto two = transport.stream(get(server.url() + "/two"));
  ASSERT_TRUE(one.ok() && two.ok());
  EXPECT_EQ(drain(**one, 4).bytes, "/one");
  EXPECT_EQ(drain(**two, 4).bytes, "/two");
  one->reset();
  EXPECT_TRUE(eventually([&] { return left == 1; }));
  auto poll = (*two)->poll();
  EXPECT_TRUE(poll.ok() && !poll->finished);
}

// Given a reader that is slower than the server; expects the server to be paused, so that memory stays bounded, and every byte
// to arrive in order once the reader continues.
TEST(CurlTransport, SlowReadersPauseTheServer) {
  constexpr std::size_t kTotal = 24 << 20;
  const auto block = [](std::size_t index) { return std::string(1 << 16, static_cast<char>('a' + index % 26)); };
  std::atomic<std::size_t> sent = 0;
  TestHttpServer server([&](const auto&, auto& answer) {
    answer.write("HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(kTotal) + "\r\n\r\n");
    for (std::size_t i = 0; i < kTotal >> 16; ++i) {
      if (!answer.write(block(i))) return;
      sent += 1 << 16;
    }
  });
  CurlOptions options;
  options.max_stream_buffer_bytes = 256 << 10;
  CurlTransport transport(options);
  auto stream = transport.stream(get(server.url()));
  ASSERT_TRUE(stream.ok());
  // Unchanged over many polls: full buffers have stopped the server.
  std::size_t last = 0;
  int still = 0;
  ASSERT_TRUE(eventually([&] {
    still = sent == last && last > 0 ? still + 1 : 0;
    last = sent;
    return still >= 100;
  }));
  EXPECT_LT(last, kTotal / 2);
  std::size_t got = 0;
  bool in_order = true, finished = false;
  eventually([&] {
    auto poll = (*stream)->poll();
    if (!poll.ok()) return true;
    // Compare whole pieces: checking every byte takes longer under the thread sanitizer than the transfer.
    for (std::size_t at = 0; at < poll->bytes.size();) {
      const std::size_t within = got % (1 << 16), length = std::min(poll->bytes.size() - at, (1 << 16) - within);
      in_order = in_order && poll->bytes.compare(at, length, block(got >> 16), within, length) == 0;
      at += length;
      got += length;
    }
    finished = poll->finished;
    return finished;
  });
  EXPECT_TRUE(finished);
  EXPECT_TRUE(in_order);
  EXPECT_EQ(got, kTotal);
}

// Given refused watches, and watches that never answer or break; expects the status with its body, kDeadlineExceeded, and the
// bytes before the break followed by an error.
TEST(CurlTransport, FailingStreamsReportTheReason) {
  TestHttpServer server([](const auto& request, auto& answer) {
    if (request.target == "/gone") {
      answer.send(410, "too old");
    } else if (request.target == "/silent") {
      answer.wait_until_client_leaves();
      answer.close();
    } else {
      answer.write("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf");
      answer.close();
    }
  });
  CurlTransport transport({});
  auto gone = transport.stream(get(server.url() + "/gone"));
  ASSERT_TRUE(gone.ok());
  EXPECT_TRUE(drain(**gone, 100).finished);
  EXPECT_EQ((*gone)->status(), 410);
  auto silent = transport.stream(get(server.url() + "/silent", 0.2));
  ASSERT_TRUE(silent.ok());
  Drained nothing = drain(**silent, 1);
  ASSERT_TRUE(nothing.error.has_value());
  EXPECT_EQ(nothing.error->code, ErrorCode::kDeadlineExceeded);
  auto broken = transport.stream(get(server.url() + "/broken"));
  ASSERT_TRUE(broken.ok());
  Drained half = drain(**broken, 100);
  EXPECT_EQ(half.bytes, "half");
  ASSERT_TRUE(half.error.has_value());
  EXPECT_EQ(half.error->code, ErrorCode::kUnavailable);
  auto nowhere = transport.stream(get("http://127.0.0.1:1/"));
  ASSERT_TRUE(nowhere.ok());
  ASSERT_TRUE(drain(**nowhere, 1).error.has_value());
  EXPECT_FALSE(transport.stream(get("gopher://127.0.0.1/")).ok());
}

// Given a transport that is destroyed before its stream; expects the stream to report it, and no crash.
TEST(CurlTransport, AStreamMayOutliveItsTransport) {
  TestHttpServer server([](const auto&, auto& answer) {
    answer.write("HTTP/1.1 200 OK\r\n\r\nx");
    answer.wait_until_client_leaves();
    answer.close();
  });
  auto transport = std::make_unique<CurlTransport>(CurlOptions{});
  auto stream = transport->stream(get(server.url()));
  ASSERT_TRUE(stream.ok());
  EXPECT_EQ(drain(**stream, 1).bytes, "x");
  transport.reset();
  auto poll = (*stream)->poll();
  ASSERT_FALSE(poll.ok());
  EXPECT_EQ(poll.error().code, ErrorCode::kCancelled);
}

}  // namespace
}  // namespace windlass::kube
