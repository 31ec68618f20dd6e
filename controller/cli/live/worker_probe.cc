// Sends requests to workers and fits a line to transfer times; see worker_probe.h.
#include "controller/cli/live/worker_probe.h"

#include <algorithm>
#include <ctime>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "metrics/host/clock.h"

namespace windlass::cli {
namespace {

using nlohmann::json;

constexpr std::int64_t kBlockTokens = 16;  // of our workers' KV cache (docs/metrics.md)
constexpr double kAskS = 10;
constexpr double kAnswerS = 300;
constexpr std::size_t kMaxPageBytes = std::size_t{32} << 20U;  // of metrics
constexpr double kMaxBytesPerS = 1e15;                         // the limit of a PerformanceProfile
constexpr const char* kCompletions = "/v1/completions";

Result<std::string> get(kube::HttpTransport& transport, const std::string& url) {
  WINDLASS_ASSIGN_OR_RETURN(const kube::HttpResponse response,
                            transport.send({.url = url, .timeout_s = kAskS, .max_bytes = kMaxPageBytes}));
  if (response.status == 200) return response.body;
  return Error{ErrorCode::kUnavailable, fmt::format("GET {}: must answer 200 (got {})", url, response.status)};
}

// The time between two polls of a worker.
void rest() {
  const timespec pause{0, 5'000'000};
  ::nanosleep(&pause, nullptr);
}

// Polls until `done`. Errors: kCancelled, or kUnavailable after kAnswerS.
Result<void> wait_until(const std::string& what, const std::function<bool()>& stopped,
                        const std::function<Result<bool>()>& done) {
  for (const double begun_s = monotonic_s();; rest()) {
    WINDLASS_ASSIGN_OR_RETURN(const bool is_done, done());
    if (is_done) return {};
    if (stopped()) return Error{ErrorCode::kCancelled, "interrupted"};
    if (monotonic_s() - begun_s > kAnswerS) return Error{ErrorCode::kUnavailable, fmt::format("{} in {:g} s", what, kAnswerS)};
  }
}

// A decode worker's counters so far.
struct Received {
  double bytes = 0, seconds = 0, prompts = 0;
};
Result<Received> received_by(kube::HttpTransport& transport, const std::string& url) {
  WINDLASS_ASSIGN_OR_RETURN(const metrics::Exposition page, metrics_of(transport, url));
  return Received{page.sum("windlass_worker_kv_transfer_bytes_total", {{"direction", "received"}}).value_or(0),
                  page.sum("windlass_worker_kv_transfer_seconds_sum").value_or(0),
                  page.sum("windlass_worker_kv_transfers_total", {{"outcome", "received"}}).value_or(0)};
}

// The prompt's tokens in a completion's usage; 0 if it has none.
double prompt_tokens_in(const std::string& answer) {
  const json body = json::parse(answer, nullptr, false);
  const json::json_pointer tokens("/usage/prompt_tokens");
  if (!body.is_object() || !body.contains(tokens) || !body[tokens].is_number_unsigned()) return 0;
  return body[tokens].get<double>();
}

Result<double> held_by(kube::HttpTransport& transport, const std::string& url) {
  WINDLASS_ASSIGN_OR_RETURN(const metrics::Exposition page, metrics_of(transport, url));
  const auto held = page.sum("windlass_worker_prompts_held");
  if (held) return *held;
  return Error{ErrorCode::kFailedPrecondition, url +
                                                   "/metrics: must show windlass_worker_prompts_held (got none); transfers are "
                                                   "only measured between Windlass' own workers"};
}

}  // namespace

Result<std::string> only_model(kube::HttpTransport& transport, const std::string& url) {
  WINDLASS_ASSIGN_OR_RETURN(const std::string text, get(transport, url + "/v1/models"));
  const json page = json::parse(text, nullptr, false);
  std::vector<std::string> names;
  if (page.is_object() && page.contains("data") && page["data"].is_array()) {
    for (const json& model : page["data"]) {
      if (model.is_object() && model.contains("id") && model["id"].is_string()) names.push_back(model["id"]);
    }
  }
  if (names.size() == 1) return names.front();
  if (names.empty()) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("--model: must be given, since {}/v1/models names no model", url)};
  }
  return Error{ErrorCode::kInvalidArgument, fmt::format("--model: must be one of {} (got none)", fmt::join(names, ", "))};
}

Result<metrics::Exposition> metrics_of(kube::HttpTransport& transport, const std::string& url) {
  WINDLASS_ASSIGN_OR_RETURN(const std::string text, get(transport, url + "/metrics"));
  auto page = metrics::parse_exposition(text);
  if (!page.ok()) return Error{ErrorCode::kUnavailable, url + "/metrics: " + page.error().message};
  return page;
}

std::optional<std::int64_t> kv_capacity_tokens(const metrics::Exposition& page) {
  const auto blocks = page.sum("windlass_worker_kv_cache_blocks");
  if (!blocks || !(*blocks >= 1 && *blocks <= 1e12)) return std::nullopt;
  return static_cast<std::int64_t>(*blocks) * kBlockTokens;
}

