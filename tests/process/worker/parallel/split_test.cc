// Two real workers for one request: one computes the prompt, the other answers (docs/decisions/2026-11-22-kv-is-pulled.md). The
// test plays the gateway.
#include <fstream>
#include <iterator>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/paths.h"
#include "tests/process/worker/serve/worker_process.h"

namespace windlass::worker {
namespace {

using nlohmann::json;
using testing::Answer;
using testing::ask;
using testing::Connection;
using testing::eventually;
using ::testing::HasSubstr;
using testing::metric;
using testing::Process;
using testing::Slowed;

constexpr const char* kPath = "/v1/completions";

class Split : public testing::Worker {
 protected:
  void SetUp() override {
    Worker::SetUp();
    make_model();
    prefill_port_ = testing::free_port();
    prefill_ = start_at(prefill_port_, {"--role", "prefill"});
    decode_port_ = testing::free_port();
    decode_ = start_at(decode_port_, {"--role", "decode"});
  }

  // Several hundred tokens: more than one iteration computes.
  static json request() {
    std::string prompt;
    for (int i = 0; i < 60; ++i) prompt += "the anchor chain number " + std::to_string(i) + " ";
    return {{"model", "tiny"}, {"prompt", prompt}, {"max_tokens", 30}, {"temperature", 0}};
  }

  // Step 1: the connection stays open; its headers contain the value for step 2.
  static std::string value_of(Connection& prefill) {
    EXPECT_TRUE(prefill.read_until("\r\n\r\n"));
    const std::string name = "X-Windlass-Prefilled: ";
    const std::string& head = prefill.received();
    const auto at = head.find(name);
    EXPECT_NE(at, std::string::npos) << head;
    return at == std::string::npos ? "" : head.substr(at + name.size(), head.find("\r\n", at) - at - name.size());
  }
  std::string headers_for(const std::string& value) const {
    return "X-Windlass-Prefilled: " + value + "\r\nX-Windlass-Prefill-Address: 127.0.0.1:" + std::to_string(prefill_port_) +
           "\r\n";
  }

  // Both steps.
  Answer pass(const json& body) const {
    Connection prefill(prefill_port_);
    prefill.send("POST", kPath, body.dump(), "X-Windlass-Phase: prefill\r\n");
    const std::string value = value_of(prefill);
    const Answer answer = ask(decode_port_, "POST", kPath, body.dump(), headers_for(value));
    const std::string& whole = prefill.read_all();
    EXPECT_THAT(whole, ::testing::EndsWith("\r\n0\r\n\r\n")) << "keys and values are taken: the body ends";
    return answer;
  }
  [[nodiscard]] double metric_of(int port, const std::string& series) const {
    return metric(ask(port, "GET", "/metrics").body, series);
  }

