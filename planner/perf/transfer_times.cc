// Computes the times of KV transfers and weight loads; see transfer_times.h.
#include "planner/perf/transfer_times.h"

#include <algorithm>
#include <cassert>

namespace windlass::planner {
namespace {

double at_bandwidth_s(double bytes, double bandwidth_bytes_per_s) {
  return bandwidth_bytes_per_s > 0 ? bytes / bandwidth_bytes_per_s : 0;
}

}  // namespace

KvTransferPath slower_of(const KvTransferPath& path, const KvTransferPath& other) {
  KvTransferPath slower = path;
  slower.latency_s = std::max(path.latency_s, other.latency_s);
  const bool limited = other.bandwidth_bytes_per_s > 0;
  if (limited && !(path.bandwidth_bytes_per_s > 0 && path.bandwidth_bytes_per_s <= other.bandwidth_bytes_per_s)) {
    slower.bandwidth_bytes_per_s = other.bandwidth_bytes_per_s;
  }
  return slower;
}

KvTransferPath path_of(const MeasuredTransfer& measured, double kv_bytes_per_token) {
  assert(measured.bandwidth_bytes_per_s > 0 && kv_bytes_per_token >= 0);
  const double of_cache = measured.bytes_per_token > 0 ? kv_bytes_per_token / measured.bytes_per_token : 1;
  return {measured.bandwidth_bytes_per_s * of_cache, measured.latency_s};
}

double kv_transfer_s(const KvTransferPath& path, double tokens, double kv_bytes_per_token) {
  assert(tokens >= 0 && kv_bytes_per_token >= 0);
  return path.latency_s + at_bandwidth_s(tokens * kv_bytes_per_token, path.bandwidth_bytes_per_s);
}

double kv_transfer_after_prefill_s(const KvTransferPath& path, double tokens, double kv_bytes_per_token, double prefill_s) {
  assert(prefill_s >= 0);
  const double serialised_s = kv_transfer_s(path, tokens, kv_bytes_per_token);
  if (path.layers <= 0) return serialised_s;
  const double bytes_s = serialised_s - path.latency_s;
  const double left_s = std::max(bytes_s / path.layers, bytes_s - prefill_s * (path.layers - 1) / path.layers);
  return std::min(serialised_s, path.latency_s + path.layer_wise_s + left_s);
}

double load_s(const WeightsPath& path, double weight_bytes_per_gpu, int gpus) {
  assert(weight_bytes_per_gpu >= 0 && gpus >= 1);
  return path.fixed_s + std::max(at_bandwidth_s(weight_bytes_per_gpu * gpus, path.source_bandwidth_bytes_per_s),
                                 at_bandwidth_s(weight_bytes_per_gpu, path.gpu_bandwidth_bytes_per_s));
}

}  // namespace windlass::planner
