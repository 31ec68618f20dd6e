// Reads the load of a serving engine, ours or another, from its parsed /metrics page, whatever that engine calls things. Pure;
// any thread. Which engine it is shows in the metric names; what a page does not show, or shows as NaN, infinite or negative,
// is absent here and never 0: absent load is unknown, 0 is idle.
//
// Our own worker's names are those of WorkerMetrics (metrics/bundles.h).
// Where the others' names come from (file and commit where each was read; old names stand after "/"):
//   vLLM          vllm/v1/metrics/loggers.py @005a810b (between 0.9 and 0.10; later versions of it for inter_token_latency),
//     vllm/engine/metrics.py @00c33e81 (V0)
//     vllm:num_requests_running, _waiting; vllm:kv_cache_usage_perc / gpu_cache_usage_perc (renamed in 0.9);
//     vllm:time_to_first_token_seconds; vllm:inter_token_latency_seconds / time_per_output_token_seconds (deprecated for it);
//     vllm:request_queue_time_seconds, request_prefill_time_seconds; vllm:prompt_tokens_total, generation_tokens_total,
//     request_success_total{finished_reason} (aborts included)
//   SGLang        python/sglang/srt/metrics/collector.py @93d04878, docs/references/production_metrics.md @00b08c49
//     sglang:num_running_reqs, num_queue_reqs, token_usage, time_to_first_token_seconds,
//     inter_token_latency_seconds / time_per_output_token_seconds, prompt_tokens_total, generation_tokens_total,
//     num_requests_total (label priority: priority="" is the total of the others; srt/observability/metrics_collector.py of
//     2026)
//   TensorRT-LLM  tensorrt_llm/metrics/collector.py @050f80de (trtllm-serve; page /prometheus/metrics, since /metrics is JSON)
//     trtllm_num_requests_running, _waiting, trtllm_kv_cache_utilization, trtllm_time_to_first_token_seconds,
//     trtllm_time_per_output_token_seconds, trtllm_prompt_tokens_total, trtllm_generation_tokens_total,
//     trtllm_request_success_total / the latencies and request_success_total without a prefix and with a label engine_type
//     (pull request 5785), / the same behind "trtllm:" (NVIDIA Dynamo 0.7's page; its documentation)
//   Triton with TensorRT-LLM  tensorrtllm_backend custom_metrics_reporter.cc @27e4bfbd and README.md @00b49475; later labels
//   from
//     the same file under TensorRT-LLM's triton_backend/ @0d5352f5
//     nv_trt_llm_request_metrics{request_type=scheduled|waiting},
//     nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=fraction} / without waiting, and used and max for fraction. Not
//     read: nv_inference_request_success, which stays 0 in some releases, and the nv_llm_*_token_len histograms, whose single
//     observation is not documented. No latencies
//   TGI           router/src/server.rs @003eaec0, docs/source/reference/metrics.md @53fdbe61
//     tgi_batch_current_size, tgi_queue_size, tgi_request_mean_time_per_token_duration, tgi_request_success, and the sums of
//     the histograms tgi_request_input_length and tgi_request_generated_tokens. Neither KV use nor TTFT
//   llama.cpp     tools/server of 2026 and its pull requests 11915, 13196, 13660 and 22879
//     llamacpp:requests_processing, requests_deferred, prompt_tokens_total, tokens_predicted_total,
//     prompt_seconds_total, tokens_predicted_seconds_total / kv_cache_usage_ratio (removed by 13660, so absent on newer
//     builds). Neither TTFT nor finished requests
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

#include "metrics/exposition_parser.h"

namespace windlass::metrics {

enum class EngineKind { kWindlass, kVllm, kSglang, kTensorRtLlm, kTritonTensorRtLlm, kTgi, kLlamaCpp };

[[nodiscard]] std::string_view engine_name(EngineKind engine);  // as its project writes it: "vLLM"

// The engine whose names stand on the page; nullopt when there are none. An engine that also speaks another's names (vLLM with
// IBM's tgi_ adapter) is itself: TGI is asked last. A router that repeats its engines' names is taken for the engine: scrape
// engines.
[[nodiscard]] std::optional<EngineKind> detect_engine(const Exposition& page);

// What has been observed since the engine started. A page may show any of the three without the others.
struct EngineLatency {
  std::optional<double> sum_s;
  std::optional<double> count;
  std::optional<HistogramSnapshot> histogram;  // its own sum is 0 where sum_s is absent
};

// What one observation of time_per_token is.
enum class TokenTime {
  kGap,               // the time between two tokens of one request (per generated token)
  kRequestMean,       // a request's mean over its tokens after the first
  kRequestMeanAll,    // a request's inference time, prefill included, over all its tokens (TGI)
  kGenerationSeconds  // no histogram: seconds of generation over tokens generated; the first token of a request costs none
};

// One iteration of an idle engine, as the engine measured it before it served: of one prompt, or of one token for each sequence
// of a batch.
struct MeasuredIteration {
  int prompt_tokens = 0;   // 0: decode
  int batch = 0;           // sequences; 0: prefill
  int context_tokens = 0;  // of each sequence, on average; 0: prefill
  double seconds = 0;

  bool operator==(const MeasuredIteration&) const = default;
};
inline constexpr std::size_t kMaxMeasuredIterations = 16;

// Gauges of several label sets (data parallel ranks, models) are added up, KV shares averaged; series that differ only in
// tensor, pipeline or expert rank or in priority describe the same requests, so the largest of them counts once. Counters and
// histograms are added up over all label sets. Where a page has the old and the new name of a thing, the new one counts.
struct EngineMetrics {
  EngineKind engine = EngineKind::kVllm;
  std::optional<double> requests_running;
  std::optional<double> requests_waiting;
  std::optional<double> kv_share;  // 0..1 of the KV cache in use; a value outside is absent
  std::optional<EngineLatency> ttft;
  std::optional<EngineLatency> time_per_token;
  std::optional<TokenTime> token_time;      // set with time_per_token
  std::optional<double> prompt_tokens;      // counter
  std::optional<double> cached_tokens;      // counter: tokens of prompts that were in the KV cache, and not computed
  std::optional<double> generation_tokens;  // counter; SGLang and TGI count a request's tokens when it finishes
  std::optional<double> requests_finished;  // counter
  // A request's time before the first iteration with it, and from there to its first token; vLLM counts both at its end.
  std::optional<EngineLatency> queueing;
  std::optional<EngineLatency> prefill;
  std::optional<double> prefill_seconds;    // counter: the same in sum, where requests are not counted
  std::optional<EngineLatency> iteration;   // steps of the whole batch
  std::vector<MeasuredIteration> measured;  // by our own worker alone; at most kMaxMeasuredIterations, others are ignored
  std::optional<double> start_time_s;       // of the process, Unix time: another one is another run, whatever the counters say
};

// nullopt when no engine's names stand on the page.
[[nodiscard]] std::optional<EngineMetrics> read_engine_metrics(const Exposition& page);

}  // namespace windlass::metrics
