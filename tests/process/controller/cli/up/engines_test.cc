// `windlass up` with real engines: llama.cpp on a real model, vLLM on a random one. Tests skip and say why if `scripts/engines`
// or `windlass model fetch smollm2-135m` has not run.
#include <atomic>
#include <filesystem>
#include <set>
#include <thread>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <signal.h>

#include "controller/cli/model/model_fetch.h"
#include "controller/runtime/local_engine.h"
#include "tests/free_port.h"
#include "tests/paths.h"
#include "tests/process/controller/cli/local/local_run.h"

namespace windlass::cli {
namespace {

using testing::HasSubstr;

std::string gguf() {
  const auto folder = models_folder();
  return folder.ok() ? (*folder / "smollm2-135m/SmolLM2-135M-Instruct.Q4_1.gguf").string() : "";
}

std::string objects(int workers, const std::string& engine) {
  return fmt::format(R"(apiVersion: windlass.dev/v1alpha1
kind: AcceleratorClass
metadata: {{name: core}}
spec:
  resourceName: windlass.dev/cpu
  memory: 1Gi
  memoryBandwidthBytesPerSecond: 10G
  peakFlopsPerSecond: {{fp32: 100G}}
  gpusPerNode: 4
---
apiVersion: windlass.dev/v1alpha1
kind: ModelService
metadata: {{name: tiny}}
spec:
  model:
    uri: file://{}
    maxContextTokens: 256
    config:
      inline: {{architectures: [LlamaForCausalLM], model_type: llama, num_hidden_layers: 30, hidden_size: 576, num_attention_heads: 9,
               num_key_value_heads: 3, head_dim: 64, intermediate_size: 1536, vocab_size: 49152, max_position_embeddings: 8192,
               rms_norm_eps: 0.00001, rope_theta: 100000.0, attention_bias: false, tie_word_embeddings: true, torch_dtype: float32}}
  engine: {}
  slo: {{timeToFirstToken: 60s, timePerOutputToken: 10s}}
  workload: {{requestsPerSecond: "0.1", inputTokens: 32, outputTokens: 16}}
  accelerators: [{{class: core}}]
  scaling: {{strategy: Replicated, minWorkers: {}, maxWorkers: {}, drainTimeout: 120s, behavior: {{scaleDown: {{stabilizationWindow: 0s}}}}}}
)",
                     gguf(), engine, workers, workers);
}

// Keeps a steady load of streams on a service of one worker while it is scaled to 2 workers and back to 1; expects that no
// stream is lost, that both workers serve, and that the gateway's counts match the client's.
void scale_under_load(LocalRun& run) {
  ASSERT_TRUE(eventually(300, [&] { return run.at_rest(1); })) << run.logs();
  std::atomic<bool> over{false};
  std::atomic<int> finished{0};
  std::vector<Result<kube::HttpResponse>> responses;
  std::thread client([&] {
    kube::CurlTransport transport(kube::CurlOptions{.max_parallel = 6});
    while (!over) {
      std::vector<kube::HttpRequest> batch;
      for (int i = 0; i < 6; ++i)
        batch.push_back(run.chat(fmt::format("Tell a story about the number {}", i), 24 + 8 * i, true));
      for (auto& response : transport.send_all(batch)) responses.push_back(std::move(response));
      finished += 6;
    }
  });
  std::string trouble;
  for (const int workers : {2, 1}) {
    const int before = finished;
    if (!eventually(120, [&] { return finished > before; })) trouble = "the load made no progress";
    run.scale_to(workers);
    if (!eventually(300, [&] { return run.at_rest(workers); })) trouble = fmt::format("never reached {} workers", workers);
    const int after = finished;
    if (!eventually(120, [&] { return finished >= after + 12; })) trouble = "the load made no progress";
    if (!trouble.empty()) break;
  }
  over = true;
  client.join();
  ASSERT_EQ(trouble, "") << run.logs();
  std::vector<std::string> wrong;
  std::set<std::string> workers;
  for (const auto& response : responses) {
    if (!response.ok()) {
      wrong.push_back(response.error().message);
      continue;
    }
    workers.insert(response->headers.contains("x-windlass-worker") ? response->headers.at("x-windlass-worker") : "");
    const bool whole = response->status == 200 && count_of(response->body, "data: [DONE]") == 1 &&
                       count_of(response->body, "\"error\"") == 0 && count_of(response->body, "\"finish_reason\":\"") == 1;
    if (!whole) wrong.push_back(fmt::format("{}: {}", response->status, response->body));
  }
  EXPECT_TRUE(wrong.empty()) << wrong.size() << " of " << responses.size() << " lost, the first: " << wrong.front()
                             << run.logs();
  EXPECT_EQ(workers.size(), 2U);
  const auto page = run.gateway_metrics();
  const auto total = static_cast<double>(responses.size());
  EXPECT_EQ(page.sum("windlass_gateway_requests_started_total").value_or(0), total);
  EXPECT_EQ(page.sum("windlass_gateway_requests_finished_total", {{"code", "200"}}).value_or(0), total);
}

// Given an engine's server that the test runs itself, behind `windlass attach`; expects attach to print this description,
// streams through it to be complete, the gateway's counts to match the client's, and the server to keep running after attach
// has ended.
void attach_to(const std::vector<std::string>& command, int port, const std::string& says) {
  const TempFolder folder;
  const std::string log = (folder.path() / "server.log").string();
  auto server = ChildProcess::start("server", command, log);
  ASSERT_TRUE(server.ok()) << server.error().message;
  kube::CurlTransport transport(kube::CurlOptions{.max_parallel = 4});
  const std::string url = fmt::format("http://127.0.0.1:{}", port);
  const auto serves = [&] {
    const auto response = transport.send({.url = url + "/health", .timeout_s = 5});
    return response.ok() && response->status == 200;
  };
  ASSERT_TRUE(eventually(300, [&] { return server->ended() || serves(); }));
  ASSERT_FALSE(server->ended()) << server->log_tail(50);

  LocalRun run({url, "--ttft", "60s", "--tpot", "10s"});
  ASSERT_TRUE(eventually(60, [&] { return run.at_rest(1); })) << run.logs();
  EXPECT_THAT(run.up_log(), HasSubstr(url + ": " + says));
  EXPECT_THAT(run.up_log(), HasSubstr("tiny: 1 server can serve about "));
  constexpr int kStreams = 12;
  std::vector<kube::HttpRequest> requests;
  for (int i = 0; i < kStreams; ++i) requests.push_back(run.chat(fmt::format("Count to {}", i), 16 + i, true));
  for (const auto& response : transport.send_all(requests)) {
    ASSERT_TRUE(response.ok() && response->status == 200) << run.logs();
    EXPECT_EQ(count_of(response->body, "data: [DONE]"), 1);
  }
  const auto page = run.gateway_metrics();
  EXPECT_EQ(page.sum("windlass_gateway_requests_started_total").value_or(0), kStreams);
  EXPECT_EQ(page.sum("windlass_gateway_requests_finished_total", {{"code", "200"}}).value_or(0), kStreams);

  run.up().signal(SIGINT);
  ASSERT_TRUE(eventually(60, [&] { return run.up().ended().has_value(); })) << run.logs();
  EXPECT_TRUE(run.up().ended_well()) << run.logs();
  EXPECT_TRUE(serves());
}

class LlamaCpp : public testing::Test {
 protected:
  void SetUp() override {
    controller::Launch spec;
    spec.engine = "LlamaCpp";
    if (const auto program = controller::engine_program(spec); !program.ok()) GTEST_SKIP() << program.error().message;
    if (!std::filesystem::exists(gguf())) GTEST_SKIP() << "no model; `windlass model fetch smollm2-135m` gets it";
  }
};

// Given a service on llama.cpp; expects it to scale from 1 to 2 and back to 1 workers under load without a lost stream.
TEST_F(LlamaCpp, GoesFromOneToTwoWorkersAndBackWithoutALostStream) {
  constexpr const char* kEngine = "{type: LlamaCpp, args: [--threads, \"1\", --parallel, \"4\", --ctx-size, \"1024\"]}";
  LocalRun run([&](int workers, const std::string&) { return objects(workers, kEngine); }, 1);
  scale_under_load(run);
}

// Given a llama-server with four slots on the real model; expects attach to recognise it from its own responses.
TEST_F(LlamaCpp, IsAttachedTo) {
  controller::Launch spec;
  spec.engine = "LlamaCpp";
  const int port = windlass::free_port();
  attach_to({controller::engine_program(spec).value(), "--model", gguf(), "--alias", "tiny", "--host", "127.0.0.1", "--port",
             std::to_string(port), "--threads", "1", "--parallel", "4", "--ctx-size", "1024"},
            port, "llama.cpp, model tiny, context 256 tokens, 4 concurrent requests");
}

// Given a vLLM server with a random model; expects attach to recognise it from its own responses.
TEST(Vllm, IsAttachedTo) {
  controller::Launch spec;
  spec.engine = "VLLM";
  const auto program = controller::engine_program(spec);
  if (!program.ok()) GTEST_SKIP() << program.error().message;
  const TempFolder folder;
  const std::string model = (folder.path() / "model").string();
  const auto made = run_program({build_path() + "/windlass", "model", "init", "--layers", "2", "--hidden", "256", model});
  ASSERT_TRUE(made.ok() && *made == 0) << "windlass model init failed";
  const int port = windlass::free_port();
  attach_to({"/usr/bin/env", "VLLM_CPU_KVCACHE_SPACE=1", "HF_HUB_OFFLINE=1", *program, "serve", model, "--served-model-name",
             "tiny", "--host", "127.0.0.1", "--port", std::to_string(port), "--dtype", "float32", "--enforce-eager",
             "--max-model-len", "256", "--max-num-seqs", "8"},
            port, "vLLM, model tiny, context 256 tokens");
}

// Given a service on vLLM with a random model; expects it to scale from 1 to 2 and back to 1 workers under load without a lost
// stream.
TEST(Vllm, GoesFromOneToTwoWorkersAndBackWithoutALostStream) {
  controller::Launch spec;
  spec.engine = "VLLM";
  if (const auto program = controller::engine_program(spec); !program.ok()) GTEST_SKIP() << program.error().message;
  const TempFolder folder;
  const std::string model = (folder.path() / "model").string();
  const auto made = run_program({build_path() + "/windlass", "model", "init", "--layers", "2", "--hidden", "256", model});
  ASSERT_TRUE(made.ok() && *made == 0) << "windlass model init failed";
  const std::string engine =
      "{type: VLLM, args: [--dtype, float32, --enforce-eager, --max-num-seqs, \"8\"], env: [{name: VLLM_CPU_KVCACHE_SPACE, "
      "value: \"1\"}, {name: HF_HUB_OFFLINE, value: \"1\"}]}";
  LocalRun run([&](int workers, const std::string&) { return replaced(objects(workers, engine), gguf(), model); }, 1);
  scale_under_load(run);
}

// Given a service whose llama.cpp rejects an argument; expects only a few starts, and a line on the terminal with the engine's
// own error.
TEST_F(LlamaCpp, GivesUpOnAnEngineThatNeverStartsAndShowsItsError) {
  LocalRun run([&](int workers, const std::string&) { return objects(workers, "{type: LlamaCpp, args: [--no-such-flag]}"); },
               1);
  EXPECT_TRUE(eventually(60, [&] { return count_of(run.logs(), "is not started again") > 0; })) << run.logs();
  EXPECT_TRUE(eventually(60, [&] {
    const auto row = run.row();
    return row && row->trouble.find("error: invalid argument: --no-such-flag") != std::string::npos;
  })) << run.logs();
  EXPECT_THAT(run.up_log(), HasSubstr("error: invalid argument: --no-such-flag"));
}

}  // namespace
}  // namespace windlass::cli
