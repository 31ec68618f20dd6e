// Pages of engines that are not ours. Each says where it comes from:
//   recorded      lines that somebody printed from a running server into a public file or thread, copied as they stand there;
//                 where only a part was to be seen, or buckets are left out, it says so
//   put together  written here from the engine's metric definitions (the table in engine_metrics.h); no server printed it
#include "metrics/engine_metrics.h"

#include <string>

#include <gtest/gtest.h>

namespace windlass::metrics {
namespace {

EngineMetrics read(const std::string& text) {
  const auto page = parse_exposition(text);
  EXPECT_TRUE(page.ok()) << (page.ok() ? "" : page.error().message);
  if (!page.ok()) return {};
  const auto metrics = read_engine_metrics(*page);
  EXPECT_TRUE(metrics.has_value());
  return metrics.value_or(EngineMetrics{});
}

// Recorded: vLLM V1, vllm-project/production-stack issue 318 (March 2025), part of the page.
const char* const kVllmOldKvName = R"(# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{model_name="Qwen/Qwen2.5-Coder-32B-Instruct"} 0.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{model_name="Qwen/Qwen2.5-Coder-32B-Instruct"} 0.0
# HELP vllm:gpu_cache_usage_perc GPU KV-cache usage. 1 means 100 percent usage.
# TYPE vllm:gpu_cache_usage_perc gauge
vllm:gpu_cache_usage_perc{model_name="Qwen/Qwen2.5-Coder-32B-Instruct"} 0.0
)";

// Given vLLM's old KV name on an idle server; 0 is read as 0, and what is not in the excerpt is absent.
TEST(EngineMetrics, VllmOldKvName) {
  const auto got = read(kVllmOldKvName);
  EXPECT_EQ(got.engine, Engine::kVllm);
  EXPECT_EQ(got.requests_running, 0);
  EXPECT_EQ(got.requests_waiting, 0);
  EXPECT_EQ(got.kv_share, 0);
  EXPECT_FALSE(got.ttft || got.time_per_token || got.token_time);
  EXPECT_FALSE(got.prompt_tokens || got.generation_tokens || got.requests_finished);
}

// Recorded: vLLM 0.10.0, vllm-project/production-stack issue 617, part of the page.
const char* const kVllmNewKvName = R"(# HELP vllm:kv_cache_usage_perc KV-cache usage. 1 means 100 percent usage.
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="zai-org/GLM-4.5"} 9.75010481363281e-06
# HELP vllm:prefix_cache_queries_total Prefix cache queries, in terms of number of queried tokens.
# TYPE vllm:prefix_cache_queries_total counter
vllm:prefix_cache_queries_total{engine="0",model_name="zai-org/GLM-4.5"} 32.0
)";

// Given vLLM's new KV name; it is read, and the load that the excerpt does not show is absent.
TEST(EngineMetrics, VllmNewKvName) {
  const auto got = read(kVllmNewKvName);
  EXPECT_EQ(got.kv_share, 9.75010481363281e-06);
  EXPECT_FALSE(got.requests_running || got.requests_waiting);
}

// Recorded: vllm-project/vllm issue 8115 (2024, V0), the later buckets of one histogram.
const char* const kVllmTtft =
    R"(vllm:time_to_first_token_seconds_bucket{le="0.1",model_name="meta-llama/Meta-Llama-3-70B-Instruct"} 8060.0
vllm:time_to_first_token_seconds_bucket{le="10.0",model_name="meta-llama/Meta-Llama-3-70B-Instruct"} 8060.0
vllm:time_to_first_token_seconds_bucket{le="+Inf",model_name="meta-llama/Meta-Llama-3-70B-Instruct"} 8060.0
vllm:time_to_first_token_seconds_count{model_name="meta-llama/Meta-Llama-3-70B-Instruct"} 8060.0
vllm:time_to_first_token_seconds_sum{model_name="meta-llama/Meta-Llama-3-70B-Instruct"} 0.5871782302856445
)";

// Given a TTFT histogram; its buckets, sum and count are read.
TEST(EngineMetrics, VllmTtft) {
  const auto got = read(kVllmTtft);
  ASSERT_TRUE(got.ttft && got.ttft->histogram);
  EXPECT_EQ(got.ttft->count, 8060);
  EXPECT_EQ(got.ttft->sum_s, 0.5871782302856445);
  EXPECT_EQ(got.ttft->histogram->count(), 8060);
}

