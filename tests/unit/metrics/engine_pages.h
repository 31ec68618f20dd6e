// Metrics pages of other engines. Each says where it comes from:
//   recorded      lines from a running server that somebody published in a file or thread, copied as they are; parts and
//                 missing buckets are noted
//   put together  written here from the engine's metric definitions (the table in engine_metrics.h); no server printed it
#pragma once

namespace windlass::metrics::pages {

// Recorded: vLLM V1, vllm-project/production-stack issue 318 (March 2025), part of the page.
inline constexpr const char* kVllmOldKvName =
    R"(# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{model_name="Qwen/Qwen2.5-Coder-32B-Instruct"} 0.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{model_name="Qwen/Qwen2.5-Coder-32B-Instruct"} 0.0
# HELP vllm:gpu_cache_usage_perc GPU KV-cache usage. 1 means 100 percent usage.
# TYPE vllm:gpu_cache_usage_perc gauge
vllm:gpu_cache_usage_perc{model_name="Qwen/Qwen2.5-Coder-32B-Instruct"} 0.0
)";

// Recorded: vLLM 0.10.0, vllm-project/production-stack issue 617, part of the page.
inline constexpr const char* kVllmNewKvName =
    R"(# HELP vllm:kv_cache_usage_perc KV-cache usage. 1 means 100 percent usage.
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="zai-org/GLM-4.5"} 9.75010481363281e-06
# HELP vllm:prefix_cache_queries_total Prefix cache queries, in terms of number of queried tokens.
# TYPE vllm:prefix_cache_queries_total counter
vllm:prefix_cache_queries_total{engine="0",model_name="zai-org/GLM-4.5"} 32.0
)";

// Recorded: vllm-project/vllm issue 8115 (2024, V0), the later buckets of one histogram.
inline constexpr const char* kVllmTtft =
    R"(vllm:time_to_first_token_seconds_bucket{le="0.1",model_name="meta-llama/Meta-Llama-3-70B-Instruct"} 8060.0
vllm:time_to_first_token_seconds_bucket{le="10.0",model_name="meta-llama/Meta-Llama-3-70B-Instruct"} 8060.0
vllm:time_to_first_token_seconds_bucket{le="+Inf",model_name="meta-llama/Meta-Llama-3-70B-Instruct"} 8060.0
vllm:time_to_first_token_seconds_count{model_name="meta-llama/Meta-Llama-3-70B-Instruct"} 8060.0
vllm:time_to_first_token_seconds_sum{model_name="meta-llama/Meta-Llama-3-70B-Instruct"} 0.5871782302856445
)";

// Recorded: vLLM with IBM's tgi_ adapter, IBM/vllm pull request 18 (April 2024), parts of one page.
inline constexpr const char* kVllmWithTgiNames =
    R"(# TYPE tgi_queue_size gauge
tgi_queue_size 0.0
# HELP tgi_batch_current_size Current batch size
# TYPE tgi_batch_current_size gauge
tgi_batch_current_size 0.0
# TYPE vllm:prompt_tokens_total counter
vllm:prompt_tokens_total{model_name="bigscience/bloom-560m"} 1196.0
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{model_name="bigscience/bloom-560m"} 218152.0
)";

// Put together: vLLM 0.10 with two data parallel engines, when both names of KV use and of the token gap are on the page.
inline constexpr const char* kVllmTwoEngines =
    R"(vllm:num_requests_running{engine="0",model_name="m"} 3.0
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

// Recorded: sgl-project/sglang docs/references/production_metrics.md @00b08c49 (Llama 3.1 8B under load); buckets left out.
inline constexpr const char* kSglangOld =
    R"(sglang:prompt_tokens_total{model_name="meta-llama/Llama-3.1-8B-Instruct"} 8.128902e+06
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

// Recorded: SGLang 0.5.1, sgl-project/sglang issue 13485, part of the page.
inline constexpr const char* kSglangRanks =
    R"(# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{engine_type="unified",model_name="Qwen-32B",pp_rank="0",tp_rank="0"} 1.0
sglang:num_used_tokens{engine_type="unified",model_name="Qwen-32B",pp_rank="0",tp_rank="0"} 1.0
sglang:token_usage{engine_type="unified",model_name="Qwen-32B",pp_rank="0",tp_rank="0"} 0.0
)";

// Recorded: trtllm-serve's first exposition, NVIDIA/TensorRT-LLM pull request 5785 (July 2025), the later buckets of one
// histogram.
inline constexpr const char* kTensorRtLlmBare =
    R"(time_to_first_token_seconds_bucket{engine_type="undefined",le="2.5",model_name="undefined"} 2.0
time_to_first_token_seconds_bucket{engine_type="undefined",le="2560.0",model_name="undefined"} 2.0
time_to_first_token_seconds_bucket{engine_type="undefined",le="+Inf",model_name="undefined"} 2.0
time_to_first_token_seconds_count{engine_type="undefined",model_name="undefined"} 2.0
)";

// Recorded: Triton 23.11, triton-inference-server/tensorrtllm_backend README @00b49475, part of the page.
inline constexpr const char* kTritonOld =
    R"(# HELP nv_trt_llm_request_metrics TRT LLM request metrics
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

// Recorded: llama-server, comment of June 2025 in ggml-org/llama.cpp pull request 13196 (after the KV gauges were removed), the
// first part of the page.
inline constexpr const char* kLlamaCppNew =
    R"(# HELP llamacpp:prompt_tokens_total Number of prompt tokens processed.
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

}  // namespace windlass::metrics::pages
