// Reads the pages of engine_pages.h, and others made in the tests.
#include "metrics/engine_metrics.h"

#include <cmath>
#include <limits>
#include <string>

#include <gtest/gtest.h>

#include "metrics/bundles.h"
#include "tests/unit/metrics/engine_pages.h"

namespace windlass::metrics {
namespace {

using namespace pages;

EngineMetrics read(const std::string& text) {
  const auto page = parse_exposition(text);
  EXPECT_TRUE(page.ok()) << (page.ok() ? "" : page.error().message);
  if (!page.ok()) return {};
  const auto metrics = read_engine_metrics(*page);
  EXPECT_TRUE(metrics.has_value());
  return metrics.value_or(EngineMetrics{});
}

// Given vLLM's old KV name on an idle server; expects 0 to be read as 0, and everything missing from the excerpt to be absent.
TEST(EngineMetrics, VllmOldKvName) {
  const auto got = read(kVllmOldKvName);
  EXPECT_EQ(got.engine, EngineKind::kVllm);
  EXPECT_EQ(got.requests_running, 0);
  EXPECT_EQ(got.requests_waiting, 0);
  EXPECT_EQ(got.kv_share, 0);
  EXPECT_FALSE(got.ttft || got.time_per_token || got.token_time);
  EXPECT_FALSE(got.prompt_tokens || got.generation_tokens || got.requests_finished);
}

// Given vLLM's new KV name; expects it to be read, and load that the excerpt lacks to be absent.
TEST(EngineMetrics, VllmNewKvName) {
  const auto got = read(kVllmNewKvName);
  EXPECT_EQ(got.kv_share, 9.75010481363281e-06);
  EXPECT_FALSE(got.requests_running || got.requests_waiting);
}

// Given a TTFT histogram; expects its sum and count.
TEST(EngineMetrics, VllmTtft) {
  const auto got = read(kVllmTtft);
  ASSERT_TRUE(got.ttft);
  EXPECT_EQ(got.ttft->count, 8060);
  EXPECT_EQ(got.ttft->sum_s, 0.5871782302856445);
}

// Given a page with vLLM's and TGI's names; expects it to be vLLM, and only vLLM's names to be read.
TEST(EngineMetrics, VllmWithTgiNames) {
  const auto got = read(kVllmWithTgiNames);
  EXPECT_EQ(got.engine, EngineKind::kVllm);
  EXPECT_EQ(got.prompt_tokens, 1196);
  EXPECT_EQ(got.generation_tokens, 218152);
  EXPECT_FALSE(got.requests_running || got.requests_waiting);
}

// Given two engines; expects loads, counters and histograms to be summed, KV shares averaged, and new names to win over old
// ones.
TEST(EngineMetrics, VllmTwoEnginesAndBothNames) {
  const auto got = read(kVllmTwoEngines);
  EXPECT_EQ(got.requests_running, 7);
  EXPECT_EQ(got.requests_waiting, 1);
  EXPECT_EQ(got.kv_share, 0.375);
  EXPECT_EQ(got.requests_finished, 7);
  EXPECT_EQ(got.token_time, TokenTime::kGap);
  ASSERT_TRUE(got.time_per_token);
  EXPECT_EQ(got.time_per_token->sum_s, 0.75);
  EXPECT_EQ(got.time_per_token->count, 5);
}

// Given SGLang's page with the old token-time name; expects all of it to be read, and finished requests, which it lacks, to be
// absent.
TEST(EngineMetrics, SglangOldNames) {
  const auto got = read(kSglangOld);
  EXPECT_EQ(got.engine, EngineKind::kSglang);
  EXPECT_EQ(got.requests_running, 162);
  EXPECT_EQ(got.requests_waiting, 2826);
  EXPECT_EQ(got.kv_share, 0.28);
  EXPECT_EQ(got.prompt_tokens, 8128902);
  EXPECT_EQ(got.generation_tokens, 7557572);
  ASSERT_TRUE(got.ttft && got.time_per_token);
  EXPECT_EQ(got.ttft->count, 11008);
  EXPECT_EQ(got.ttft->sum_s, 2351897.9474117756);
  EXPECT_EQ(got.time_per_token->count, 7400757);
  EXPECT_EQ(got.token_time, TokenTime::kGap);
  EXPECT_FALSE(got.requests_finished);
}

// Given recorded rank labels, and then, synthetic, a second tensor rank of the same replica, a second data parallel rank, and
// one priority's part of a total; expects only the data parallel rank to add load.
TEST(EngineMetrics, SglangRanksAndPriorities) {
  EXPECT_EQ(read(kSglangRanks).requests_running, 1);
  EXPECT_EQ(read(kSglangRanks).kv_share, 0);
  const auto got = read(
      "sglang:num_running_reqs{dp_rank=\"0\",pp_rank=\"0\",tp_rank=\"0\",priority=\"\"} 5\n"
      "sglang:num_running_reqs{dp_rank=\"0\",pp_rank=\"0\",tp_rank=\"0\",priority=\"1\"} 3\n"
      "sglang:num_running_reqs{dp_rank=\"0\",pp_rank=\"0\",tp_rank=\"0\",priority=\"2\"} 2\n"
      "sglang:num_running_reqs{dp_rank=\"0\",pp_rank=\"0\",tp_rank=\"1\",priority=\"\"} 5\n"
      "sglang:num_running_reqs{dp_rank=\"1\",pp_rank=\"0\",tp_rank=\"2\",priority=\"\"} 4\n"
      "sglang:token_usage{dp_rank=\"0\",tp_rank=\"0\"} 0.5\n"
      "sglang:token_usage{dp_rank=\"0\",tp_rank=\"1\"} 0.5\n"
      "sglang:token_usage{dp_rank=\"1\",tp_rank=\"2\"} 0.25\n"
      "sglang:inter_token_latency_seconds_sum 3\n"
      "sglang:inter_token_latency_seconds_count 300\n"
      "sglang:time_per_output_token_seconds_sum 8\n"
      "sglang:num_requests_total 217\n");
  EXPECT_EQ(got.requests_running, 9);
  EXPECT_EQ(got.kv_share, 0.375);
  EXPECT_EQ(got.requests_finished, 217);
  ASSERT_TRUE(got.time_per_token);
  EXPECT_EQ(got.time_per_token->sum_s, 3);
}

// Given names without a prefix; expects the labels to identify TensorRT-LLM, and a missing sum to be absent. Without the label
// engine_type the same names identify nothing.
TEST(EngineMetrics, TensorRtLlmWithoutPrefix) {
  const auto got = read(kTensorRtLlmBare);
  EXPECT_EQ(got.engine, EngineKind::kTensorRtLlm);
  ASSERT_TRUE(got.ttft);
  EXPECT_EQ(got.ttft->count, 2);
  EXPECT_FALSE(got.ttft->sum_s);
  EXPECT_FALSE(detect_engine(*parse_exposition("time_to_first_token_seconds_count{model_name=\"m\"} 2\n")));
}

// Given a synthetic page from trtllm-serve's collector; expects every field.
TEST(EngineMetrics, TensorRtLlmServe) {
  const std::string labels = "{engine_type=\"trtllm\",model_name=\"m\"} ";
  const auto got = read(
      "trtllm_num_requests_running" + labels + "3\ntrtllm_num_requests_waiting" + labels + "1\ntrtllm_kv_cache_utilization" +
      labels + "0.42\ntrtllm_time_to_first_token_seconds_sum" + labels + "4\ntrtllm_time_to_first_token_seconds_count" +
      labels + "20\ntrtllm_time_per_output_token_seconds_sum" + labels + "0.5\ntrtllm_time_per_output_token_seconds_count" +
      labels + "19\ntrtllm_prompt_tokens_total" + labels + "900\ntrtllm_generation_tokens_total" + labels +
      "1200\ntrtllm_request_success_total{finished_reason=\"stop\"} 15\n"
      "trtllm_request_success_total{finished_reason=\"length\"} 5\n");
  EXPECT_EQ(got.engine, EngineKind::kTensorRtLlm);
  EXPECT_EQ(got.requests_running, 3);
  EXPECT_EQ(got.requests_waiting, 1);
  EXPECT_EQ(got.kv_share, 0.42);
  ASSERT_TRUE(got.ttft && got.time_per_token);
  EXPECT_EQ(got.ttft->sum_s, 4);
  EXPECT_EQ(got.time_per_token->count, 19);
  EXPECT_EQ(got.token_time, TokenTime::kRequestMean);
  EXPECT_EQ(got.prompt_tokens, 900);
  EXPECT_EQ(got.generation_tokens, 1200);
  EXPECT_EQ(got.requests_finished, 20);
}

// Given Triton's old page; expects KV use as used / max, waiting requests to be absent, and the counter known to stay at 0 not
// to be read. With the later labels (synthetic), expects waiting requests and the fraction to be read directly.
TEST(EngineMetrics, Triton) {
  const auto got = read(kTritonOld);
  EXPECT_EQ(got.engine, EngineKind::kTritonTensorRtLlm);
  EXPECT_EQ(got.requests_running, 1);
  EXPECT_FALSE(got.requests_waiting || got.requests_finished || got.ttft || got.time_per_token);
  EXPECT_EQ(got.kv_share, 1.0 / 6239);
  const auto later =
      read(std::string(kTritonOld) + "nv_trt_llm_request_metrics{model=\"tensorrt_llm\",request_type=\"waiting\"} 7\n" +
           "nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"fraction\",model=\"tensorrt_llm\"} 0.5\n");
  EXPECT_EQ(later.requests_waiting, 7);
  EXPECT_EQ(later.kv_share, 0.5);
}

// Given a synthetic page from TGI's router (no recorded one was found); expects neither TTFT nor KV use, which TGI lacks.
TEST(EngineMetrics, Tgi) {
  const auto got = read(R"(# TYPE tgi_queue_size gauge
tgi_queue_size 2
# TYPE tgi_batch_current_size gauge
tgi_batch_current_size 5
# TYPE tgi_request_count counter
tgi_request_count 12
# TYPE tgi_request_success counter
tgi_request_success 10
# TYPE tgi_request_mean_time_per_token_duration histogram
tgi_request_mean_time_per_token_duration_bucket{le="0.05"} 6
tgi_request_mean_time_per_token_duration_bucket{le="+Inf"} 10
tgi_request_mean_time_per_token_duration_sum 0.75
tgi_request_mean_time_per_token_duration_count 10
tgi_request_input_length_sum 3000
tgi_request_input_length_count 12
tgi_request_generated_tokens_sum 1000
tgi_request_generated_tokens_count 10
)");
  EXPECT_EQ(got.engine, EngineKind::kTgi);
  EXPECT_EQ(got.requests_running, 5);
  EXPECT_EQ(got.requests_waiting, 2);
  EXPECT_EQ(got.requests_finished, 10);
  EXPECT_EQ(got.prompt_tokens, 3000);
  EXPECT_EQ(got.generation_tokens, 1000);
  ASSERT_TRUE(got.time_per_token);
  EXPECT_EQ(got.time_per_token->sum_s, 0.75);
  EXPECT_EQ(got.token_time, TokenTime::kRequestMeanAll);
  EXPECT_FALSE(got.ttft || got.kv_share);
}

// Given llama.cpp's counters; expects token time as seconds over tokens, and the KV share that it no longer reports to be
// absent, not 0. With the gauges of the old and new definitions (synthetic), expects load and KV use.
TEST(EngineMetrics, LlamaCpp) {
  const auto got = read(kLlamaCppNew);
  EXPECT_EQ(got.engine, EngineKind::kLlamaCpp);
  EXPECT_EQ(got.prompt_tokens, 143);
  EXPECT_EQ(got.generation_tokens, 673);
  ASSERT_TRUE(got.time_per_token);
  EXPECT_EQ(got.time_per_token->sum_s, 29.567);
  EXPECT_EQ(got.time_per_token->count, 673);
  EXPECT_EQ(got.token_time, TokenTime::kGenerationSeconds);
  EXPECT_FALSE(got.kv_share || got.ttft || got.requests_finished || got.requests_running || got.requests_waiting);
  const auto old = read(std::string(kLlamaCppNew) +
                        "llamacpp:kv_cache_usage_ratio 0.25\nllamacpp:requests_processing 2\nllamacpp:requests_deferred 1\n");
  EXPECT_EQ(old.kv_share, 0.25);
  EXPECT_EQ(old.requests_running, 2);
  EXPECT_EQ(old.requests_waiting, 1);
}

// Given NaN, infinite and negative values, a share above 1, one broken rank of two, and broken buckets; expects each to be
// absent, and valid values next to them to be read.
TEST(EngineMetrics, UnusableValuesAreAbsent) {
  const auto got = read(
      "vllm:num_requests_running{engine=\"0\"} 2\nvllm:num_requests_running{engine=\"1\"} NaN\n"
      "vllm:num_requests_waiting -1\nvllm:kv_cache_usage_perc 37.5\nvllm:prompt_tokens_total +Inf\n"
      "vllm:generation_tokens_total 6\n"
      "vllm:time_to_first_token_seconds_bucket{le=\"1\"} 3\nvllm:time_to_first_token_seconds_sum 2\n");
  EXPECT_FALSE(got.requests_running || got.requests_waiting || got.kv_share || got.prompt_tokens);
  EXPECT_EQ(got.generation_tokens, 6);
  ASSERT_TRUE(got.ttft);
  EXPECT_EQ(got.ttft->sum_s, 2);
  EXPECT_FALSE(got.ttft->count);
}

// Given the page of our own worker's metrics with two requests running; expects all of it to be read, as for any engine.
TEST(EngineMetrics, OurOwnWorker) {
  Registry registry;
  WorkerMetrics worker(registry, "tiny");
  worker.requests_running.set(2);
  worker.requests_waiting.set(1);
  worker.kv_cache_usage_ratio.set(0.25);
  worker.prompt_tokens.add(30);
  worker.generation_tokens.add(7);
  worker.time_to_first_token.observe(0.5);
  worker.time_per_output_token.observe(0.04);
  worker.requests_finished("stop").add(3);
  const auto got = read(registry.exposition());
  EXPECT_EQ(got.engine, EngineKind::kWindlass);
  EXPECT_EQ(got.requests_running, 2);
  EXPECT_EQ(got.requests_waiting, 1);
  EXPECT_EQ(got.kv_share, 0.25);
  EXPECT_EQ(got.prompt_tokens, 30);
  EXPECT_EQ(got.generation_tokens, 7);
  EXPECT_EQ(got.requests_finished, 3);
  ASSERT_TRUE(got.ttft && got.time_per_token);
  EXPECT_EQ(got.ttft->sum_s, 0.5);
  EXPECT_EQ(got.time_per_token->sum_s, 0.04);
  EXPECT_EQ(got.token_time, TokenTime::kRequestMean);
  EXPECT_GT(got.start_time_s.value_or(0), 0);
}

// Given iterations that our worker measured; expects both kinds, and impossible labels and values to be skipped.
TEST(EngineMetrics, OurOwnWorkersMeasuredIterations) {
  Registry registry;
  const WorkerMetrics worker(registry, "tiny");
  EXPECT_TRUE(read(registry.exposition()).measured.empty());
  worker.measured_prefill.with({{"model", "tiny"}, {"tokens", "256"}}).set(0.25);
  worker.measured_decode.with({{"model", "tiny"}, {"batch", "8"}, {"context", "260"}}).set(0.125);
  EXPECT_EQ(read(registry.exposition()).measured, (std::vector<MeasuredIteration>{{256, 0, 0, 0.25}, {0, 8, 260, 0.125}}));

  for (const char* tokens : {"", "0", "-4", "1.5", "32x", " 32", "99999999", "99999999999999999999"})
    worker.measured_prefill.with({{"model", "tiny"}, {"tokens", tokens}}).set(0.5);
  int tokens = 1;
  for (const double seconds : {0.0, -1.0, 3601.0, std::nan(""), std::numeric_limits<double>::infinity()})
    worker.measured_prefill.with({{"model", "tiny"}, {"tokens", std::to_string(tokens++)}}).set(seconds);
  worker.measured_prefill.with({{"model", "tiny"}}).set(0.5);
  worker.measured_decode.with({{"model", "tiny"}, {"batch", "0"}, {"context", "260"}}).set(0.5);
  worker.measured_decode.with({{"model", "tiny"}, {"batch", "4"}}).set(0.5);
  EXPECT_EQ(read(registry.exposition()).measured.size(), 2U);
}

// Given a page with a hundred measured iterations; expects sixteen of them and the rest of the page.
TEST(EngineMetrics, ReadsAFewMeasuredIterations) {
  Registry registry;
  const WorkerMetrics worker(registry, "tiny");
  worker.requests_running.set(3);
  for (int tokens = 1; tokens <= 100; ++tokens)
    worker.measured_prefill.with({{"model", "tiny"}, {"tokens", std::to_string(tokens)}}).set(0.5);
  const auto got = read(registry.exposition());
  EXPECT_EQ(got.measured.size(), kMaxMeasuredIterations);
  EXPECT_EQ(got.requests_running, 3);
}

// Given pages of no engine (our gateway's, Triton without TensorRT-LLM, an empty one); expects nothing to be detected or read.
TEST(EngineMetrics, OtherPagesAreNoEngine) {
  for (const char* text : {"", "windlass_gateway_queue_length 1\n", "nv_inference_request_success{model=\"m\"} 4\n"}) {
    const auto page = parse_exposition(text);
    ASSERT_TRUE(page.ok());
    EXPECT_FALSE(detect_engine(*page)) << text;
    EXPECT_FALSE(read_engine_metrics(*page)) << text;
  }
  EXPECT_EQ(engine_name(EngineKind::kSglang), "SGLang");
}

}  // namespace
}  // namespace windlass::metrics
