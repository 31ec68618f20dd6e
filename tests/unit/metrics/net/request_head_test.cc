// Heads that follow RFC 9112, and heads of request smuggling.
#include "metrics/net/request_head.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace windlass::net {
namespace {

using ::testing::HasSubstr;

std::string head(const std::string& fields, const std::string& line = "POST /a HTTP/1.1") {
  return line + "\r\n" + fields + "\r\n";
}

// Given heads that RFC 9112 allows; expects them to be accepted, and no beginning of them to be refused.
TEST(RequestHead, GoodOnes) {
  for (const std::string& good :
       {head("Host: a\r\n"), head("host:a:80\r\nContent-Length: 0\r\n"), head("Host: a\r\nTransfer-Encoding: Chunked \r\n"),
        head("", "GET / HTTP/1.0"), head("Host:\r\n"), head("HOST: [::1]:80\r\nX: \t a\xc3\xa4 \r\n"),
        head("Host: a\r\n", "OPTIONS * HTTP/1.1"), head("Host: a\r\n", "GET http://a/b?c HTTP/1.1")}) {
    const auto problem = check_request_head(good);
    EXPECT_FALSE(problem) << good << problem->message;
    for (std::size_t n = 0; n <= good.size(); ++n) EXPECT_TRUE(may_become_head(good.substr(0, n))) << good.substr(0, n);
  }
}

// Given heads that it does not allow; expects the status and the problem.
TEST(RequestHead, BadOnes) {
  const std::string host = "Host: a\r\n";
  std::string many = host;
  for (int i = 0; i < 128; ++i) many += "X: y\r\n";
  const std::vector<std::tuple<std::string, int, std::string>> cases = {
      {head(host + "Transfer-Encoding: gzip, chunked\r\n"), 400, "Transfer-Encoding: must be chunked (got 'gzip, chunked')"},
      {head(host + "Transfer-Encoding: identity\r\n"), 400, "Transfer-Encoding: must be chunked (got 'identity')"},
      {head(host + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"), 400,
       "Transfer-Encoding: must be given once (got 2)"},
      {head(host + "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n"), 400, "must be given without Content-Length"},
      {head(host + "Transfer-Encoding: chunked\r\n", "POST / HTTP/1.0"), 400, "must be given in HTTP/1.1 only (got HTTP/1.0)"},
      {head(host + "Content-Length: 3\r\nContent-Length: 4\r\n"), 400, "Content-Length: must be given once (got 2)"},
      {head(host + "Content-Length: 3, 3\r\n"), 400, "Content-Length: must be a number of bytes (got '3, 3')"},
      {head(host + "Content-Length: -1\r\n"), 400, "Content-Length: must be a number of bytes (got '-1')"},
      {head(host + "Content-Length: +1\r\n"), 400, "Content-Length: must be a number of bytes (got '+1')"},
      {head(host + "Content-Length: 0x10\r\n"), 400, "Content-Length: must be a number of bytes (got '0x10')"},
      {head(host + "Content-Length:\r\n"), 400, "Content-Length: must be a number of bytes (got '')"},
      {head(host + "Content-Length: 99999999999999999999\r\n"), 400,
       "Content-Length: must be a number of bytes (got '99999999999999999999')"},
      {head(""), 400, "Host: must be given once (got 0)"},
      {head(host + host), 400, "Host: must be given once (got 2)"},
      {head("Host: a, b\r\n"), 400, "Host: must be HOST or HOST:PORT (got 'a, b')"},
      {head("Host: a@b\r\n"), 400, "Host: must be HOST or HOST:PORT (got 'a@b')"},
      {head(host + "X: a\r\n b\r\n"), 400, "folded"},
      {head(host + "X: a\r\n\tb\r\n"), 400, "folded"},
      {head(" " + host), 400, "folded"},
      {head("Host : a\r\n"), 400, "space before the colon"},
      {head(host + "Transfer-Encoding : chunked\r\n"), 400, "space before the colon"},
      {head(host + ": x\r\n"), 400, "must be NAME: VALUE"},
      {head(host + "no colon\r\n"), 400, "must be NAME: VALUE"},
      {head(host + "X\x01: y\r\n"), 400, "(got 'X?: y')"},
      {head(host + std::string("X: a\0b\r\n", 8)), 400, "control characters"},
      {head(host + "X: a\rb\r\n"), 400, "must have a CR only at its end"},
      {head("Host: a\nX: b\r\n"), 400, "must end in CRLF"},
      {head(host, "GET /"), 400, "request line: must be METHOD TARGET HTTP/1.1 (got 'GET /')"},
      {head(host, "GET  HTTP/1.1"), 400, "target: must be visible ASCII characters (got '')"},
      {head(host, "GET /a b HTTP/1.1"), 400, "target: must be visible ASCII characters (got '/a b')"},
      {head(host, "GET /\xc3\xa4 HTTP/1.1"), 400, "target"},
      {head(host, "G(T / HTTP/1.1"), 400, "request line"},
      {head(host, "GET / HTTP/2.0"), 505, "version: must be HTTP/1.1 or HTTP/1.0 (got 'HTTP/2.0')"},
      {head(host, "GET / HTTP/1.10"), 505, "version"},
      {head(host, "GET / XTTP/1.1"), 400, "version"},
      {head(many), 431, "must be at most 128"},
      {"\r\n", 400, "request line"},
      {"", 400, "CRLF"},
  };
  for (const auto& [text, status, message] : cases) {
    const auto problem = check_request_head(text);
    ASSERT_TRUE(problem) << text;
    EXPECT_EQ(problem->status, status) << text;
    EXPECT_THAT(problem->message, HasSubstr(message)) << text;
  }
}

// Given the first bytes of other protocols; expects them to be refused without waiting for more.
TEST(RequestHead, OtherProtocolsAreSeenAtOnce) {
  EXPECT_FALSE(may_become_head("\x16\x03\x01"));
  EXPECT_FALSE(may_become_head("{\"a\":1}"));
  EXPECT_FALSE(may_become_head("GET / HTTP/1.1\n"));
  EXPECT_FALSE(may_become_head("\n"));
  EXPECT_TRUE(may_become_head("GE"));
}

// Given targets of each form; expects path and query.
TEST(RequestHead, OriginForms) {
  EXPECT_EQ(origin_form("/a?b=http://c/d"), "/a?b=http://c/d");
  EXPECT_EQ(origin_form("http://host:80/a?b"), "/a?b");
  EXPECT_EQ(origin_form("http://host"), "/");
  EXPECT_EQ(origin_form("*"), "*");
}

}  // namespace
}  // namespace windlass::net
