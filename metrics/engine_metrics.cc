// One table of names per engine, read by shared functions. engine_metrics.h says where each name was found.
#include "metrics/engine_metrics.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace windlass::metrics {
namespace {

using Labels = std::map<std::string, std::string>;

std::optional<double> usable(std::optional<double> value) {
  return value && std::isfinite(*value) && *value >= 0 ? value : std::nullopt;
}

// The values of all independent series of that gauge. Series that differ only in the labels below describe the same requests.
std::vector<double> independent_values(const Exposition& page, std::string_view name, const Labels& match) {
  std::map<Labels, double> largest;
  for (const Sample* sample : page.find(name, match)) {
    Labels labels = sample->labels;
    // SGLang: the ranks of one replica, and the total (priority="") next to the part of each priority.
    for (const char* same : {"tp_rank", "pp_rank", "moe_ep_rank", "priority"}) labels.erase(same);
    const auto [found, inserted] = largest.emplace(std::move(labels), sample->value);
    // Keep a NaN: leaving it out would look like less load.
    if (!inserted && !std::isnan(found->second) && !(sample->value <= found->second)) found->second = sample->value;
  }
  std::vector<double> values;
  for (const auto& [labels, value] : largest) values.push_back(value);
  return values;
}

// Sum and number of series.
struct Total {
  double sum = 0;
  std::size_t series = 0;
};

// nullopt when there is no series, or a value is unusable or above `most`.
std::optional<Total> total(const Exposition& page, std::string_view name, const Labels& match, double most) {
  const auto values = independent_values(page, name, match);
  if (values.empty()) return std::nullopt;
  Total total{0, values.size()};
  for (const double value : values) {
    if (!usable(value) || value > most) return std::nullopt;
    total.sum += value;
  }
  return total;
}

std::optional<double> gauge(const Exposition& page, std::string_view name, const Labels& match = {}) {
  const auto found = total(page, name, match, std::numeric_limits<double>::infinity());
  return found ? std::optional(found->sum) : std::nullopt;
}

std::optional<double> share(const Exposition& page, std::string_view name, const Labels& match = {}) {
  const auto found = total(page, name, match, 1);
  return found ? std::optional(found->sum / static_cast<double>(found->series)) : std::nullopt;
}

std::optional<double> counter(const Exposition& page, const std::string& name) { return usable(page.sum(name)); }

std::optional<EngineLatency> latency(const Exposition& page, const std::string& name, const Labels& match = {}) {
  EngineLatency read;
  read.sum_s = usable(page.sum(name + "_sum", match));
  read.count = usable(page.sum(name + "_count", match));
  if (!read.sum_s && !read.count) return std::nullopt;
  return read;
}

void set_token_time(EngineMetrics& read, std::optional<EngineLatency> time, TokenTime kind) {
  if (!time || read.time_per_token) return;
  read.time_per_token = std::move(time);
  read.token_time = kind;
}

// vLLM's names without their prefix; other engines override some.
struct CommonNames {
  std::string_view running = "num_requests_running", waiting = "num_requests_waiting";
  std::vector<std::string_view> kv_share, token_time;  // the first one present is read
  TokenTime kind = TokenTime::kGap;
  std::string_view finished = "request_success_total", cached = "prefix_cache_hits_total";
  std::string_view queueing = "request_queue_time_seconds", prefill = "request_prefill_time_seconds";
};

// Keeps values that earlier names gave.
void read_common(const Exposition& page, const std::string& prefix, const CommonNames& names, EngineMetrics& read) {
  const auto named = [&](std::string_view name) { return prefix + std::string(name); };
  const auto first = [](auto& field, auto value) {
    if (!field) field = std::move(value);
  };
  first(read.requests_running, gauge(page, named(names.running)));
  first(read.requests_waiting, gauge(page, named(names.waiting)));
  for (const std::string_view name : names.kv_share) first(read.kv_share, share(page, named(name)));
  first(read.ttft, latency(page, named("time_to_first_token_seconds")));
  for (const std::string_view name : names.token_time) set_token_time(read, latency(page, named(name)), names.kind);
  first(read.queueing, latency(page, named(names.queueing)));
  first(read.prefill, latency(page, named(names.prefill)));
  first(read.prompt_tokens, counter(page, named("prompt_tokens_total")));
  first(read.cached_tokens, counter(page, named(names.cached)));
  first(read.generation_tokens, counter(page, named("generation_tokens_total")));
  first(read.requests_finished, counter(page, named(names.finished)));
}

// A label's value as an integer, from 1 to a limit that no engine reaches.
std::optional<int> count_in(const Labels& labels, const std::string& name) {
  constexpr int kMax = 1 << 24;
  const auto label = labels.find(name);
  if (label == labels.end()) return std::nullopt;
  const std::string& text = label->second;
  int count = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), count);
  const bool whole = failure == std::errc{} && end == text.data() + text.size();
  return whole && count >= 1 && count <= kMax ? std::optional(count) : std::nullopt;
}