// Recorded: vLLM with IBM's tgi_ adapter, IBM/vllm pull request 18 (April 2024), parts of one page.
const char* const kVllmWithTgiNames = R"(# TYPE tgi_queue_size gauge
tgi_queue_size 0.0
# HELP tgi_batch_current_size Current batch size
# TYPE tgi_batch_current_size gauge
tgi_batch_current_size 0.0
# TYPE vllm:prompt_tokens_total counter
vllm:prompt_tokens_total{model_name="bigscience/bloom-560m"} 1196.0
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{model_name="bigscience/bloom-560m"} 218152.0
)";

// Given a page with vLLM's and TGI's names; it is vLLM, and only vLLM's names are read.
TEST(EngineMetrics, VllmThatAlsoSpeaksTgi) {
  const auto got = read(kVllmWithTgiNames);
  EXPECT_EQ(got.engine, Engine::kVllm);
  EXPECT_EQ(got.prompt_tokens, 1196);
  EXPECT_EQ(got.generation_tokens, 218152);
  EXPECT_FALSE(got.requests_running || got.requests_waiting);
}

// Put together: vLLM 0.10 with two data parallel engines, when both names of KV use and of the token gap are on the page.
const char* const kVllmTwoEngines = R"(vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 4.0
vllm:num_requests_waiting{engine="0",model_name="m"} 1.0
vllm:num_requests_waiting{engine="1",model_name="m"} 0.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="m",reason="capacity"} 1.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.5
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.25
vllm:gpu_cache_usage_perc{engine="0",model_name="m"} 0.9
vllm:gpu_cache_usage_perc{engine="1",model_name="m"} 0.9
vllm:inter_token_latency_seconds_bucket{engine="0",le="0.05",model_name="m"} 3.0
vllm:inter_token_latency_seconds_bucket{engine="0",le="+Inf",model_name="m"} 4.0
vllm:inter_token_latency_seconds_sum{engine="0",model_name="m"} 0.25
vllm:inter_token_latency_seconds_count{engine="0",model_name="m"} 4.0
vllm:inter_token_latency_seconds_bucket{engine="1",le="0.05",model_name="m"} 1.0
vllm:inter_token_latency_seconds_bucket{engine="1",le="+Inf",model_name="m"} 1.0
vllm:inter_token_latency_seconds_sum{engine="1",model_name="m"} 0.5
vllm:inter_token_latency_seconds_count{engine="1",model_name="m"} 1.0
vllm:time_per_output_token_seconds_sum{engine="0",model_name="m"} 9.0
vllm:time_per_output_token_seconds_count{engine="0",model_name="m"} 9.0
vllm:request_success_total{engine="0",finished_reason="stop",model_name="m"} 5.0
vllm:request_success_total{engine="1",finished_reason="length",model_name="m"} 2.0
)";

// Given two engines; loads, counters and histograms add up, KV shares average, and new names win over old ones.
TEST(EngineMetrics, VllmTwoEnginesAndBothNames) {
  const auto got = read(kVllmTwoEngines);
  EXPECT_EQ(got.requests_running, 7);
  EXPECT_EQ(got.requests_waiting, 1);
  EXPECT_EQ(got.kv_share, 0.375);
  EXPECT_EQ(got.requests_finished, 7);
  EXPECT_EQ(got.token_time, TokenTime::kGap);
  ASSERT_TRUE(got.time_per_token && got.time_per_token->histogram);
  EXPECT_EQ(got.time_per_token->sum_s, 0.75);
  EXPECT_EQ(got.time_per_token->count, 5);
  EXPECT_EQ(got.time_per_token->histogram->counts, (std::vector<double>{4, 5}));
}