  int prefill_port_ = 0, decode_port_ = 0;
  std::unique_ptr<Process> prefill_, decode_;
};

// Given requests that are whole, streamed, sampled with a seed and penalties, and with several choices; expects the two workers
// to give the texts of one. The second computes no prompt, and the first sends no token to a client.
TEST_F(Split, AnswersAsOneWorkerWould) {
  const int port = testing::free_port();
  const auto alone = start_at(port);
  json sampled = request();
  sampled.update({{"temperature", 0.8}, {"seed", 7}, {"repetition_penalty", 1.2}, {"logprobs", 2}});
  json several = request();
  several["n"] = 3;
  json single = request();
  single["max_tokens"] = 1;
  for (const json& body : {request(), sampled, several, single}) {
    const json expected = json::parse(ask(port, "POST", kPath, body.dump()).body);
    const Answer answer = pass(body);
    ASSERT_EQ(answer.status, 200) << answer.body;
    const json found = json::parse(answer.body);
    ASSERT_NO_FATAL_FAILURE(testing::expect_same_completion(found, expected));
    if (!body.contains("logprobs")) continue;
    const json& here = found["choices"][0]["logprobs"];
    const json& there = expected["choices"][0]["logprobs"];
    EXPECT_EQ(here["tokens"], there["tokens"]);
    EXPECT_NEAR(here["token_logprobs"][0], there["token_logprobs"][0], 1e-4) << "the first token is the other worker's";
    EXPECT_EQ(here["top_logprobs"][0].size(), there["top_logprobs"][0].size());
  }
  json streamed = request();
  streamed["stream"] = true;
  const Answer stream = pass(streamed);
  EXPECT_THAT(stream.headers, HasSubstr("text/event-stream"));
  EXPECT_THAT(stream.body, HasSubstr("data: [DONE]"));
  EXPECT_EQ(testing::parse_stream(stream.body).text,
            json::parse(ask(port, "POST", kPath, request().dump()).body)["choices"][0]["text"]);
  EXPECT_EQ(metric_of(decode_port_, "windlass_worker_kv_transfers_total{model=\"tiny\",outcome=\"received\"}"), 7);
  EXPECT_EQ(metric_of(decode_port_, "windlass_worker_prompt_tokens_total"), 0);
  EXPECT_EQ(metric_of(prefill_port_, "windlass_worker_generation_tokens_total"), 0);
  EXPECT_EQ(metric_of(prefill_port_, "windlass_worker_requests_finished_total{model=\"tiny\",reason=\"prefilled\"}"), 7);
  const double sent = metric_of(prefill_port_, "windlass_worker_kv_transfer_bytes_total{direction=\"sent\",model=\"tiny\"}");
  EXPECT_GT(sent, 0);
  EXPECT_EQ(sent, metric_of(decode_port_, "windlass_worker_kv_transfer_bytes_total{direction=\"received\",model=\"tiny\"}"));
}

// Given a prefill worker that dies after it has begun; expects the same text from the decode worker alone.
TEST_F(Split, LostPrefillWorkerCostsOnlyTime) {
  const Answer expected = pass(request());
  Connection prefill(prefill_port_);
  prefill.send("POST", kPath, request().dump(), "X-Windlass-Phase: prefill\r\n");
  const std::string value = value_of(prefill);
  prefill_->signal(SIGKILL);
  prefill_->wait();
  const Answer answer = ask(decode_port_, "POST", kPath, request().dump(), headers_for(value));
  ASSERT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(json::parse(answer.body)["choices"], json::parse(expected.body)["choices"]);
  EXPECT_EQ(metric_of(decode_port_, "windlass_worker_kv_transfers_total{model=\"tiny\",outcome=\"failed\"}"), 1);
  EXPECT_GT(metric_of(decode_port_, "windlass_worker_prompt_tokens_total"), 300);
  EXPECT_THAT(decode_->log(), HasSubstr("is computed here: "));
}

// Given a gateway that leaves after the first step; expects the prefill worker's memory to be freed, and later requests for the
// keys and values to be computed by the decode worker.
TEST_F(Split, LeavingGatewayFreesTheMemory) {
  std::string value;
  {
    Connection prefill(prefill_port_);
    prefill.send("POST", kPath, request().dump(), "X-Windlass-Phase: prefill\r\n");
    value = value_of(prefill);
    EXPECT_TRUE(eventually([&] { return metric_of(prefill_port_, "windlass_worker_kv_cache_blocks_used") > 20; }));
  }
  EXPECT_TRUE(eventually([&] { return metric_of(prefill_port_, "windlass_worker_kv_cache_blocks_used") == 0; }));
  const Answer answer = ask(decode_port_, "POST", kPath, request().dump(), headers_for(value));
  EXPECT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(metric_of(decode_port_, "windlass_worker_kv_transfers_total{model=\"tiny\",outcome=\"failed\"}"), 1);
}

// Given keys and values of another prompt; expects the decode worker not to use them.
TEST_F(Split, AnotherPromptIsNotTaken) {
  json other = request();
  other["prompt"] = "something else of another length";
  const int port = testing::free_port();
  const auto alone = start_at(port);
  Connection prefill(prefill_port_);
  prefill.send("POST", kPath, request().dump(), "X-Windlass-Phase: prefill\r\n");
  const Answer answer = ask(decode_port_, "POST", kPath, other.dump(), headers_for(value_of(prefill)));
  ASSERT_EQ(answer.status, 200);
  EXPECT_EQ(json::parse(answer.body)["choices"], json::parse(ask(port, "POST", kPath, other.dump()).body)["choices"]);
  EXPECT_THAT(decode_->log(), HasSubstr("status: must be 200 (got 409)"));
}

// Given more choices than the cache has room for at once; expects all to be answered: the first ones' keys and values are
// fetched while the others wait.
TEST_F(Split, ChoicesNeedNotFitTogether) {
  const int port = testing::free_port();
  const auto small = start_at(port, {"--role", "prefill", "--max-context-tokens", "768", "--kv-cache-tokens", "1536"});
  json several = request();
  several.update({{"n", 6}, {"max_tokens", 3}});
  prefill_port_ = port;
  const Answer answer = pass(several);
  ASSERT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(json::parse(answer.body)["choices"].size(), 6U);
  EXPECT_EQ(metric_of(decode_port_, "windlass_worker_kv_transfers_total{model=\"tiny\",outcome=\"received\"}"), 6);
}

// Given a prompt that workers of one and of two ranks compute for each other; expects complete keys and values, and the answer
// of one worker with one rank.
TEST_F(Split, WorkersMayDifferInDegree) {
  const Answer expected = ask(decode_port_, "POST", kPath, request().dump());
  const int prefill = testing::free_port(), decode = testing::free_port();
  const auto cut_prefill = start_at(prefill, {"--role", "prefill", "--tensor-parallel", "2"});
  const auto cut_decode = start_at(decode, {"--role", "decode", "--tensor-parallel", "2"});
  const int whole_prefill = prefill_port_;
  for (const auto& [first, second] : {std::pair(prefill, decode_port_), std::pair(whole_prefill, decode)}) {
    prefill_port_ = first;
    decode_port_ = second;
    const Answer answer = pass(request());
    ASSERT_EQ(answer.status, 200) << answer.body;
    EXPECT_EQ(json::parse(answer.body)["choices"], json::parse(expected.body)["choices"]);
    EXPECT_EQ(metric_of(second, "windlass_worker_kv_transfers_total{model=\"tiny\",outcome=\"received\"}"), 1);
  }
}

// Given two workers of the same shape with different weights; expects the second not to use the first one's keys and values.
TEST_F(Split, AnotherModelsValuesAreNotTaken) {
  const auto other = folder_ / "other";
  Process init({testing::kProgram, "model", "init", "--layers", "3", "--hidden", "128", "--heads", "4", "--kv-heads", "2",
                "--intermediate", "344", "--max-context", "4096", "--seed", "99", other.string()},
               folder_ / "init-other.log");
  ASSERT_EQ(init.wait(), 0) << init.log();
  const int port = testing::free_port();
  Process worker({testing::kProgram, "--model", other.string(), "--port", std::to_string(port), "--name", "tiny"},
                 folder_ / "other.log");
  ASSERT_TRUE(eventually([&] { return ask(port, "GET", "/ready").status == 200; })) << worker.log();
  const Answer expected = ask(decode_port_, "POST", kPath, request().dump());
  prefill_port_ = port;
  Connection prefill(port);
  prefill.send("POST", kPath, request().dump(), "X-Windlass-Phase: prefill\r\n");
  const Answer answer = ask(decode_port_, "POST", kPath, request().dump(), headers_for(value_of(prefill)));
  EXPECT_EQ(json::parse(answer.body)["choices"], json::parse(expected.body)["choices"]);
  EXPECT_EQ(metric_of(decode_port_, "windlass_worker_kv_transfers_total{model=\"tiny\",outcome=\"failed\"}"), 1);
}

// Given invalid questions for keys and values; expects errors and nothing else. A question that cannot be answered yet is
// answered after a second.
TEST_F(Split, WrongQuestionsForKeysAndValues) {
  const std::string session(32, 'a');
  for (const std::string& path : {std::string("/kv/"), std::string("/kv/abc"), "/kv/" + session, "/kv/" + session + "?piece=-1",
                                  "/kv/" + session + "?piece=99999999999999999999"}) {
    EXPECT_EQ(ask(prefill_port_, "GET", path).status, 400) << path;
  }
  EXPECT_EQ(ask(prefill_port_, "GET", "/kv/" + session + "?piece=0&prompt=1").status, 404);
  EXPECT_EQ(ask(prefill_port_, "POST", "/kv/" + session + "?piece=0").status, 405);
}

// Given requests that a role does not handle; expects 503 with the reason, so that a gateway tries another worker. The role
// changes at runtime with the token, and not with another token or none.
TEST_F(Split, RolesRefuseAndChange) {
  const std::string body = request().dump();
  const Answer whole = ask(prefill_port_, "POST", kPath, body);
  EXPECT_EQ(whole.status, 503);
  EXPECT_THAT(whole.headers, HasSubstr("X-Windlass-Rejected: role"));
  const Answer prompt = ask(decode_port_, "POST", kPath, body, "X-Windlass-Phase: prefill\r\n");
  EXPECT_EQ(prompt.status, 503);
  EXPECT_THAT(prompt.headers, HasSubstr("X-Windlass-Rejected: role"));
  EXPECT_EQ(ask(decode_port_, "POST", kPath, body).status, 200) << "a decode worker can serve any request alone";
  EXPECT_EQ(ask(decode_port_, "POST", "/role", R"({"role":"prefill"})").status, 403);

  std::ofstream(folder_ / "token") << "the-token-of-this-installation\n";
  const int port = testing::free_port();
  const auto worker = start_at(port, {"--role", "decode", "--token-file", (folder_ / "token").string()});
  const std::string right = "Authorization: Bearer the-token-of-this-installation\r\n";
  EXPECT_EQ(ask(port, "POST", "/role", R"({"role":"prefill"})").status, 401);
  EXPECT_EQ(ask(port, "POST", "/role", R"({"role":"prefill"})", "Authorization: Bearer the-token-of-this-other\r\n").status,
            401);
  for (const char* wrong : {"", "{}", "[]", R"({"role":"both"})", R"({"role":7})"}) {
    const Answer refused = ask(port, "POST", "/role", wrong, right);
    EXPECT_EQ(refused.status, 400) << wrong;
    EXPECT_THAT(refused.body, HasSubstr("unified")) << wrong;
  }
  EXPECT_EQ(ask(port, "GET", "/role").body, R"({"role":"decode"})");
  EXPECT_EQ(ask(port, "POST", "/role", R"({"role":"prefill"})", right).status, 200);
  EXPECT_EQ(ask(port, "GET", "/role").body, R"({"role":"prefill"})");
  EXPECT_EQ(ask(port, "POST", kPath, body).status, 503);
  for (const char* headers : {"X-Windlass-Phase: decode\r\n", "X-Windlass-Prefilled: abc\r\n",
                              "X-Windlass-Prefilled: 0123456789abcdef0123456789abcdef\r\n"}) {
    EXPECT_EQ(ask(decode_port_, "POST", kPath, body, headers).status, 400) << headers;
  }
}

// Given a decode worker that answers, and a prefill worker that holds a prompt; expects both to take the other role with the
// duty token, to finish what they hold with the texts of one worker, and then to serve as a pair the other way round.
TEST_F(Split, RolesChangeWhileRequestsRun) {
  ::setenv("WINDLASS_DUTY_TOKEN", "a-token-for-changes", 1);
  const int first_port = testing::free_port(), second_port = testing::free_port();
  const auto first = start_at(first_port, {"--role", "prefill"}), second = start_at(second_port, {"--role", "decode"});
  ::unsetenv("WINDLASS_DUTY_TOKEN");
  const auto alone_port = testing::free_port();
  const auto alone = start_at(alone_port);
  const json expected = json::parse(ask(alone_port, "POST", kPath, request().dump()).body);
  const std::string token = "Authorization: Bearer a-token-for-changes\r\n";
  EXPECT_EQ(ask(second_port, "POST", "/role", R"({"role":"prefill"})").status, 401);
  EXPECT_EQ(ask(decode_port_, "POST", "/role", R"({"role":"prefill"})", token).status, 403) << "it has no such token";

  prefill_port_ = first_port;
  Connection held(first_port), stream(second_port);
  held.send("POST", kPath, request().dump(), "X-Windlass-Phase: prefill\r\n");
  const std::string value = value_of(held);
  json body = request();
  body.update({{"max_tokens", 150}, {"ignore_eos", true}});
  const json whole = json::parse(ask(alone_port, "POST", kPath, body.dump()).body);
  body["stream"] = true;
  {
    const Slowed slowed(*second);  // so that it answers while its role changes
    stream.send("POST", kPath, body.dump());
    ASSERT_TRUE(stream.read_until("data: "));
    EXPECT_EQ(ask(second_port, "POST", "/role", R"({"role":"prefill"})", token).status, 200);
    EXPECT_EQ(ask(second_port, "POST", kPath, request().dump()).status, 503);
  }
  EXPECT_EQ(testing::parse_stream(testing::parse_answer(stream.read_all()).body).text, whole["choices"][0]["text"]);
  EXPECT_EQ(ask(first_port, "POST", "/role", R"({"role":"decode"})", token).status, 200);
  const Answer taken = ask(decode_port_, "POST", kPath, request().dump(), headers_for(value));
  ASSERT_NO_FATAL_FAILURE(testing::expect_same_completion(json::parse(taken.body), expected));
  EXPECT_EQ(metric_of(decode_port_, "windlass_worker_kv_transfers_total{model=\"tiny\",outcome=\"received\"}"), 1);
  (void)held.read_all();

  prefill_port_ = second_port;
  decode_port_ = first_port;
  const Answer answer = pass(request());
  ASSERT_EQ(answer.status, 200) << answer.body;
  ASSERT_NO_FATAL_FAILURE(testing::expect_same_completion(json::parse(answer.body), expected));
  EXPECT_EQ(metric_of(first_port, "windlass_worker_kv_transfers_total{model=\"tiny\",outcome=\"received\"}"), 1);
}

// Given a pair and `windlass profile` with both; expects each prompt size to be transferred once more than cells are repeated,
// bandwidth and latency to be printed next to the table and stored in a valid profile, and nothing to remain held.
TEST_F(Split, TransfersAreProfiled) {
  const std::string url = "http://127.0.0.1:";
  const auto output = folder_ / "profile.yaml";
  Process profile({build_path() + "/windlass",
                   "profile",
                   "--worker",
                   url + std::to_string(decode_port_),
                   "--prefill-worker",
                   url + std::to_string(prefill_port_),
                   "--accelerator",
                   "test-cpu",
                   "--prompts",
                   "16,400,40",
                   "--batches",
                   "1,2",
                   "--repeats",
                   "2",
                   "--max-tokens",
                   "64",
                   "--max-error",
                   "100000%",
                   "-o",
                   output.string()},
                  folder_ / "profile.log");
  ASSERT_EQ(profile.wait(), 0) << profile.log();
  EXPECT_THAT(profile.log(), ::testing::ContainsRegex("KV transfers: 6 of [0-9.]+ to [0-9.]+ MB: [0-9.e+-]+ GB/s, "
                                                      "latency [0-9.e-]+ ms, [0-9.e+]+ bytes per token"));
  std::ifstream file(output);
  const std::string yaml(std::istreambuf_iterator<char>(file), {});
  EXPECT_THAT(yaml,
              ::testing::ContainsRegex("transfer:\n *bandwidthBytesPerSecond: \"[0-9.e+]+\"\n *bytesPerToken: \"[0-9.]+\"\n"
                                       " *latencySeconds: \"[0-9.e-]+\"\n *samples: 6\n"));
  Process validate({build_path() + "/windlass", "validate", "-f", output.string()}, folder_ / "validate.log");
  EXPECT_EQ(validate.wait(), 0) << validate.log();
  EXPECT_EQ(metric_of(decode_port_, "windlass_worker_kv_transfers_total{model=\"tiny\",outcome=\"received\"}"), 7);
  EXPECT_TRUE(eventually([&] { return metric_of(prefill_port_, "windlass_worker_prompts_held") == 0; }));
}

}  // namespace
}  // namespace windlass::worker