// Adds plausible values; implausible ones do not invalidate the rest of the page.
void read_measured(const Exposition& page, EngineMetrics& read) {
  constexpr double kMaxSeconds = 3600;
  const auto add = [&](const MeasuredIteration& iteration) {
    const bool sane = iteration.seconds > 0 && iteration.seconds <= kMaxSeconds;  // false for NaN
    if (sane && read.measured.size() < kMaxMeasuredIterations) read.measured.push_back(iteration);
  };
  for (const Sample* sample : page.find("windlass_worker_measured_prefill_seconds", {})) {
    if (const auto tokens = count_in(sample->labels, "tokens")) add({*tokens, 0, 0, sample->value});
  }
  for (const Sample* sample : page.find("windlass_worker_measured_decode_seconds", {})) {
    const auto batch = count_in(sample->labels, "batch"), context = count_in(sample->labels, "context");
    if (batch && context) add({0, *batch, *context, sample->value});
  }
}

void read_windlass(const Exposition& page, EngineMetrics& read) {
  CommonNames names;
  names.running = "requests_running";
  names.waiting = "requests_waiting";
  names.kv_share = {"kv_cache_usage_ratio"};
  names.token_time = {"time_per_output_token_seconds"};
  names.kind = TokenTime::kRequestMean;
  names.finished = "requests_finished_total";
  names.queueing = "request_queue_seconds";
  names.prefill = "request_prefill_seconds";
  read_common(page, "windlass_worker_", names, read);
  read.iteration = latency(page, "windlass_worker_iteration_seconds");
  read_measured(page, read);
}

const std::vector<std::string_view> kNewAndOldGaps = {"inter_token_latency_seconds", "time_per_output_token_seconds"};

void read_vllm(const Exposition& page, EngineMetrics& read) {
  CommonNames names;
  names.kv_share = {"kv_cache_usage_perc", "gpu_cache_usage_perc"};
  names.token_time = kNewAndOldGaps;
  read_common(page, "vllm:", names, read);
}

void read_sglang(const Exposition& page, EngineMetrics& read) {
  CommonNames names;
  names.running = "num_running_reqs";
  names.waiting = "num_queue_reqs";
  names.kv_share = {"token_usage"};
  names.token_time = kNewAndOldGaps;
  names.finished = "num_requests_total";
  names.cached = "cached_tokens_total";
  names.queueing = "queue_time_seconds";
  read_common(page, "sglang:", names, read);
}

void read_tensorrt_llm(const Exposition& page, EngineMetrics& read) {
  CommonNames names;
  names.kv_share = {"kv_cache_utilization"};
  names.token_time = {"time_per_output_token_seconds"};
  names.kind = TokenTime::kRequestMean;
  for (const char* prefix : {"trtllm_", "trtllm:", ""}) read_common(page, prefix, names, read);
}

void read_triton(const Exposition& page, EngineMetrics& read) {
  const std::string requests = "nv_trt_llm_request_metrics", blocks = "nv_trt_llm_kv_cache_block_metrics";
  const std::string type = "kv_cache_block_type";
  read.requests_running = gauge(page, requests, {{"request_type", "scheduled"}});
  read.requests_waiting = gauge(page, requests, {{"request_type", "waiting"}});
  read.kv_share = share(page, blocks, {{type, "fraction"}});
  if (read.kv_share) return;
  const auto used = gauge(page, blocks, {{type, "used"}}), max = gauge(page, blocks, {{type, "max"}});
  if (used && max && *max > 0 && *used <= *max) read.kv_share = *used / *max;
}