// Recorded: sgl-project/sglang docs/references/production_metrics.md @00b08c49 (Llama 3.1 8B under load); buckets left out.
const char* const kSglangOld = R"(sglang:prompt_tokens_total{model_name="meta-llama/Llama-3.1-8B-Instruct"} 8.128902e+06
sglang:generation_tokens_total{model_name="meta-llama/Llama-3.1-8B-Instruct"} 7.557572e+06
sglang:token_usage{model_name="meta-llama/Llama-3.1-8B-Instruct"} 0.28
sglang:cache_hit_rate{model_name="meta-llama/Llama-3.1-8B-Instruct"} 0.007507552643049313
sglang:time_to_first_token_seconds_sum{model_name="meta-llama/Llama-3.1-8B-Instruct"} 2.3518979474117756e+06
sglang:time_to_first_token_seconds_bucket{le="0.001",model_name="meta-llama/Llama-3.1-8B-Instruct"} 0.0
sglang:time_to_first_token_seconds_bucket{le="5.0",model_name="meta-llama/Llama-3.1-8B-Instruct"} 314.0
sglang:time_to_first_token_seconds_bucket{le="30.0",model_name="meta-llama/Llama-3.1-8B-Instruct"} 2513.0
sglang:time_to_first_token_seconds_bucket{le="+Inf",model_name="meta-llama/Llama-3.1-8B-Instruct"} 11008.0
sglang:time_to_first_token_seconds_count{model_name="meta-llama/Llama-3.1-8B-Instruct"} 11008.0
sglang:time_per_output_token_seconds_sum{model_name="meta-llama/Llama-3.1-8B-Instruct"} 866964.5791549598
sglang:time_per_output_token_seconds_bucket{le="0.005",model_name="meta-llama/Llama-3.1-8B-Instruct"} 1.0
sglang:time_per_output_token_seconds_bucket{le="0.1",model_name="meta-llama/Llama-3.1-8B-Instruct"} 4.950195e+06
sglang:time_per_output_token_seconds_bucket{le="+Inf",model_name="meta-llama/Llama-3.1-8B-Instruct"} 7.400757e+06
sglang:time_per_output_token_seconds_count{model_name="meta-llama/Llama-3.1-8B-Instruct"} 7.400757e+06
sglang:num_running_reqs{model_name="meta-llama/Llama-3.1-8B-Instruct"} 162.0
sglang:num_used_tokens{model_name="meta-llama/Llama-3.1-8B-Instruct"} 123859.0
sglang:num_queue_reqs{model_name="meta-llama/Llama-3.1-8B-Instruct"} 2826.0
)";

// Given SGLang's page with the old token-time name; everything on it is read, and finished requests, not on it, are absent.
TEST(EngineMetrics, SglangOldNames) {
  const auto got = read(kSglangOld);
  EXPECT_EQ(got.engine, Engine::kSglang);
  EXPECT_EQ(got.requests_running, 162);
  EXPECT_EQ(got.requests_waiting, 2826);
  EXPECT_EQ(got.kv_share, 0.28);
  EXPECT_EQ(got.prompt_tokens, 8128902);
  EXPECT_EQ(got.generation_tokens, 7557572);
  ASSERT_TRUE(got.ttft && got.ttft->histogram && got.time_per_token && got.time_per_token->histogram);
  EXPECT_EQ(got.ttft->histogram->count(), 11008);
  EXPECT_EQ(got.ttft->sum_s, 2351897.9474117756);
  EXPECT_EQ(got.time_per_token->count, 7400757);
  EXPECT_EQ(got.token_time, TokenTime::kGap);
  EXPECT_FALSE(got.requests_finished);
}

// Recorded: SGLang 0.5.1, sgl-project/sglang issue 13485, part of the page.
const char* const kSglangRanks = R"(# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{engine_type="unified",model_name="Qwen-32B",pp_rank="0",tp_rank="0"} 1.0
sglang:num_used_tokens{engine_type="unified",model_name="Qwen-32B",pp_rank="0",tp_rank="0"} 1.0
sglang:token_usage{engine_type="unified",model_name="Qwen-32B",pp_rank="0",tp_rank="0"} 0.0
)";

// Given labels of ranks as a server wrote them; then, put together, a second tensor rank of the same replica, a second data
// parallel rank, and one priority's part of a total: only the data parallel rank adds load.
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
  EXPECT_FALSE(got.time_per_token->histogram);
}

// Recorded: trtllm-serve's first exposition, NVIDIA/TensorRT-LLM pull request 5785 (July 2025), the later buckets of one
// histogram.
const char* const kTensorRtLlmBare =
    R"(time_to_first_token_seconds_bucket{engine_type="undefined",le="2.5",model_name="undefined"} 2.0
time_to_first_token_seconds_bucket{engine_type="undefined",le="2560.0",model_name="undefined"} 2.0
time_to_first_token_seconds_bucket{engine_type="undefined",le="+Inf",model_name="undefined"} 2.0
time_to_first_token_seconds_count{engine_type="undefined",model_name="undefined"} 2.0
)";

