// The gateway's public side with API keys and TLS.
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "controller/kube/curl_transport.h"
#include "tests/process/gateway/harness.h"
#include "tests/unit/controller/kube/test_certificates.h"

namespace windlass::gateway::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// Files of one test. put() replaces a file atomically, as a mounted Secret does.
class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "windlass-gateway-XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string put(const std::string& name, const std::string& text) const {
    const auto draft = path_ / (name + ".new"), path = path_ / name;
    std::ofstream(draft, std::ios::binary | std::ios::trunc) << text;
    std::filesystem::permissions(draft, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
    std::filesystem::rename(draft, path);
    return path.string();
  }
  [[nodiscard]] std::string at(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

std::string key_file(const std::string& first_key) {
  return R"({"keys": [
    {"id": "one", "key": ")" +
         first_key + R"(", "models": ["tiny"], "concurrentRequests": 1},
    {"id": "two", "key": "key-of-two-key-of-two", "models": ["other"], "requestsPerMinute": 1},
    {"id": "all", "key": "key-of-all-key-of-all", "models": ["*"], "requestsPerMinute": 2}]})";
}

std::string as(const std::string& key) { return "Authorization: Bearer " + key + "\r\n"; }

std::string models_as(const std::string& key) {
  return "GET /v1/models HTTP/1.1\r\nHost: test\r\n" + (key.empty() ? "" : as(key)) + "\r\n";
}

std::vector<std::string> ids_of(const Message& answer) {
  std::vector<std::string> ids;
  const auto json = nlohmann::json::parse(answer.body);
  for (const auto& model : json["data"]) ids.push_back(model["id"]);
  return ids;
}

// Given keys, one origin that may read answers, and another one; expects the preflight to need no key and to list the headers
// the page asked for, every answer (a refusal, a list, a stream) to allow the first origin and not the second, and Vary for
// caches.
TEST(GatewaySecurity, CorsAllowsTheListedOrigins) {
  const Folder folder;
  const std::string path = folder.put("keys.json", key_file("key-of-one-key-of-one"));
  FakeServer worker([](Connection& connection, const Message&) {
    connection.write(stream_head() + chunk(token_event("one")) + chunk(kDoneEvent) + kLastChunk);
  });
  FakeController controller;
  controller.set_table(table(1, {chain("w", worker.address())}));
  GatewayProcess gateway({controller.url()}, {"--api-keys", path, "--cors-origin", "https://chat.example"});
  ASSERT_TRUE(gateway.obeys({1, 1}));
  const std::string page = "Origin: https://chat.example\r\n", other = "Origin: https://evil.example\r\n";
  const auto preflight = [&](const std::string& headers) {
    return ask(gateway.port(), "OPTIONS /v1/chat/completions HTTP/1.1\r\nHost: a\r\n" + headers +
                                   "Access-Control-Request-Method: POST\r\n"
                                   "Access-Control-Request-Headers: authorization,x-stainless-os\r\n\r\n");
  };
  const auto asked = preflight(page);
  ASSERT_TRUE(asked);
  EXPECT_EQ(asked->status(), 200);
  EXPECT_EQ(asked->header("access-control-allow-origin"), "https://chat.example");
  EXPECT_EQ(asked->header("access-control-allow-headers"), "authorization,x-stainless-os");
  EXPECT_EQ(asked->header("access-control-allow-methods"), "GET, POST");
  EXPECT_EQ(asked->header("vary"), "Origin");
  EXPECT_EQ(preflight(other)->header("access-control-allow-origin"), "");
  const std::string key = as("key-of-one-key-of-one");
  for (const auto& [headers, status] : {std::pair{page, 401}, std::pair{page + key, 200}}) {
    const auto answer = ask(gateway.port(), post("/v1/chat/completions", chat("tiny", "hi", true), headers));
    ASSERT_TRUE(answer);
    EXPECT_EQ(answer->status(), status);
    EXPECT_EQ(answer->header("access-control-allow-origin"), "https://chat.example") << status;
    EXPECT_EQ(answer->header("vary"), "Origin") << status;
  }
  const auto not_allowed = ask(gateway.port(), post("/v1/chat/completions", chat("tiny", "hi", true), other + key));
  EXPECT_EQ(not_allowed->header("access-control-allow-origin"), "");
  EXPECT_EQ(not_allowed->header("vary"), "Origin");
}

// Given a gateway with keys, and one without a controller; expects GET /health on the client port to need no key and to report
// whether the gateway can serve. Without --cors-origin, expects no CORS headers, and a preflight to be an ordinary request.
TEST(GatewaySecurity, HealthOfTheClientPort) {
  const Folder folder;
  const std::string path = folder.put("keys.json", key_file("key-of-one-key-of-one"));
  FakeController controller;
  controller.set_table(table(1, {}));
  GatewayProcess gateway({controller.url()}, {"--api-keys", path});
  ASSERT_TRUE(gateway.obeys({1, 1}));
  const auto healthy = ask(gateway.port(), get("/health"));
  ASSERT_TRUE(healthy);
  EXPECT_EQ(healthy->status(), 200);
  EXPECT_EQ(healthy->header("vary"), "");
  EXPECT_EQ(ask(gateway.port(), post("/health", "{}"))->status(), 401);
  const auto preflight = ask(gateway.port(),
                             "OPTIONS /v1/models HTTP/1.1\r\nHost: a\r\nOrigin: https://a.example\r\n"
                             "Access-Control-Request-Method: GET\r\n\r\n");
  EXPECT_EQ(preflight->status(), 401);
  EXPECT_EQ(preflight->header("access-control-allow-origin"), "");
  GatewayProcess alone({"http://127.0.0.1:1"});
  ASSERT_TRUE(alone.started());
  EXPECT_EQ(ask(alone.port(), get("/health"))->status(), 503);
}

