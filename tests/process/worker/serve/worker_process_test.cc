// The real windlass-worker on a newly generated model: it answers, streams, refuses, drains.
#include "tests/process/worker/serve/worker_process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/paths.h"

namespace windlass::worker {
namespace {

using nlohmann::json;
using testing::Answer;
using testing::ask;
using testing::Connection;
using testing::eventually;
using testing::free_port;
using ::testing::HasSubstr;
using testing::kProgram;
using testing::metric;
using ::testing::Not;
using testing::parse_stream;
using testing::Process;
using testing::Slowed;
using testing::Stream;
using testing::Worker;

// Given one greedy prompt; expects the same text and usage from the whole answer and the stream, and both in the metrics.
TEST_F(Worker, CompletesAndStreamsTheSame) {
  const auto worker = start();
  const Answer whole = ask(port_, "POST", "/v1/completions", completion(40, false), "X-Request-Id: abc-1\r\n");
  ASSERT_EQ(whole.status, 200) << whole.body;
  EXPECT_THAT(whole.headers, HasSubstr("X-Request-Id: abc-1"));
  const json body = json::parse(whole.body);
  EXPECT_EQ(body["usage"]["completion_tokens"], 40);
  json request = json::parse(completion(40, true));
  request["stream_options"] = {{"include_usage", true}};
  const Answer streamed = ask(port_, "POST", "/v1/completions", request.dump());
  ASSERT_EQ(streamed.status, 200);
  EXPECT_THAT(streamed.headers, HasSubstr("text/event-stream"));
  const Stream stream = parse_stream(streamed.body);
  EXPECT_EQ(stream.text, body["choices"][0]["text"]);
  EXPECT_EQ(stream.tokens, 40);
  EXPECT_EQ(stream.done, 1);
  EXPECT_EQ(stream.finish, "length");
  EXPECT_EQ(stream.usage, body["usage"]);

  const Answer chat =
      ask(port_, "POST", "/v1/chat/completions",
          json{{"model", "tiny"}, {"messages", {{{"role", "user"}, {"content", "hi"}}}}, {"max_tokens", 5}}.dump());
  ASSERT_EQ(chat.status, 200) << chat.body;
  EXPECT_EQ(json::parse(chat.body)["choices"][0]["message"]["role"], "assistant");

  const std::string text = metrics_text();
  EXPECT_EQ(metric(text, "windlass_worker_generation_tokens_total{"), 85);
  EXPECT_EQ(metric(text, "windlass_worker_time_to_first_token_seconds_count{"), 3);
  EXPECT_EQ(metric(text, "windlass_worker_requests_running{"), 0);
  EXPECT_GT(metric(text, "windlass_worker_model_load_seconds{"), 0);
  EXPECT_EQ(metric(text, "windlass_worker_request_prefill_seconds_count{"), 3);
  EXPECT_EQ(metric(text, "windlass_worker_request_decode_seconds_count{"), 3);
  // One sequence at a time: one iteration for each of 85 tokens. Prompts fit in one; the last token of each needs none.
  EXPECT_EQ(metric(text, "windlass_worker_iteration_seconds_count{"), 85);
  const double prompts = metric(text, "windlass_worker_prompt_tokens_total{");
  EXPECT_EQ(metric(text, "windlass_worker_iteration_tokens_sum{"), prompts + 85 - 3);
  EXPECT_EQ(metric(text, "windlass_worker_preemptions_total{"), 0);
  EXPECT_EQ(metric(text, "windlass_worker_kv_cache_blocks_used{"), 0);
  EXPECT_GT(metric(text, "windlass_worker_kv_cache_blocks{"), 0);
  EXPECT_THAT(ask(port_, "GET", "/v1/models").body, HasSubstr("\"id\":\"tiny\""));
}

// Given three choices with log probabilities; expects the same by choice whether whole or streamed, and the first to equal a
// single choice. More choices than places are refused at once.
TEST_F(Worker, GivesSeveralChoices) {
  const auto worker = start();
  json request{{"model", "tiny"}, {"prompt", "the anchor"}, {"max_tokens", 12}, {"seed", 4},
               {"n", 3},          {"logprobs", 2},          {"top_k", 50}};
  const Answer whole = ask(port_, "POST", "/v1/completions", request.dump());
  ASSERT_EQ(whole.status, 200) << whole.body;
  const json body = json::parse(whole.body);
  ASSERT_EQ(body["choices"].size(), 3U);
  EXPECT_NE(body["choices"][0]["text"], body["choices"][1]["text"]);
  for (const json& choice : body["choices"]) {
    EXPECT_EQ(choice["logprobs"]["tokens"].size(), 12U);
    for (const json& logprob : choice["logprobs"]["token_logprobs"]) EXPECT_LT(logprob, 0);
    for (const json& top : choice["logprobs"]["top_logprobs"]) EXPECT_GE(top.size(), 1U);
  }
  EXPECT_EQ(body["usage"]["completion_tokens"], 36);

  request["stream"] = true;
  const Answer streamed = ask(port_, "POST", "/v1/completions", request.dump());
  ASSERT_EQ(streamed.status, 200) << streamed.body;
  std::vector<std::string> texts(3);
  std::vector<json> offsets(3, json::array());
  for (std::size_t at = streamed.body.find("data: {"); at != std::string::npos; at = streamed.body.find("data: {", at + 1)) {
    const json event = json::parse(streamed.body.substr(at + 6, streamed.body.find("\n\n", at) - at - 6));
    const json& choice = event["choices"][0];
    texts[choice["index"]] += choice["text"].get<std::string>();
    offsets[choice["index"]].push_back(choice["logprobs"]["text_offset"][0]);
  }
  EXPECT_THAT(streamed.body, HasSubstr("data: [DONE]"));
  for (std::size_t i = 0; i < texts.size(); ++i) {
    EXPECT_EQ(texts[i], body["choices"][i]["text"]);
    EXPECT_EQ(offsets[i], body["choices"][i]["logprobs"]["text_offset"]);
  }

  request["stream"] = false;
  request["n"] = 1;
  const json alone = json::parse(ask(port_, "POST", "/v1/completions", request.dump()).body);
  EXPECT_EQ(alone["choices"][0]["text"], texts[0]);

  request["n"] = 100;
  const Answer many = ask(port_, "POST", "/v1/completions", request.dump());
  EXPECT_EQ(many.status, 400);
  EXPECT_THAT(many.body, HasSubstr("n: must be a whole number from 1 to "));

  const json tokens = json::parse(ask(port_, "POST", "/tokenize", R"({"prompt":"the anchor"})").body);
  EXPECT_EQ(tokens["count"], body["usage"]["prompt_tokens"]);
  const json text = json::parse(ask(port_, "POST", "/detokenize", json{{"tokens", tokens["tokens"]}}.dump()).body);
  EXPECT_EQ(text["prompt"], "<|begin_of_text|>the anchor");
  EXPECT_EQ(json::parse(ask(port_, "GET", "/v1/models/tiny").body)["id"], "tiny");
  const Answer other = ask(port_, "GET", "/v1/models/gpt%2D4");
  EXPECT_EQ(other.status, 404);
  EXPECT_THAT(other.body, HasSubstr("model: must be 'tiny', which this worker serves (got 'gpt-4')"));
}

// Given an endless stream; expects its first chunk to arrive.
TEST_F(Worker, FirstTokenLeavesBeforeTheLastIsMade) {
  allow_endless_requests();
  const auto worker = start();
  Connection connection(port_);
  ASSERT_TRUE(connection.open());
  connection.send("POST", "/v1/completions", completion(kEndless, true));
  ASSERT_TRUE(connection.read_until("data: "));
  EXPECT_EQ(metric(metrics_text(), "windlass_worker_requests_running{"), 1);
}

// Given a client that leaves in the middle of its stream, or while it waits for a whole answer; expects its request to end.
TEST_F(Worker, ClientThatLeavesEndsItsRequest) {
  allow_endless_requests();
  const auto worker = start();
  for (const bool stream : {true, false}) {
    {
      Connection connection(port_);
      ASSERT_TRUE(connection.open());
      connection.send("POST", "/v1/completions", completion(kEndless, stream));
      ASSERT_TRUE(eventually([&] { return metric(metrics_text(), "windlass_worker_requests_running{") == 1; }));
    }
    EXPECT_TRUE(eventually([&] { return metric(metrics_text(), "windlass_worker_requests_running{") == 0; }));
  }
  EXPECT_TRUE(eventually(
      [&] { return metric(metrics_text(), "windlass_worker_requests_finished_total{model=\"tiny\",reason=\"abort\"}") == 2; }));
}

// Given SIGTERM with a stream in flight; expects the stream to end complete, new requests to be refused with the header that a
// gateway needs, 503 from /ready, and exit code 0.
TEST_F(Worker, DrainsOnSigterm) {
  make_model();
  const One later = start_one({"--blocks", "2:3"});
  port_ = free_port();
  const auto worker = start_at(port_, {"--blocks", "0:2", "--next", address(later)});
  std::optional<Slowed> slowed(*later.process);
  Connection connection(port_);
  ASSERT_TRUE(connection.open());
  connection.send("POST", "/v1/completions", completion(2000, true));
  ASSERT_TRUE(connection.read_until("data: "));
  worker->signal(SIGTERM);
  ASSERT_TRUE(eventually([&] { return ask(port_, "GET", "/ready").status != 200; }));
  EXPECT_THAT(ask(port_, "GET", "/ready").body, HasSubstr("draining"));
  EXPECT_EQ(ask(port_, "GET", "/health").status, 200);
  const Answer refused = ask(port_, "POST", "/v1/completions", completion(1, false));
  EXPECT_EQ(refused.status, 503);
  EXPECT_THAT(refused.headers, HasSubstr("X-Windlass-Rejected: draining"));
  slowed.reset();
  const Stream stream = parse_stream(testing::parse_answer(connection.read_all()).body);
  EXPECT_EQ(stream.tokens, 2000);
  EXPECT_EQ(stream.done, 1);
  EXPECT_EQ(worker->wait(), 0) << worker->log();
}

// Given a drain timeout shorter than the stream; expects the stream to end with an error event and no [DONE], and a non-zero
// exit code.
TEST_F(Worker, DrainTimeoutCutsWhatIsLeft) {
  allow_endless_requests();
  const auto worker = start({"--drain-timeout", "0s"});
  Connection connection(port_);
  ASSERT_TRUE(connection.open());
  connection.send("POST", "/v1/completions", completion(kEndless, true));
  ASSERT_TRUE(connection.read_until("data: "));
  worker->signal(SIGTERM);
  const std::string& received = connection.read_all();
  EXPECT_THAT(received, HasSubstr("{\"error\":{\"message\":\"this worker was stopped before the answer was complete\""));
  EXPECT_THAT(received, Not(HasSubstr("[DONE]")));
  EXPECT_EQ(worker->wait(), 1) << worker->log();
}

// Runs `windlass profile` on the worker at this port; returns its exit code and output.
std::pair<int, std::string> profiled(int port, const std::filesystem::path& folder, const std::vector<std::string>& flags) {
  std::vector<std::string> arguments{build_path() + "/windlass",
                                     "profile",
                                     "--worker",
                                     "http://127.0.0.1:" + std::to_string(port),
                                     "--accelerator",
                                     "test-cpu"};
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  Process profile(arguments, folder / "profile.log");
  const int code = profile.wait();
  return {code, profile.log()};
}

std::string text_in(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Given a worker and `windlass profile` over a small grid; expects a profile with its errors and the size of the KV cache,
// under the only served name, and the measurements next to it. A batch that the worker has no places for is left out by name.
TEST_F(Worker, IsProfiled) {
  const auto worker = start({"--max-concurrent", "2", "--kv-cache-tokens", "8192"});
  const auto output = folder_ / "profile.yaml", csv = folder_ / "rows.csv";
  const auto [code, log] = profiled(port_, folder_,
                                    {"--prompts", "4,12,16,48", "--batches", "1,2,40", "--repeats", "2", "--max-tokens", "64",
                                     "--max-error", "100000%", "--csv", csv.string(), "-o", output.string()});
  ASSERT_EQ(code, 0) << log;
  EXPECT_THAT(log, HasSubstr("40 prompts of 4 words skipped: rejected"));
  EXPECT_THAT(log, HasSubstr("PerformanceProfile tiny-test-cpu-1gpu written to"));
  const std::string text = text_in(output), rows = text_in(csv);
  EXPECT_THAT(text, HasSubstr("kind: PerformanceProfile"));
  EXPECT_THAT(text, HasSubstr("kvCapacityTokens: 8192"));
  EXPECT_GE(std::count(rows.begin(), rows.end(), '\n'), 1 + 4 * 2);
}

// Given no sizes; expects load points up to the worker's limit: its context, or what the budget allows on a busy machine.
TEST_F(Worker, IsProfiledAtSizesOfItsOwn) {
  const auto worker = start({"--max-concurrent", "2", "--max-context-tokens", "512"});
  const auto output = folder_ / "profile.yaml";
  const auto [code, log] =
      profiled(port_, folder_, {"--repeats", "1", "--budget", "2m", "--max-error", "100000%", "-o", output.string()});
  ASSERT_EQ(code, 0) << log;
  EXPECT_THAT(log, ::testing::ContainsRegex("1 prompt of [0-9]+ words skipped: rejected: .*the context holds 512 tokens|"
                                            "larger load points skipped"));
  EXPECT_THAT(text_in(output), HasSubstr("kind: PerformanceProfile"));
}

// Given an error limit that no measurement can meet; expects exit code 1, the phases and their errors with advice, the
// measurements kept, and no profile without --output-anyway.
TEST_F(Worker, IsNotProfiledBeyondTheBound) {
  const auto worker = start();
  const auto output = folder_ / "profile.yaml", csv = folder_ / "rows.csv";
  std::vector<std::string> flags{"--prompts", "4,12,16,48", "--batches", "1,2",        "--max-error", "0.0001%",
                                 "--budget",  "1s",         "--csv",     csv.string(), "-o",          output.string()};
  const auto [code, log] = profiled(port_, folder_, flags);
  EXPECT_EQ(code, 1) << log;
  for (const char* expected : {"windlass profile: prefill: median error ", "; decode: median error ",
                               "must be at most 0.0% (got ", "(--budget)", "Nothing was written; --output-anyway"}) {
    EXPECT_THAT(log, HasSubstr(expected));
  }
  EXPECT_FALSE(std::filesystem::exists(output));
  EXPECT_TRUE(std::filesystem::exists(csv));
  flags.emplace_back("--output-anyway");
  const auto [anyway, said] = profiled(port_, folder_, flags);
  EXPECT_EQ(anyway, 1) << said;
  EXPECT_THAT(said, HasSubstr("; decode: median error "));
  EXPECT_THAT(text_in(output), HasSubstr("kind: PerformanceProfile"));
}

// Replaces the checkpoint with one of zeros, so large that reading it takes a while, but sparse on disk, with tensors of other
// sizes.
void make_large(const std::filesystem::path& folder, std::int64_t layers, std::int64_t hidden, std::int64_t intermediate) {
  json config;
  std::ifstream(folder / "config.json") >> config;
  config["hidden_size"] = hidden;
  config["intermediate_size"] = intermediate;
  config["num_hidden_layers"] = layers;
  config["head_dim"] = 32;
  std::ofstream(folder / "config.json") << config;
  const std::int64_t q = config["num_attention_heads"].get<std::int64_t>() * 32;
  const std::int64_t kv = config["num_key_value_heads"].get<std::int64_t>() * 32, vocab = config["vocab_size"];
  json header;
  std::int64_t bytes = 0;
  const auto add = [&](const std::string& name, const std::vector<std::int64_t>& shape) {
    const std::int64_t begin = bytes;
    std::int64_t numbers = 1;
    for (const std::int64_t extent : shape) numbers *= extent;
    bytes += 4 * numbers;
    header[name] = {{"dtype", "F32"}, {"shape", shape}, {"data_offsets", {begin, bytes}}};
  };
  add("model.embed_tokens.weight", {vocab, hidden});
  add("lm_head.weight", {vocab, hidden});
  add("model.norm.weight", {hidden});
  for (std::int64_t i = 0; i < layers; ++i) {
    const std::string layer = "model.layers." + std::to_string(i) + ".";
    for (const char* norm : {"input_layernorm", "post_attention_layernorm"}) add(layer + norm + ".weight", {hidden});
    add(layer + "self_attn.q_proj.weight", {q, hidden});
    add(layer + "self_attn.k_proj.weight", {kv, hidden});
    add(layer + "self_attn.v_proj.weight", {kv, hidden});
    add(layer + "self_attn.o_proj.weight", {hidden, q});
    add(layer + "mlp.gate_proj.weight", {intermediate, hidden});
    add(layer + "mlp.up_proj.weight", {intermediate, hidden});
    add(layer + "mlp.down_proj.weight", {hidden, intermediate});
  }
  const std::string text = header.dump();
  const std::uint64_t size = text.size();
  std::ofstream file(folder / "model.safetensors", std::ios::binary | std::ios::trunc);
  file.write(reinterpret_cast<const char*>(&size), sizeof(size));
  file << text;
  file.close();
  std::filesystem::resize_file(folder / "model.safetensors", sizeof(size) + size + static_cast<std::uint64_t>(bytes));
}

// Given a model that takes a while to read; expects /ready and the log to report progress that never decreases. Once ready,
// /ready says only that.
TEST_F(Worker, TellsHowFarLoadingIs) {
  make_model();
  make_large(model(), 6, 1024, 8192);
  port_ = free_port();
  Process worker(
      {kProgram, "--model", model().string(), "--port", std::to_string(port_), "--weights", "int8", "--measure-time", "0"},
      folder_ / "worker.log");
  std::int64_t told = 0, last = 0;
  Answer answer;
  ASSERT_TRUE(eventually([&] {
    answer = ask(port_, "GET", "/ready");
    if (answer.status != 503) return answer.status == 200 || worker.ended();
    const json body = json::parse(answer.body);
    EXPECT_EQ(body["status"], "loading");
    const std::int64_t read = body["read_bytes"], total = body["total_bytes"];
    EXPECT_GE(read, last);
    if (body["stage"] == "weights" && read > last && read < total) ++told;
    last = read;
    return false;
  })) << worker.log();
  EXPECT_EQ(answer.body, R"({"status":"ready"})") << worker.log();
  EXPECT_GT(told, 0);
  EXPECT_THAT(worker.log(), ::testing::ContainsRegex("loading: (checking the files|read [0-9.]+ of 0.6[0-9] GB of weights)"));
}

// Number of series that report measurements of this kind.
int measured_series(const std::string& page, const std::string& kind) {
  const std::string series = "\nwindlass_worker_measured_" + kind + "_seconds{";
  int count = 0;
  for (auto at = page.find(series); at != std::string::npos; at = page.find(series, at + 1)) ++count;
  return count;
}

// Given a worker that has just become ready; expects the times of its own iterations in its metrics and log, no trace of them
// in request counters, and none at all if it must not measure. An invalid time is refused by the flag.
TEST_F(Worker, MeasuresItselfBeforeItIsReady) {
  const auto worker = start({"--measure-time", "2s"});
  const std::string text = metrics_text();
  EXPECT_GT(metric(text, R"(windlass_worker_measured_prefill_seconds{model="tiny",tokens="32"})"), 0) << text;
  EXPECT_EQ(measured_series(text, "prefill"), 2);
  EXPECT_GT(metric(text, R"(windlass_worker_measured_decode_seconds{batch="1",context=)"), 0) << text;
  EXPECT_GT(metric(text, R"(windlass_worker_measured_decode_seconds{batch="8",context=)"), 0) << text;
  EXPECT_EQ(measured_series(text, "decode"), 2);
  EXPECT_EQ(metric(text, "windlass_worker_iteration_seconds_count{"), 0);
  EXPECT_EQ(metric(text, "windlass_worker_prompt_tokens_total{"), 0);
  EXPECT_EQ(metric(text, "windlass_worker_prefix_cache_queries_total{"), 0);
  EXPECT_EQ(metric(text, "windlass_worker_kv_cache_blocks_used{"), 0);
  EXPECT_THAT(worker->log(),
              ::testing::ContainsRegex(
                  "measured: prefill of 32 tokens [0-9.e+-]+ ms, decode at batch 1 and context [0-9]+ [0-9.e+-]+ ms, decode"));

  const auto quiet = start_one({"--measure-time", "0"});
  const std::string page = ask(quiet.port, "GET", "/metrics").body;
  EXPECT_EQ(measured_series(page, "prefill") + measured_series(page, "decode"), 0) << page;
  EXPECT_THAT(quiet.process->log(), Not(HasSubstr("measured")));

  Process refused({kProgram, "--model", model().string(), "--port", "1", "--measure-time", "2"}, folder_ / "refused.log");
  EXPECT_NE(refused.wait(), 0);
  EXPECT_THAT(refused.log(), ::testing::AllOf(HasSubstr("--measure-time: "), HasSubstr("a duration")));
}

// Given a worker whose self-measurement takes a while; expects SIGTERM to end it at once, without a message that it serves.
TEST_F(Worker, StopsWhileItMeasures) {
  make_model();
  make_large(model(), 2, 512, 4096);
  port_ = free_port();
  Process worker({kProgram, "--model", model().string(), "--port", std::to_string(port_)}, folder_ / "worker.log");
  Answer answer;
  ASSERT_TRUE(eventually([&] {
    answer = ask(port_, "GET", "/ready");
    return answer.body.find(R"("stage":"measuring")") != std::string::npos || answer.status == 200 || worker.ended();
  })) << worker.log();
  if (answer.status == 200) GTEST_SKIP() << "this machine measures itself sooner than it can be asked";
  worker.signal(SIGTERM);
  EXPECT_EQ(worker.wait(), 0) << worker.log();
  EXPECT_THAT(worker.log(), HasSubstr("asked to stop while loading"));
  EXPECT_THAT(worker.log(), Not(HasSubstr("serving")));
}

// Given a KV cache too large for any machine, or beyond the limit of the process; expects the worker to exit before loading,
// alone and with several ranks, with the missing amount, the calculation, the limit, and flags that would fit, which do.
TEST_F(Worker, SaysWhatDoesNotFitIntoMemory) {
  make_model();
  const auto run = [&](const std::string& limit, const std::vector<std::string>& more) {
    std::string command = limit + "exec '" + kProgram + "' --model '" + model().string() + "' --port " +
                          std::to_string(free_port()) + " --name tiny";
    for (const std::string& word : more) command += " " + word;
    Process worker({"/bin/bash", "-c", command}, folder_ / "worker.log");
    EXPECT_EQ(worker.wait(), 1);
    return worker.log();
  };
  for (const std::string ranks : {"1", "2"}) {
    const std::string log = run("", {"--kv-cache-tokens", "4294967296", "--tensor-parallel", ranks});
    EXPECT_THAT(log, ::testing::ContainsRegex(
                         "memory: [0-9]+[.][0-9]+ GB are missing: weights take 0.00 GB as fp32, a KV "
                         "cache of 4294967296 tokens 6597.07 GB and buffers 0.0[0-9] GB; [0-9.]+ GB are available"));
    EXPECT_THAT(log, ::testing::ContainsRegex("--kv-cache-tokens [0-9]+ would fit"));
  }
  const std::string limited = run("ulimit -v 5000000; ", {"--kv-cache-tokens", "4000000"});
  EXPECT_THAT(limited, ::testing::ContainsRegex("GB are missing: .*[(](ulimit -v|MemAvailable|/sys/fs/cgroup/.*)[)]"));
  std::smatch fits;
  ASSERT_TRUE(std::regex_search(limited, fits, std::regex("--kv-cache-tokens ([0-9]+) would fit"))) << limited;
  EXPECT_LT(std::stoll(fits[1]), 4'000'000);
}

// Given a limit of a request's time; expects a longer stream to end with an error event and no [DONE], 504 for a whole answer,
// and faster requests to be answered.
TEST_F(Worker, RequestTimeoutEndsWhatTakesLonger) {
  allow_endless_requests();
  const auto worker = start({"--request-timeout", "500ms"});
  Connection connection(port_);
  ASSERT_TRUE(connection.open());
  connection.send("POST", "/v1/completions", completion(kEndless, true));
  const std::string& received = connection.read_all();
  EXPECT_THAT(received, HasSubstr("the request took longer than the 0.5 s that --request-timeout allows"));
  EXPECT_THAT(received, Not(HasSubstr("[DONE]")));
  const Answer whole = ask(port_, "POST", "/v1/completions", completion(kEndless, false));
  EXPECT_EQ(whole.status, 504);
  EXPECT_THAT(whole.body, HasSubstr("\"code\":\"timeout\""));
  EXPECT_EQ(ask(port_, "POST", "/v1/completions", completion(1, false)).status, 200);
}

// Given more requests than may run and wait; expects the next one to be refused with the header, and those waiting to be
// answered once there is room.
TEST_F(Worker, FullIsRefusedBeforeAnyWork) {
  allow_endless_requests();
  const auto worker = start({"--max-concurrent", "1"});
  std::vector<std::unique_ptr<Connection>> taken;
  for (const int tokens : {kEndless, 30, 40}) {
    taken.push_back(std::make_unique<Connection>(port_));
    taken.back()->send("POST", "/v1/completions", completion(tokens, true));
    ASSERT_TRUE(taken.back()->read_until("\r\n\r\n"));
    ASSERT_THAT(taken.back()->received(), HasSubstr("200 OK"));
  }
  const Answer refused = ask(port_, "POST", "/v1/completions", completion(1, false));
  EXPECT_EQ(refused.status, 503);
  EXPECT_THAT(refused.headers, HasSubstr("X-Windlass-Rejected: full"));
  EXPECT_EQ(metric(metrics_text(), "windlass_worker_requests_finished_total{model=\"tiny\",reason=\"rejected\"}"), 1);
  taken.front().reset();
  EXPECT_EQ(parse_stream(testing::parse_answer(taken[1]->read_all()).body).tokens, 30);
  EXPECT_EQ(parse_stream(testing::parse_answer(taken[2]->read_all()).body).tokens, 40);
}

// Given bad requests of each kind; expects the right status, and OpenAI's error body with the rule and the value.
TEST_F(Worker, AnswersBadRequests) {
  const auto worker = start();
  const auto error_of = [](const Answer& answer) { return json::parse(answer.body).at("error"); };
  Answer answer = ask(port_, "POST", "/v1/chat/completions", "{not json");
  EXPECT_EQ(answer.status, 400);
  EXPECT_EQ(error_of(answer)["code"], "invalid_json");

  answer = ask(port_, "POST", "/v1/completions", R"({"model":"tiny","prompt":"x","temperature":"warm"})");
  EXPECT_EQ(answer.status, 400);
  EXPECT_EQ(error_of(answer)["param"], "temperature");

  json longer = {{"model", "tiny"}, {"prompt", json::array()}};
  for (int i = 0; i < 5000; ++i) longer["prompt"].push_back(1);
  answer = ask(port_, "POST", "/v1/completions", longer.dump());
  EXPECT_EQ(answer.status, 400);
  EXPECT_THAT(error_of(answer)["message"].get<std::string>(), HasSubstr("5000 tokens, but the context holds 4096 tokens"));

  answer = ask(port_, "POST", "/v1/completions", R"({"model":"other","prompt":"x"})");
  EXPECT_EQ(answer.status, 404);
  EXPECT_EQ(error_of(answer)["code"], "model_not_found");

  EXPECT_EQ(ask(port_, "GET", "/v2/nothing").status, 404);
  answer = ask(port_, "GET", "/v1/completions");
  EXPECT_EQ(answer.status, 405);
  EXPECT_THAT(answer.headers, HasSubstr("Allow: POST"));
  EXPECT_EQ(ask(port_, "POST", "/metrics", "x").status, 405);
  EXPECT_EQ(ask(port_, "POST", "/v1/completions", std::string(5U << 20U, ' ')).status, 413);
  EXPECT_EQ(ask(port_, "GET", "/health", "", "X-Large: " + std::string(40000, 'x') + "\r\n").status, 431);
  std::string many = "[1";
  for (int i = 0; i < 1'000'000; ++i) many += ",1";
  const std::string chat =
      R"({"model":"tiny","messages":[{"role":"user","content":"x"}],"chat_template_kwargs":{"a":)" + many + "]}}";
  for (const char* path : {"/v1/chat/completions", "/tokenize"}) {
    answer = ask(port_, "POST", path, chat);
    EXPECT_EQ(answer.status, 400) << path;
    EXPECT_THAT(error_of(answer)["message"].get<std::string>(), HasSubstr("must have at most 1000000 values")) << path;
  }
  // The worker still answers.
  EXPECT_EQ(ask(port_, "POST", "/v1/completions", completion(2, false)).status, 200);
}

// Given a worker with a token; expects requests without it to be refused before the body is read, except probes, metrics and
// the list of models, and requests with it to be answered. An invalid token ends the worker, with an error that names the
// variable and not the token.
TEST_F(Worker, TokenIsWanted) {
  ::setenv("WINDLASS_WORKER_TOKEN", "a-token-of-the-service", 1);
  const auto worker = start();
  const std::string good = "Authorization: Bearer a-token-of-the-service\r\n";
  for (const char* path : {"/v1/chat/completions", "/v1/completions", "/tokenize", "/detokenize", "/chain/reserve",
                           "/chain/step", "/chain/release", "/unknown"}) {
    for (const char* shown : {"", "Authorization: Bearer another-token-altogether\r\n", "Authorization: Bearer \r\n"}) {
      EXPECT_EQ(ask(port_, "POST", path, "{}", shown).status, 401) << path << ' ' << shown;
    }
    EXPECT_NE(ask(port_, "POST", path, "{}", good).status, 401) << path;
  }
  for (const char* path : {"/kv/0123456789abcdef0123456789abcdef?piece=0&prompt=0", "//health", "/health/"}) {
    EXPECT_EQ(ask(port_, "GET", path).status, 401) << path;
  }
  for (const char* path : {"/health", "/ready", "/metrics", "/v1/models"}) {
    EXPECT_EQ(ask(port_, "GET", path).status, 200) << path;
  }
  EXPECT_EQ(ask(port_, "POST", "/role", R"({"role": "decode"})", good).status, 403) << "that needs a token for changes";
  EXPECT_EQ(ask(port_, "POST", "/v1/completions", completion(3, false), good).status, 200);
  Connection announced(port_);
  announced.send("PUT", "/v1/completions", "", "Content-Length: 4000000\r\n");  // the method is not checked either
  EXPECT_TRUE(announced.read_until("401")) << "without the body";

  ::setenv("WINDLASS_WORKER_TOKEN", "too short", 1);
  Process refused({kProgram, "--model", model().string(), "--port", std::to_string(free_port())}, folder_ / "refused.log");
  EXPECT_EQ(refused.wait(), 1);
  EXPECT_THAT(refused.log(), ::testing::AllOf(HasSubstr("WINDLASS_WORKER_TOKEN"), Not(HasSubstr("too short"))));
  ::unsetenv("WINDLASS_WORKER_TOKEN");
}

// Given a model folder that lacks a tensor; expects exit code 1 and an error with the file, the tensor and the rule.
TEST_F(Worker, MissingTensorIsNamed) {
  make_model();
  // The same file with one tensor renamed: the header keeps its length.
  const auto path = model() / "model.safetensors";
  std::ifstream in(path, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  const auto at = bytes.find("model.layers.1.mlp.down_proj.weight");
  ASSERT_NE(at, std::string::npos);
  bytes.replace(at, 12, "other.layers");
  std::ofstream(path, std::ios::binary) << bytes;
  Process worker({kProgram, "--model", model().string(), "--port", std::to_string(testing::free_port())},
                 folder_ / "worker.log");
  EXPECT_EQ(worker.wait(), 1);
  EXPECT_THAT(worker.log(),
              HasSubstr(path.string() +
                        ": tensor 'model.layers.1.mlp.down_proj.weight': must have shape [128, 344] (got no such tensor)"));
}

// Given no folder, or a bad flag; expects an error and exit code 1 or 2.
TEST_F(Worker, UnusableArguments) {
  const std::string port = std::to_string(testing::free_port());
  Process absent({kProgram, "--model", "/nowhere", "--port", port}, folder_ / "absent.log");
  EXPECT_EQ(absent.wait(), 1);
  EXPECT_THAT(absent.log(), HasSubstr("/nowhere: no such model; it must be"));
  Process flag({kProgram, "--model", "/nowhere", "--port", "x"}, folder_ / "flag.log");
  EXPECT_EQ(flag.wait(), 2);
  Process token({kProgram, "--model", "/nowhere", "--port", port, "--token-file", "/no/token"}, folder_ / "token.log");
  EXPECT_EQ(token.wait(), 1);
  EXPECT_THAT(token.log(), HasSubstr("--token-file: "));
}

// Given a folder with a model; expects `model init` to leave it unchanged and to say so, and with --overwrite to replace it.
TEST_F(Worker, ModelInitOverwritesNothingUnasked) {
  const auto folder = folder_ / "there";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "config.json") << "mine";
  const std::vector<std::string> init{kProgram, "model", "init", "--layers", "1", "--hidden", "64", folder.string()};
  Process refused(init, folder_ / "refused.log");
  EXPECT_EQ(refused.wait(), 1);
  EXPECT_THAT(refused.log(),
              HasSubstr("config.json: must be a folder without a model (got one with a model); or use --overwrite"));
  EXPECT_FALSE(std::filesystem::exists(folder / "model.safetensors"));
  auto more = init;
  more.insert(more.end() - 1, "--overwrite");
  Process made(more, folder_ / "made.log");
  EXPECT_EQ(made.wait(), 0) << made.log();
  EXPECT_TRUE(std::filesystem::exists(folder / "model.safetensors"));
}

// Given --backend cuda without a GPU, with one rank or several; expects the reason and exit code 1.
TEST_F(Worker, CudaBackendWithoutAGpu) {
  std::string found;
  if (gpus(found) > 0) GTEST_SKIP() << "this machine has a GPU: " << found;
  make_model();
  for (const char* ranks : {"1", "2"}) {
    Process cuda({kProgram, "--model", model().string(), "--port", std::to_string(testing::free_port()), "--backend", "cuda",
                  "--tensor-parallel", ranks},
                 folder_ / "cuda.log");
    EXPECT_EQ(cuda.wait(), 1);
    EXPECT_THAT(cuda.log(), HasSubstr("--backend: must be cpu here (got cuda)"));
  }
}

// Given --backend cuda with a GPU; expects the CPU's greedy answer in FP32.
TEST_F(Worker, CudaBackendAnswersAsTheCpu) {
  std::string found;
  if (gpus(found) == 0) GTEST_SKIP() << "no GPU: " << found;
  const auto text_of = [](const Answer& answer) { return json::parse(answer.body)["choices"][0]["text"].get<std::string>(); };
  std::string expected;
  {
    const auto worker = start();
    const Answer answer = ask(port_, "POST", "/v1/completions", completion(40, false));
    ASSERT_EQ(answer.status, 200) << answer.body;
    expected = text_of(answer);
  }
  const auto worker = start({"--backend", "cuda", "--precision", "fp32"});
  const Answer answer = ask(port_, "POST", "/v1/completions", completion(40, false));
  ASSERT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(text_of(answer), expected);
}

// Given more ranks than GPUs; expects an error before anything is loaded, and exit code 1.
TEST_F(Worker, CudaBackendRefusesMoreRanksThanGpus) {
  std::string found;
  const int count = gpus(found);
  if (count == 0) GTEST_SKIP() << "no GPU: " << found;
  if (count >= 64) GTEST_SKIP() << "more GPUs than ranks may be: " << found;
  make_model();
  Process cuda({kProgram, "--model", model().string(), "--port", std::to_string(testing::free_port()), "--backend", "cuda",
                "--tensor-parallel", std::to_string(count + 1)},
               folder_ / "cuda.log");
  EXPECT_EQ(cuda.wait(), 1);
  EXPECT_THAT(cuda.log(), HasSubstr("--tensor-parallel: must be at most " + std::to_string(count) +
                                    ", the number of visible GPUs, with --backend cuda (got " + std::to_string(count + 1)));
}

}  // namespace
}  // namespace windlass::worker