// Given names without a prefix; the labels tell TensorRT-LLM, and a sum that is not to be seen is absent. Without the label
// engine_type the same names prove nothing.
TEST(EngineMetrics, TensorRtLlmWithoutPrefix) {
  const auto got = read(kTensorRtLlmBare);
  EXPECT_EQ(got.engine, Engine::kTensorRtLlm);
  ASSERT_TRUE(got.ttft && got.ttft->histogram);
  EXPECT_EQ(got.ttft->count, 2);
  EXPECT_FALSE(got.ttft->sum_s);
  EXPECT_FALSE(detect_engine(*parse_exposition("time_to_first_token_seconds_count{model_name=\"m\"} 2\n")));
}

// Given a page put together from trtllm-serve's collector; every field is read.
TEST(EngineMetrics, TensorRtLlmServe) {
  const std::string labels = "{engine_type=\"trtllm\",model_name=\"m\"} ";
  const auto got = read(
      "trtllm_num_requests_running" + labels + "3\ntrtllm_num_requests_waiting" + labels + "1\ntrtllm_kv_cache_utilization" +
      labels + "0.42\ntrtllm_time_to_first_token_seconds_sum" + labels + "4\ntrtllm_time_to_first_token_seconds_count" +
      labels + "20\ntrtllm_time_per_output_token_seconds_sum" + labels + "0.5\ntrtllm_time_per_output_token_seconds_count" +
      labels + "19\ntrtllm_prompt_tokens_total" + labels + "900\ntrtllm_generation_tokens_total" + labels +
      "1200\ntrtllm_request_success_total{finished_reason=\"stop\"} 15\n"
      "trtllm_request_success_total{finished_reason=\"length\"} 5\n");
  EXPECT_EQ(got.engine, Engine::kTensorRtLlm);
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

// Recorded: Triton 23.11, triton-inference-server/tensorrtllm_backend README @00b49475, part of the page.
const char* const kTritonOld = R"(# HELP nv_trt_llm_request_metrics TRT LLM request metrics
# TYPE nv_trt_llm_request_metrics gauge
nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="context",version="1"} 1
nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="scheduled",version="1"} 1
nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="max",version="1"} 512
nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="active",version="1"} 0
# TYPE nv_trt_llm_kv_cache_block_metrics gauge
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="tokens_per",model="tensorrt_llm",version="1"} 64
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="used",model="tensorrt_llm",version="1"} 1
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="free",model="tensorrt_llm",version="1"} 6239
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="max",model="tensorrt_llm",version="1"} 6239
# TYPE nv_inference_request_success counter
nv_inference_request_success{model="tensorrt_llm",version="1"} 0
)";

// Given Triton's old page; KV use is used / max, waiting requests are absent, and the counter known to stay at 0 is not read.
// With the later labels, put together, waiting requests and the fraction are read as they stand.
TEST(EngineMetrics, Triton) {
  const auto got = read(kTritonOld);
  EXPECT_EQ(got.engine, Engine::kTritonTensorRtLlm);
  EXPECT_EQ(got.requests_running, 1);
  EXPECT_FALSE(got.requests_waiting || got.requests_finished || got.ttft || got.time_per_token);
  EXPECT_EQ(got.kv_share, 1.0 / 6239);
  const auto later =
      read(std::string(kTritonOld) + "nv_trt_llm_request_metrics{model=\"tensorrt_llm\",request_type=\"waiting\"} 7\n" +
           "nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"fraction\",model=\"tensorrt_llm\"} 0.5\n");
  EXPECT_EQ(later.requests_waiting, 7);
  EXPECT_EQ(later.kv_share, 0.5);
}

// Given a page put together from TGI's router (no recorded one was found); TGI has neither TTFT nor KV use.
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
  EXPECT_EQ(got.engine, Engine::kTgi);
  EXPECT_EQ(got.requests_running, 5);
  EXPECT_EQ(got.requests_waiting, 2);
  EXPECT_EQ(got.requests_finished, 10);
  EXPECT_EQ(got.prompt_tokens, 3000);
  EXPECT_EQ(got.generation_tokens, 1000);
  ASSERT_TRUE(got.time_per_token && got.time_per_token->histogram);
  EXPECT_EQ(got.time_per_token->sum_s, 0.75);
  EXPECT_EQ(got.token_time, TokenTime::kRequestMeanAll);
  EXPECT_FALSE(got.ttft || got.kv_share);
}