// Given keys for one model, for another and for all, with limits; expects 401 without a key or with a wrong one, 403 for
// another key's model, and 429 with Retry-After over a limit. Expects the list of models to match the key, no key at workers,
// and ids instead of keys in metrics. A new file applies without a restart; a broken one does not.
TEST(GatewaySecurity, ApiKeys) {
  const Folder folder;
  const std::string path = folder.put("keys.json", key_file("key-of-one-key-of-one"));
  Gate go_on;
  std::atomic<int> with_authorization = 0;
  FakeServer worker([&](Connection& connection, const Message& request) {
    if (!request.header("authorization").empty()) ++with_authorization;
    if (request.body.find("slow") != std::string::npos) (void)go_on.wait();
    connection.write(json_response(200, completion("x", 7)));
  });
  FakeController controller;
  auto tables = table(1, {chain("w", worker.address())});
  tables.models.insert(tables.models.begin(), tables.models.front());
  tables.models.front().served_name = "other";
  controller.set_table(tables);
  GatewayProcess gateway({controller.url()}, {"--api-keys", path});
  ASSERT_TRUE(gateway.obeys({1, 1}));
  const auto chat_as = [&](const std::string& key, const std::string& model, const std::string& prompt = "hi") {
    return ask(gateway.port(), post("/v1/chat/completions", chat(model, prompt, false), key.empty() ? "" : as(key)));
  };
  const auto code_of = [](const Message& answer) { return nlohmann::json::parse(answer.body)["error"]["code"]; };

  const auto nobody = chat_as("", "tiny");
  EXPECT_EQ(nobody->status(), 401);
  EXPECT_EQ(code_of(*nobody), "missing_api_key");
  EXPECT_EQ(nobody->header("www-authenticate"), "Bearer");
  EXPECT_EQ(code_of(*chat_as("wrong-key-wrong-key", "tiny")), "invalid_api_key");
  // Expects the refusal before the body, which is never sent.
  EXPECT_EQ(ask(gateway.port(), "POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 16000000\r\n\r\n")->status(), 401);
  EXPECT_EQ(ask(gateway.port(), models_as(""))->status(), 401);
  EXPECT_THAT(ids_of(*ask(gateway.port(), models_as("key-of-one-key-of-one"))), ElementsAre("tiny"));
  EXPECT_THAT(ids_of(*ask(gateway.port(), models_as("key-of-all-key-of-all"))), ElementsAre("other", "tiny"));
  EXPECT_EQ(chat_as("key-of-one-key-of-one", "tiny")->status(), 200);
  const auto forbidden = chat_as("key-of-one-key-of-one", "other");
  EXPECT_EQ(forbidden->status(), 403);
  EXPECT_EQ(nlohmann::json::parse(forbidden->body)["error"]["type"], "permission_error");
  EXPECT_EQ(chat_as("key-of-two-key-of-two", "other")->status(), 200);
  const auto over = chat_as("key-of-two-key-of-two", "other");
  EXPECT_EQ(over->status(), 429);
  EXPECT_GE(std::atoi(over->header("retry-after").c_str()), 50);
  EXPECT_THAT(over->body, HasSubstr("requestsPerMinute"));

  auto held = Connection::connect(gateway.port());
  ASSERT_TRUE(held && held->write(post("/v1/chat/completions", chat("tiny", "slow", false), as("key-of-one-key-of-one"))));
  ASSERT_TRUE(wait_until([&] { return gateway.metric("windlass_gateway_requests_in_flight", {{"chain", "w"}}) == 1; }));
  EXPECT_THAT(chat_as("key-of-one-key-of-one", "tiny")->body, HasSubstr("concurrentRequests"));
  go_on.open();
  EXPECT_EQ(read_message(*held)->status(), 200);
  EXPECT_EQ(with_authorization, 0);
  // Counted shortly after the answer was read: the list of models and two completions.
  EXPECT_TRUE(wait_until([&] {
    return gateway.metric("windlass_gateway_key_requests_total", {{"key", "one"}, {"code", "200"}}) == 3;
  }));
  EXPECT_EQ(gateway.metric("windlass_gateway_key_requests_total", {{"key", "one"}, {"code", "403"}}), 1);
  EXPECT_EQ(gateway.metric("windlass_gateway_key_requests_total", {{"key", ""}, {"code", "401"}}), 4);
  EXPECT_EQ(gateway.metric("windlass_gateway_key_tokens_total", {{"key", "one"}}), 24);

  folder.put("keys.json", key_file("new-key-of-one-of-one"));
  ASSERT_TRUE(wait_until([&] { return ask(gateway.port(), models_as("new-key-of-one-of-one"))->status() == 200; }));
  EXPECT_EQ(ask(gateway.port(), models_as("key-of-one-key-of-one"))->status(), 401);
  folder.put("keys.json", R"({"keys": [{"id": "x", "key": "secret-secret-secret"}]})");
  ASSERT_TRUE(wait_until([&] { return gateway.log().find("(got nothing for key 'x')") != std::string::npos; }));
  EXPECT_EQ(ask(gateway.port(), models_as("new-key-of-one-of-one"))->status(), 200);
  EXPECT_THAT(gateway.log(), Not(HasSubstr("secret")));
  EXPECT_THAT(gateway.log(), Not(HasSubstr("key-of")));
}