Result<TransferSample> measure_transfer(kube::HttpTransport& transport, const WorkerPair& pair, const std::string& model,
                                        const std::string& prompt, const std::function<bool()>& stopped) {
  kube::HttpRequest request{.method = "POST",
                            .url = pair.prefill_url + kCompletions,
                            .headers = {{"Content-Type", "application/json"}, {"X-Windlass-Phase", "prefill"}},
                            .body = json{{"model", model}, {"prompt", prompt}, {"max_tokens", 1}, {"temperature", 0}}.dump(),
                            .timeout_s = kAnswerS};
  // Prompts pulled a moment ago may still count as held.
  WINDLASS_RETURN_IF_ERROR(wait_until(pair.prefill_url + " did not finish earlier prompts", stopped, [&]() -> Result<bool> {
    WINDLASS_ASSIGN_OR_RETURN(const double held, held_by(transport, pair.prefill_url));
    return held == 0;
  }));
  WINDLASS_ASSIGN_OR_RETURN(const auto prefill, transport.stream(request));  // stays open while the worker must hold the prompt
  WINDLASS_RETURN_IF_ERROR(wait_until(pair.prefill_url + " did not start on the prompt", stopped, [&]() -> Result<bool> {
    WINDLASS_RETURN_IF_ERROR(prefill->poll());
    return prefill->status() != 0;
  }));
  const auto headers = prefill->headers();
  const auto session = headers.find("x-windlass-prefilled");
  if (prefill->status() != 200 || session == headers.end()) {
    return Error{ErrorCode::kFailedPrecondition,
                 fmt::format("{}: must answer 200 with X-Windlass-Prefilled (got {})", request.url, prefill->status())};
  }
  WINDLASS_RETURN_IF_ERROR(wait_until(pair.prefill_url + " did not compute the prompt", stopped, [&]() -> Result<bool> {
    WINDLASS_RETURN_IF_ERROR(prefill->poll());
    WINDLASS_ASSIGN_OR_RETURN(const double held, held_by(transport, pair.prefill_url));
    return held > 0;
  }));
  WINDLASS_ASSIGN_OR_RETURN(const Received before, received_by(transport, pair.decode_url));
  request.url = pair.decode_url + kCompletions;
  request.headers.erase("X-Windlass-Phase");
  request.headers["X-Windlass-Prefilled"] = session->second;
  request.headers["X-Windlass-Prefill-Address"] = pair.prefill_url.substr(pair.prefill_url.find("://") + 3);
  WINDLASS_ASSIGN_OR_RETURN(const kube::HttpResponse answer, transport.send(request));
  if (answer.status != 200) {
    return Error{ErrorCode::kFailedPrecondition,
                 fmt::format("{}: must answer 200 (got {}): {}", request.url, answer.status, answer.body.substr(0, 300))};
  }
  WINDLASS_ASSIGN_OR_RETURN(const Received after, received_by(transport, pair.decode_url));
  const TransferSample sample{after.bytes - before.bytes, after.seconds - before.seconds, prompt_tokens_in(answer.body)};
  if (after.prompts - before.prompts == 1 && sample.bytes > 0 && sample.seconds > 0) return sample;
  return Error{
      ErrorCode::kFailedPrecondition,
      fmt::format(
          "{}: must receive 1 prompt (got {:g}); it could not pull from {} and computed the prompt itself, or has other "
          "requests",
          pair.decode_url, after.prompts - before.prompts, pair.prefill_url)};
}

planner::MeasuredTransfer fit_transfers(const std::vector<TransferSample>& samples) {
  double bytes = 0, seconds = 0, tokens = 0, bytes_of_tokens = 0;
  for (const TransferSample& sample : samples) {
    bytes += sample.bytes;
    seconds += sample.seconds;
    tokens += sample.tokens;
    if (sample.tokens > 0) bytes_of_tokens += sample.bytes;
  }
  const auto count = static_cast<double>(samples.size());
  const double mean_bytes = bytes / count, mean_s = seconds / count;
  double spread = 0, product = 0, squares = 0, through_zero = 0;
  for (const TransferSample& sample : samples) {
    spread += (sample.bytes - mean_bytes) * (sample.bytes - mean_bytes);
    product += (sample.bytes - mean_bytes) * (sample.seconds - mean_s);
    squares += sample.bytes * sample.bytes;
    through_zero += sample.bytes * sample.seconds;
  }
  planner::MeasuredTransfer fitted;
  fitted.bytes_per_token = tokens > 0 ? bytes_of_tokens / tokens : 0;
  fitted.samples = static_cast<std::int64_t>(samples.size());
  const bool sloped = spread > 1e-12 * squares && product * kMaxBytesPerS > spread;
  const double latency_s = sloped ? mean_s - product / spread * mean_bytes : 0;
  fitted.latency_s = std::max(0.0, latency_s);
  fitted.bandwidth_bytes_per_s = !sloped ? bytes / seconds : latency_s < 0 ? squares / through_zero : spread / product;
  return fitted;
}

std::string to_text(const planner::MeasuredTransfer& fitted, const std::vector<TransferSample>& samples) {
  const auto [least, most] = std::minmax_element(
      samples.begin(), samples.end(), [](const TransferSample& a, const TransferSample& b) { return a.bytes < b.bytes; });
  const std::string per_token =
      fitted.bytes_per_token > 0 ? fmt::format(", {:.6g} bytes per token", fitted.bytes_per_token) : std::string();
  return fmt::format("KV transfers: {} of {:.3g} to {:.3g} MB: {:.4g} GB/s, latency {:.3g} ms{}", fitted.samples,
                     least->bytes / 1e6, most->bytes / 1e6, fitted.bandwidth_bytes_per_s / 1e9, fitted.latency_s * 1e3,
                     per_token);
}

}  // namespace windlass::cli
