// What `windlass profile` asks of a running worker beside its iterations: the names that it serves, how many tokens its KV
// cache holds, and how long keys and values take to it from the worker that computes prompts for it.
//
// A transfer is measured as a gateway causes it (docs/decisions/2026-11-22-kv-is-pulled.md), of a prompt that has been computed
// whole: what its receiver's metrics count is then the link and nothing else. Single-threaded; waits.
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

// The only model of a worker. Error: kUnavailable where it does not answer, kInvalidArgument where it serves none or several.
[[nodiscard]] Result<std::string> only_model(kube::HttpTransport& transport, const std::string& url);

// Its /metrics. Error: kUnavailable.
[[nodiscard]] Result<metrics::Exposition> metrics_of(kube::HttpTransport& transport, const std::string& url);

// Tokens in the KV cache of a worker of ours; nothing where the page does not say.
[[nodiscard]] std::optional<std::int64_t> kv_capacity_tokens(const metrics::Exposition& page);

// The two halves of a request.
struct WorkerPair {
  std::string prefill_url;  // http://HOST:PORT, where the decode worker finds it, too
  std::string decode_url;
};

struct TransferSample {
  double bytes = 0;
  double seconds = 0;  // from the decode worker's first question to the last answer
  double tokens = 0;   // of the prompt; 0: the worker does not say
};

// One prompt through both. `stopped` is asked while it waits. Error: kUnavailable where a worker does not answer, kCancelled
// when stopped, kFailedPrecondition where one refuses, or the decode worker computed the prompt itself.
[[nodiscard]] Result<TransferSample> measure_transfer(kube::HttpTransport& transport, const WorkerPair& pair,
                                                      const std::string& model, const std::string& prompt,
                                                      const std::function<bool()>& stopped);

// The line through them by least squares, with no latency below 0; of one size alone, or where larger ones were no slower, the
// mean rate and no latency. REQUIRES: at least one sample, of bytes and seconds above 0.
[[nodiscard]] planner::MeasuredTransfer fit_transfers(const std::vector<TransferSample>& samples);

// For a person.
[[nodiscard]] std::string to_text(const planner::MeasuredTransfer& fitted, const std::vector<TransferSample>& samples);

}  // namespace windlass::cli