// Given a certificate; expects answers and streams over TLS, nothing for a client without TLS, a client that leaves mid-stream
// to be noticed, and a renewed certificate to be used without a restart.
TEST(GatewaySecurity, Tls) {
  const Folder folder;
  const kube::TestAuthority old_authority("old"), new_authority("new");
  const auto put = [&](const kube::TestAuthority& authority) {
    const auto leaf = authority.issue("gateway", {"IP:127.0.0.1"});
    folder.put("tls.key", leaf.private_key_pem);
    folder.put("tls.crt", leaf.certificate_pem);
  };
  put(old_authority);
  Gate left;
  FakeServer worker([&](Connection& connection, const Message& request) {
    connection.write(stream_head() + chunk(token_event("one")));
    if (request.body.find("endless") != std::string::npos) {
      if (connection.peer_closes()) left.open();
      return;
    }
    connection.write(chunk(token_event(std::string(100'000, 'x'))) + chunk(kDoneEvent) + kLastChunk);
  });
  FakeController controller;
  controller.set_table(table(1, {chain("w", worker.address())}));
  GatewayProcess tls({controller.url()}, {"--tls-cert", folder.at("tls.crt"), "--tls-key", folder.at("tls.key")});
  ASSERT_TRUE(tls.obeys({1, 1}));
  const auto client_of = [](const kube::TestAuthority& authority) {
    kube::CurlOptions options;
    options.tls.ca_pem = authority.pem();
    return std::make_unique<kube::CurlTransport>(options);
  };
  const std::string url = "https://127.0.0.1:" + std::to_string(tls.port());
  auto client = client_of(old_authority);
  kube::HttpRequest request{
      "POST", url + "/v1/chat/completions", {{"Content-Type", "application/json"}}, chat("tiny", "hi", true)};
  for (int i = 0; i < 3; ++i) {
    const auto answer = client->send(request);
    ASSERT_TRUE(answer.ok()) << answer.error().message;
    EXPECT_EQ(answer->status, 200);
    EXPECT_EQ(answer->body, token_event("one") + token_event(std::string(100'000, 'x')) + kDoneEvent);
  }
  EXPECT_FALSE(client_of(new_authority)->send(request).ok());
  EXPECT_FALSE(ask(tls.port(), get("/v1/models")).has_value());
  {
    request.body = chat("tiny", "endless", true);
    const auto stream = client->stream(request);
    ASSERT_TRUE(stream.ok());
    ASSERT_TRUE(wait_until([&] { return (*stream)->status() == 200; }));
  }
  EXPECT_TRUE(left.wait());

  put(new_authority);
  request.body = chat("tiny", "hi", true);
  ASSERT_TRUE(wait_until([&] { return client_of(new_authority)->send(request).ok(); }));
}

// Given bad files; expects one line with the flag, the file and the problem, and exit code 1.
TEST(GatewaySecurity, WrongFiles) {
  const Folder folder;
  const kube::TestAuthority authority("a");
  const auto one = authority.issue("one"), other = authority.issue("other");
  const std::string cert = folder.put("one.crt", one.certificate_pem), key = folder.put("other.key", other.private_key_pem);
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"--tls-cert", cert, "--tls-key", key}, "key: must belong to the certificate"},
      {{"--tls-cert", cert + ".none", "--tls-key", key}, "one.crt.none: No such file"},
      {{"--admin-tls-cert", key, "--admin-tls-key", key}, "certificate: must be PEM"},
      {{"--token-file", folder.put("token", "short")}, "--token-file: "},
      {{"--api-keys", folder.put("keys", "[")}, "must be JSON"},
  };
  for (const auto& [flags, message] : cases) {
    std::vector<std::string> all = {"--listen",    "127.0.0.1:0",  "--admin-listen",
                                    "127.0.0.1:0", "--controller", "http://127.0.0.1:1"};
    all.insert(all.end(), flags.begin(), flags.end());
    const auto result = run_program(all);
    EXPECT_EQ(result.exit_code, 1) << message;
    EXPECT_THAT(result.err, HasSubstr(message));
  }
}

}  // namespace
}  // namespace windlass::gateway::testing
