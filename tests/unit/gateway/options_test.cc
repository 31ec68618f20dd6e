// Flags and the URLs in them; and the headers that pass through the proxy.
#include "gateway/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gateway/http_text.h"
#include "gateway/worker_id.h"

namespace windlass::gateway {
namespace {

using ::testing::HasSubstr;

CommandLine parse(std::vector<const char*> args) {
  args.insert(args.begin(), "windlass-gateway");
  return parse_command_line(static_cast<int>(args.size()), args.data());
}

// Given all flags; expects each in its field.
TEST(CommandLine, AllFlags) {
  const auto line = parse({"--listen",
                           "[::]:1",
                           "--admin-listen",
                           "[::1]:2",
                           "--advertise",
                           "gw.default:3",
                           "--controller",
                           "http://a:9401",
                           "--controller",
                           "https://[::1]:9/",
                           "--controller",
                           "https://c",
                           "--controller-ca",
                           "ca.crt",
                           "--tls-cert",
                           "a.crt",
                           "--tls-key",
                           "a.key",
                           "--start-timeout",
                           "2m",
                           "--drain-delay",
                           "5s",
                           "--max-body-memory",
                           "32MiB",
                           "--id",
                           "g1",
                           "--max-queued",
                           "5",
                           "--queue-timeout",
                           "500ms",
                           "--request-timeout",
                           "1m30s",
                           "--drain-timeout",
                           "0",
                           "--policy",
                           "sed"});
  ASSERT_TRUE(line.options.has_value()) << line.text;
  EXPECT_EQ(line.options->listen, (HostPort{"::", "1"}));
  EXPECT_EQ(line.options->admin_listen, (HostPort{"::1", "2"}));
  EXPECT_EQ(to_string(line.options->admin_listen), "[::1]:2");
  EXPECT_EQ(line.options->advertise, (HostPort{"gw.default", "3"}));
  EXPECT_EQ(line.options->controllers, (std::vector<Url>{{false, {"a", "9401"}}, {true, {"::1", "9"}}, {true, {"c", "443"}}}));
  EXPECT_EQ(line.options->max_queued, 5);
  EXPECT_EQ(line.options->queue_timeout_s, 0.5);
  EXPECT_EQ(line.options->start_timeout_s, 120);
  EXPECT_EQ(line.options->tls_key, "a.key");
  EXPECT_EQ(to_string(line.options->controllers[1]), "https://[::1]:9");
  EXPECT_EQ(line.options->request_timeout_s, 90);
  EXPECT_EQ(line.options->drain_timeout_s, 0);
  EXPECT_EQ(line.options->drain_delay_s, 5);
  EXPECT_EQ(line.options->max_body_bytes, 32U << 20U);
  EXPECT_EQ(line.options->policy, dispatch::PolicyKind::kSed);
}

// Given no --policy; expects none, so that the routing table decides.
TEST(CommandLine, NoPolicy) { EXPECT_EQ(parse({"--controller", "http://a"}).options.value().policy, std::nullopt); }

// Given bad flags; expects one line with the flag, the rule and the value found, and exit code 2.
TEST(CommandLine, BadFlags) {
  const std::string too_long(254, 'a');
  const std::vector<std::pair<std::vector<const char*>, std::string>> cases = {
      {{}, "--controller"},
      {{"--controller", "a:1"}, "--controller: must be http://HOST:PORT or https://HOST:PORT (got 'a:1')"},
      {{"--controller", "ftp://a"}, "--controller: must be http://HOST:PORT or https://HOST:PORT (got 'ftp://a')"},
      {{"--controller", "http://a", "--tls-cert", "c"},
       "--tls-cert: must be given together with --tls-key (got only --tls-cert)"},
      {{"--controller", "http://a", "--tls-key", "c"}, "--tls-key: must be given together with --tls-cert"},
      {{"--controller", "http://a", "--admin-tls-key", "c"}, "--admin-tls-key: must be given together with --admin-tls-cert"},
      {{"--controller", "http://a", "--controller-ca", "c"},
       "--controller-ca: must be used with at least one --controller https://HOST:PORT"},
      {{"--controller", "http://a:0"}, "--controller"},
      {{"--controller", "http://a:1/path"}, "--controller"},
      {{"--controller", "http://a", "--listen", "8080"}, "--listen: must be HOST:PORT"},
      {{"--controller", "http://a", "--listen", "h:70000"}, "--listen"},
      {{"--controller", "http://a", "--listen-fd", "2"}, "--listen-fd"},
      {{"--controller", "http://a", "--listen-fd", "3", "--listen", "h:1"}, "--listen excludes --listen-fd"},
      {{"--controller", "http://a", "--listen", "::1:80"}, "--listen"},
      {{"--controller", "http://a", "--queue-timeout", "5"}, "--queue-timeout: must be a duration"},
      {{"--controller", "http://a", "--queue-timeout", "-5s"}, "--queue-timeout"},
      {{"--controller", "http://a", "--request-timeout", "0"}, "--request-timeout"},
      {{"--controller", "http://a", "--max-queued", "-1"}, "--max-queued"},
      {{"--controller", "http://a", "--cors-origin", "chat.example"}, "--cors-origin: must be * or an origin"},
      {{"--controller", "http://a", "--cors-origin", "https://a/b"}, "--cors-origin: must be * or an origin"},
      {{"--controller", "http://a", "--drain-delay", "5"}, "--drain-delay: must be a duration"},
      {{"--controller", "http://a", "--max-body-memory", "1MiB"},
       "--max-body-memory: must be at least 16777216 bytes, the size of one body (got 1048576)"},
      {{"--controller", "http://a", "--max-body-memory", "lots"}, "--max-body-memory"},
      {{"--controller", "http://a", "--max-body-memory", "-32MiB"}, "--max-body-memory"},
      {{"--controller", "http://a", "--id", "a b"}, "--id"},
      {{"--controller", "http://a", "--id", "a\x01"}, "--id"},
      {{"--controller", "http://a", "--id", too_long.c_str()}, "--id"},
      {{"--controller", "http://a", "--nonsense"}, "--nonsense"},
      {{"--controller", "http://a", "--policy", "JFFC"},
       "--policy: must be one of jffc, jsq, sed, power-of-two, aladdin, by-size, huawei, splitwise (got 'JFFC')"},
      {{"--controller", "http://a", "--policy", ""}, "--policy: must be one of jffc, jsq, sed"},
      {{"--controller", "http://a", "--policy", "random"}, "--policy: must be one of jffc, jsq, sed"},
      {{"--controller", "http://a", "--queue-order", "fifo"}, "--queue-order: must be objective or arrival (got 'fifo')"},
      {{"--controller", "http://a", "--admin-listen", "0.0.0.0:8081"},
       "--advertise: must be the HOST:PORT at which the controller reaches --admin-listen 0.0.0.0:8081 (got nothing)"},
  };
  for (const auto& [args, expected] : cases) {
    const auto line = parse(args);
    EXPECT_FALSE(line.options.has_value()) << expected;
    EXPECT_EQ(line.exit_code, 2);
    EXPECT_THAT(line.text, HasSubstr(expected));
    EXPECT_EQ(std::count(line.text.begin(), line.text.end(), '\n'), 1) << line.text;
  }
}

// Given --help and --version; expects the text on stdout and code 0.
TEST(CommandLine, HelpAndVersion) {
  EXPECT_EQ(parse({"--help"}).exit_code, 0);
  EXPECT_THAT(parse({"--help"}).text, HasSubstr("--queue-timeout"));
  EXPECT_THAT(parse({"--help"}).text, HasSubstr("[the routing table's]"));
  EXPECT_THAT(parse({"--help"}).text, HasSubstr("--queue-order TEXT=objective"));
  EXPECT_THAT(parse({"--version"}).text, HasSubstr("windlass-gateway 0."));
}

// Given headers in both directions; expects only listed headers to pass, without those that Connection names or that the
// gateway sets itself.
TEST(Headers, PassByName) {
  http::fields fields;
  for (const auto& [name, value] : std::vector<std::pair<std::string, std::string>>{{"content-type", "application/json"},
                                                                                    {"Accept", "*/*"},
                                                                                    {"Traceparent", "00-1"},
                                                                                    {"Tracestate", "a=b"},
                                                                                    {"Retry-After", "1"},
                                                                                    {"Cache-Control", "no-cache"},
                                                                                    {"Authorization", "Bearer t"},
                                                                                    {"Cookie", "a=b"},
                                                                                    {"X-Api-Key", "k"},
                                                                                    {"Set-Cookie", "a=b"},
                                                                                    {"Server", "uvicorn"},
                                                                                    {"Access-Control-Allow-Origin", "*"},
                                                                                    {"Connection", "close, Accept"},
                                                                                    {"Transfer-Encoding", "x"},
                                                                                    {"Host", "a"},
                                                                                    {"Content-Length", "3"},
                                                                                    {"X-Windlass-Chain", "a:1"},
                                                                                    {"X-Request-Id", "abc-1"}}) {
    fields.insert(name, value);
  }
  EXPECT_EQ(headers_to_worker(fields), "content-type: application/json\r\nTraceparent: 00-1\r\nTracestate: a=b\r\n");
  EXPECT_EQ(headers_to_client(fields), "content-type: application/json\r\nRetry-After: 1\r\nCache-Control: no-cache\r\n");
  EXPECT_EQ(request_id(fields), "abc-1");
  fields.set("X-Request-Id", "with space");
  EXPECT_NE(request_id(fields), "with space");
  EXPECT_EQ(request_id(fields).size(), 32U);
  EXPECT_NE(request_id(fields), request_id(fields));
}

// Given a name; expects the first digits of its SHA-256, as `printf %s ns/w | sha256sum` prints them.
TEST(WorkerIds, AreOfNames) { EXPECT_EQ(worker_id("ns/w"), "9c8839f97d1970ea"); }

}  // namespace
}  // namespace windlass::gateway