void read_tgi(const Exposition& page, EngineMetrics& read) {
  read.requests_running = gauge(page, "tgi_batch_current_size");
  read.requests_waiting = gauge(page, "tgi_queue_size");
  set_token_time(read, latency(page, "tgi_request_mean_time_per_token_duration"), TokenTime::kRequestMeanAll);
  read.prompt_tokens = counter(page, "tgi_request_input_length_sum");
  read.generation_tokens = counter(page, "tgi_request_generated_tokens_sum");
  read.requests_finished = counter(page, "tgi_request_success");
}

void read_llama_cpp(const Exposition& page, EngineMetrics& read) {
  read.requests_running = gauge(page, "llamacpp:requests_processing");
  read.requests_waiting = gauge(page, "llamacpp:requests_deferred");
  read.kv_share = share(page, "llamacpp:kv_cache_usage_ratio");
  read.prompt_tokens = counter(page, "llamacpp:prompt_tokens_total");
  read.generation_tokens = counter(page, "llamacpp:tokens_predicted_total");
  read.prefill_seconds = counter(page, "llamacpp:prompt_seconds_total");
  if (const auto seconds = counter(page, "llamacpp:tokens_predicted_seconds_total"); seconds && read.generation_tokens)
    set_token_time(read, EngineLatency{seconds, read.generation_tokens}, TokenTime::kGenerationSeconds);
}

struct EngineNames {
  EngineKind engine;
  std::string_view name;
  std::array<std::string_view, 2> prefixes;  // an empty one is unused
  void (*read)(const Exposition&, EngineMetrics&);
};

// In the order in which they are tried.
const std::array<EngineNames, 7> kEngines = {{
    {EngineKind::kWindlass, "Windlass", {"windlass_worker_"}, read_windlass},
    {EngineKind::kVllm, "vLLM", {"vllm:"}, read_vllm},
    {EngineKind::kSglang, "SGLang", {"sglang:"}, read_sglang},
    {EngineKind::kTensorRtLlm, "TensorRT-LLM", {"trtllm_", "trtllm:"}, read_tensorrt_llm},
    {EngineKind::kTritonTensorRtLlm, "Triton with TensorRT-LLM", {"nv_trt_llm_"}, read_triton},
    {EngineKind::kLlamaCpp, "llama.cpp", {"llamacpp:"}, read_llama_cpp},
    {EngineKind::kTgi, "TGI", {"tgi_"}, read_tgi},
}};

const EngineNames* names_on(const Exposition& page) {
  for (const EngineNames& names : kEngines) {
    for (const std::string_view prefix : names.prefixes) {
      if (prefix.empty()) continue;
      const auto begins = [&](const Sample& sample) { return sample.name.starts_with(prefix); };
      if (std::any_of(page.samples.begin(), page.samples.end(), begins)) return &names;
    }
  }
  // TensorRT-LLM's first exposition has no prefix, so the name alone is not enough.
  const auto bare = [](const Sample& sample) {
    return (sample.name == "time_to_first_token_seconds_count" || sample.name == "request_success_total") &&
           sample.labels.contains("engine_type") && sample.labels.contains("model_name");
  };
  return std::any_of(page.samples.begin(), page.samples.end(), bare) ? &kEngines[3] : nullptr;
}

}  // namespace

std::string_view engine_name(EngineKind engine) {
  for (const EngineNames& names : kEngines) {
    if (names.engine == engine) return names.name;
  }
  return "unknown";
}

std::optional<EngineKind> detect_engine(const Exposition& page) {
  const EngineNames* names = names_on(page);
  return names == nullptr ? std::nullopt : std::optional(names->engine);
}

std::optional<EngineMetrics> read_engine_metrics(const Exposition& page) {
  const EngineNames* names = names_on(page);
  if (names == nullptr) return std::nullopt;
  EngineMetrics read;
  read.engine = names->engine;
  names->read(page, read);
  read.start_time_s = counter(page, "process_start_time_seconds");
  return read;
}

}  // namespace windlass::metrics
