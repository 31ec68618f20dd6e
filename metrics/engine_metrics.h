// Reads the load of a serving engine, ours or another, from its parsed /metrics page. Pure; any thread. The metric names show
// which engine it is. A value that the page lacks, or shows as NaN, infinite or negative, is absent here and never 0: absent
// means unknown, 0 means idle.
//
// The names of our own worker are those of WorkerMetrics (metrics/bundles.h).
// Sources of the other names (file and commit where each was read; old names follow "/"):
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
//     from the same file under TensorRT-LLM's triton_backend/ @0d5352f5
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

[[nodiscard]] std::string_view engine_name(EngineKind engine);  // as its project spells it: "vLLM"

// The engine whose names are on the page; nullopt when there are none. An engine that also exposes another's names (vLLM with
// IBM's tgi_ adapter) is recognised as itself, because TGI is tried last. A router that repeats its engines' names is taken for
// the engine, so scrape the engines.
[[nodiscard]] std::optional<EngineKind> detect_engine(const Exposition& page);

// Observations since the engine started. A page may have either without the other. Buckets are not read: at ten thousand
// workers they would take more time and memory than everything else on the page.
struct EngineLatency {
  std::optional<double> sum_s;
  std::optional<double> count;
};

// Meaning of one observation of time_per_token.
enum class TokenTime {
  kGap,               // the time between two tokens of one request (per generated token)
  kRequestMean,       // a request's mean over its tokens after the first
  kRequestMeanAll,    // a request's inference time, including prefill, over all its tokens (TGI)
  kGenerationSeconds  // no histogram: seconds of generation over tokens generated; a request's first token counts no time
};

// One iteration of an idle engine, measured before serving: one prompt, or one token for each sequence of a batch.
struct MeasuredIteration {
  int prompt_tokens = 0;   // 0: decode
  int batch = 0;           // sequences; 0: prefill
  int context_tokens = 0;  // mean per sequence; 0: prefill
  double seconds = 0;

  bool operator==(const MeasuredIteration&) const = default;
};
inline constexpr std::size_t kMaxMeasuredIterations = 16;

// Gauges are summed over label sets (data parallel ranks, models), KV shares averaged. Series that differ only in tensor,
// pipeline or expert rank, or in priority, describe the same requests, so only the largest counts. Counters and histograms are
// summed over all label sets. If a page has both the old and the new name, the new one counts.
struct EngineMetrics {
  EngineKind engine = EngineKind::kVllm;
  std::optional<double> requests_running;
  std::optional<double> requests_waiting;
  std::optional<double> kv_share;  // 0..1 of the KV cache in use; values outside are treated as absent
  std::optional<EngineLatency> ttft;
  std::optional<EngineLatency> time_per_token;
  std::optional<TokenTime> token_time;      // set with time_per_token
  std::optional<double> prompt_tokens;      // counter
  std::optional<double> cached_tokens;      // counter: prompt tokens found in the KV cache and not computed
  std::optional<double> generation_tokens;  // counter; SGLang and TGI count a request's tokens when it finishes
  std::optional<double> requests_finished;  // counter
  // Time before a request's first iteration, and from there to its first token; vLLM records both when the request ends.
  std::optional<EngineLatency> queueing;
  std::optional<EngineLatency> prefill;
  std::optional<double> prefill_seconds;    // counter: the sum of the above, for engines that do not count requests
  std::optional<EngineLatency> iteration;   // steps of the whole batch
  std::vector<MeasuredIteration> measured;  // only from our own worker; at most kMaxMeasuredIterations, the rest is ignored
  std::optional<double> start_time_s;       // Unix time of the process start; a change means another run of the engine
};

// Whether read_engine_metrics() may read the series of this name, of whichever engine.
[[nodiscard]] inline bool is_read_of_engines(std::string_view series) { return !series.ends_with("_bucket"); }

// nullopt when no engine's names are on the page.
[[nodiscard]] std::optional<EngineMetrics> read_engine_metrics(const Exposition& page);

}  // namespace windlass::metrics