// Recorded: llama-server, comment of June 2025 in ggml-org/llama.cpp pull request 13196 (after the KV gauges were removed), the
// first part of the page.
const char* const kLlamaCppNew = R"(# HELP llamacpp:prompt_tokens_total Number of prompt tokens processed.
# TYPE llamacpp:prompt_tokens_total counter
llamacpp:prompt_tokens_total 143
# HELP llamacpp:prompt_seconds_total Prompt process time
# TYPE llamacpp:prompt_seconds_total counter
llamacpp:prompt_seconds_total 8.168
# HELP llamacpp:tokens_predicted_total Number of generation tokens processed.
# TYPE llamacpp:tokens_predicted_total counter
llamacpp:tokens_predicted_total 673
# HELP llamacpp:tokens_predicted_seconds_total Predict process time
# TYPE llamacpp:tokens_predicted_seconds_total counter
llamacpp:tokens_predicted_seconds_total 29.567
)";

// Given llama.cpp's counters; token time is seconds over tokens, and the KV share that it no longer tells is absent, not 0.
// With the gauges of the definitions, old and new, put together, load and KV use are read.
TEST(EngineMetrics, LlamaCpp) {
  const auto got = read(kLlamaCppNew);
  EXPECT_EQ(got.engine, Engine::kLlamaCpp);
  EXPECT_EQ(got.prompt_tokens, 143);
  EXPECT_EQ(got.generation_tokens, 673);
  ASSERT_TRUE(got.time_per_token);
  EXPECT_EQ(got.time_per_token->sum_s, 29.567);
  EXPECT_EQ(got.time_per_token->count, 673);
  EXPECT_FALSE(got.time_per_token->histogram);
  EXPECT_EQ(got.token_time, TokenTime::kGenerationSeconds);
  EXPECT_FALSE(got.kv_share || got.ttft || got.requests_finished || got.requests_running || got.requests_waiting);
  const auto old = read(std::string(kLlamaCppNew) +
                        "llamacpp:kv_cache_usage_ratio 0.25\nllamacpp:requests_processing 2\nllamacpp:requests_deferred 1\n");
  EXPECT_EQ(old.kv_share, 0.25);
  EXPECT_EQ(old.requests_running, 2);
  EXPECT_EQ(old.requests_waiting, 1);
}

// Given NaN, infinite and negative values, a share above 1, one sick rank of two, and broken buckets; each is absent, and what
// is sound beside them is read.
TEST(EngineMetrics, UnusableValuesAreAbsent) {
  const auto got = read(
      "vllm:num_requests_running{engine=\"0\"} 2\nvllm:num_requests_running{engine=\"1\"} NaN\n"
      "vllm:num_requests_waiting -1\nvllm:kv_cache_usage_perc 37.5\nvllm:prompt_tokens_total +Inf\n"
      "vllm:generation_tokens_total 6\n"
      "vllm:time_to_first_token_seconds_bucket{le=\"1\"} 3\nvllm:time_to_first_token_seconds_count 4\n"
      "vllm:time_to_first_token_seconds_sum 2\n");
  EXPECT_FALSE(got.requests_running || got.requests_waiting || got.kv_share || got.prompt_tokens);
  EXPECT_EQ(got.generation_tokens, 6);
  ASSERT_TRUE(got.ttft);
  EXPECT_FALSE(got.ttft->histogram);
  EXPECT_EQ(got.ttft->sum_s, 2);
  EXPECT_EQ(got.ttft->count, 4);
}

// Given pages of no engine (ours, Triton without TensorRT-LLM, none at all); nothing is detected or read.
TEST(EngineMetrics, OtherPagesAreNoEngine) {
  for (const char* text : {"", "windlass_worker_requests_running 1\n", "nv_inference_request_success{model=\"m\"} 4\n"}) {
    const auto page = parse_exposition(text);
    ASSERT_TRUE(page.ok());
    EXPECT_FALSE(detect_engine(*page)) << text;
    EXPECT_FALSE(read_engine_metrics(*page)) << text;
  }
  EXPECT_EQ(engine_name(Engine::kSglang), "SGLang");
}

}  // namespace
}  // namespace windlass::metrics
