// Queries a running worker for `windlass profile`: the model it serves, the size of its KV cache, and how long KV transfers
// from a prefill worker take.
//
// Transfers are triggered as a gateway does it (docs/decisions/2026-11-22-kv-is-pulled.md). The prompt has been computed
// completely by then, so the receiver's metrics measure the link alone. Single-threaded; blocks.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "controller/kube/http_transport.h"
#include "metrics/exposition_parser.h"
#include "planner/base/result.h"
#include "planner/perf/transfer_times.h"

namespace windlass::cli {

// The worker's only model. Errors: kUnavailable if it does not answer, kInvalidArgument if it serves none or several.
[[nodiscard]] Result<std::string> only_model(kube::HttpTransport& transport, const std::string& url);

// Its /metrics. Error: kUnavailable.
[[nodiscard]] Result<metrics::Exposition> metrics_of(kube::HttpTransport& transport, const std::string& url);

// Tokens in the KV cache of one of our workers; nullopt if the page does not say.
[[nodiscard]] std::optional<std::int64_t> kv_capacity_tokens(const metrics::Exposition& page);

// The two workers of a request.
struct WorkerPair {
  std::string prefill_url;  // http://HOST:PORT, reachable from the decode worker too
  std::string decode_url;
};

struct TransferSample {
  double bytes = 0;
  double seconds = 0;  // from the decode worker's first request to the last response
  double tokens = 0;   // of the prompt; 0: unknown
};

// Sends one prompt through both. Checks `stopped` while it waits. Errors: kUnavailable if a worker does not answer, kCancelled
// if stopped, kFailedPrecondition if a worker refuses or the decode worker computed the prompt itself.
[[nodiscard]] Result<TransferSample> measure_transfer(kube::HttpTransport& transport, const WorkerPair& pair,
                                                      const std::string& model, const std::string& prompt,
                                                      const std::function<bool()>& stopped);

// Least-squares line through the samples, with a latency of at least 0. If all have one size, or larger ones were no slower,
// the mean rate and no latency. REQUIRES: at least one sample; bytes and seconds above 0.
[[nodiscard]] planner::MeasuredTransfer fit_transfers(const std::vector<TransferSample>& samples);

// A summary for a person.
[[nodiscard]] std::string to_text(const planner::MeasuredTransfer& fitted, const std::vector<TransferSample>& samples);

}  // namespace windlass::cli
