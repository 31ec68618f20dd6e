// Tests how `windlass attach` reads a server's model, engine and limits, for each engine and for wrong answers.
#include "controller/cli/attach/attach_probe.h"

#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace windlass::cli {
namespace {

using ::testing::HasSubstr;

// A server with a text per path; other paths are not found.
class Pages final : public kube::HttpTransport {
 public:
  explicit Pages(std::map<std::string, std::string> pages) : pages_(std::move(pages)) {}

  Result<kube::HttpResponse> send(const kube::HttpRequest& request) override {
    const auto found = pages_.find(request.url.substr(request.url.find('/', 7)));
    if (found == pages_.end()) return kube::HttpResponse{404, {}, "{}"};
    return kube::HttpResponse{200, {}, found->second};
  }
  Result<std::unique_ptr<kube::HttpStream>> stream(const kube::HttpRequest&) override { return Error{}; }

 private:
  const std::map<std::string, std::string> pages_;
};

// Given the pages of vLLM 0.32, whose /v1/models has max_model_len and root; expects engine, context and the model's folder.
TEST(AttachProbe, Vllm) {
  Pages pages(
      {{"/v1/models", R"({"object":"list","data":[{"id":"/m/qwen","object":"model","root":"/m/qwen","max_model_len":2048}]})"},
       {"/metrics", "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{model_name=\"q\"} 0.0\n"}});
  const auto server = probe_server(pages, "http://localhost:8000/v1").value();
  EXPECT_EQ(server.address, "localhost:8000");
  EXPECT_EQ(server.model, "/m/qwen");
  EXPECT_EQ(server.engine, metrics::EngineKind::kVllm);
  EXPECT_EQ(server.context_tokens, 2048);
  EXPECT_EQ(server.model_path, "/m/qwen");
  EXPECT_FALSE(server.slots);
  EXPECT_EQ(to_text(server), "http://localhost:8000: vLLM, model /m/qwen, context 2048 tokens");
}

// Given llama.cpp without --metrics (it answers 501); expects engine, slots, context per slot and file from its /props.
TEST(AttachProbe, LlamaCpp) {
  Pages pages({{"/v1/models", R"({"data":[{"id":"m.gguf","meta":{"n_ctx_train":8192}}],"models":[{"name":"m.gguf"}]})"},
               {"/props", R"({"default_generation_settings":{"n_ctx":1024},"total_slots":4,"model_path":"/models/m.gguf"})"}});
  const auto server = probe_server(pages, "http://127.0.0.1:8080/").value();
  EXPECT_EQ(server.engine, metrics::EngineKind::kLlamaCpp);
  EXPECT_EQ(server.slots, 4);
  EXPECT_EQ(server.context_tokens, 1024);
  EXPECT_EQ(server.model_path, "/models/m.gguf");
  EXPECT_EQ(to_text(server), "http://127.0.0.1:8080: llama.cpp, model m.gguf, context 1024 tokens, 4 concurrent requests");
}

// Given a server with only /v1/models, and one whose other pages are malformed; expects only the model.
TEST(AttachProbe, UnknownEngineKeepsTheModel) {
  for (const auto& more : std::vector<std::map<std::string, std::string>>{
           {}, {{"/metrics", "not a page {"}, {"/props", "[1]"}}, {{"/props", R"({"total_slots":-3,"model_path":7})"}}}) {
    std::map<std::string, std::string> all = {{"/v1/models", R"({"data":[{"id":"x","max_model_len":"many"}]})"}};
    all.insert(more.begin(), more.end());
    Pages pages(all);
    const auto server = probe_server(pages, "http://h:1").value();
    EXPECT_FALSE(server.engine);
    EXPECT_EQ(to_text(server), "http://h:1: unknown engine, model x");
  }
}

// Given no model, several models, no list, no JSON and no page; expects an error that names the page and what it said.
TEST(AttachProbe, NeedsExactlyOneModel) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({"data":[]})", "must name one model (got none)"},
      {R"({"data":[{"id":"a"},{"id":"b"}]})", "must name one model (got a, b)"},
      {R"({"data":[{"id":5}]})", "must name one model"},
      {R"({"data":7})", "must name one model (got none)"},
      {"<html>", "must name one model (got none)"},
      {R"({"data":[{"id":"a\u001b[31m"}]})", "must name its model without control characters"}};
  for (const auto& [body, expected] : cases) {
    Pages pages({{"/v1/models", body}});
    const auto server = probe_server(pages, "http://h:1");
    ASSERT_FALSE(server.ok()) << body;
    EXPECT_THAT(server.error().message, HasSubstr("http://h:1/v1/models: " + expected));
  }
  Pages empty({});
  EXPECT_EQ(probe_server(empty, "http://h:1").error().message, "GET http://h:1/v1/models: must answer 200 (got 404)");
}

// Given addresses; expects HOST:PORT, or an error with the rule.
TEST(AttachProbe, Addresses) {
  for (const char* url : {"http://h:1", "http://h:1/", "http://h:1/v1", "http://h:1/v1/"}) {
    EXPECT_EQ(address_of_server(url).value(), "h:1") << url;
  }
  EXPECT_EQ(address_of_server("http://[::1]:8000/v1").value(), "[::1]:8000");
  for (const char* url : {"", "h:1", "https://h:1", "http://h", "http://h:1/v2", "http://u@h:1", "http://h:99999"}) {
    const auto address = address_of_server(url);
    ASSERT_FALSE(address.ok()) << url;
    EXPECT_THAT(address.error().message, HasSubstr("must be http://HOST:PORT"));
  }
}

}  // namespace
}  // namespace windlass::cli
