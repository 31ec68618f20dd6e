// Computes how long a worker waits besides its iterations: for a KV cache from another worker, and for weights from storage.
//
// KV transfer goes from the worker that prefilled a prompt to the one that decodes it:
// - Serialised (Splitwise, Fig. 11a; DistServe): the whole cache moves after the prefill.
// - Layer-wise (Splitwise, Section IV-C and Fig. 11b): the cache of each layer moves while later layers are computed. Layers
//   take equal parts of the prefill's time, and caches use the link one after another. With bytes B, bandwidth b, layers L and
//   prefill time P, the last byte arrives max(B / (b L), B / b - P (L - 1) / L) after the prefill: the time for the last
//   layer's cache alone or, on a slow link, for everything minus what could move since the end of the first layer.
//   Synchronising layer by layer has a fixed cost (Splitwise measured about 8 ms on A100 and 5 ms on H100, Fig. 14), so
//   serialised transfer is better for short prompts (there: below 512 tokens). The cheaper one is used, as in Splitwise.
//
// A worker split into pipeline stages sends from all of them in parallel (DistServe, Section 4.2); `bandwidth_bytes_per_s` is
// then their sum.
//
// These are free functions and not part of IterationModel, whose models know nothing about links and disks. Bytes come from the
// catalog: kv_bytes_per_token() and weight_bytes() of a ModelShape. Pure.
#pragma once

#include <cstdint>

namespace windlass::planner {

// A path for KV caches between two workers.
struct KvTransferPath {
  double bandwidth_bytes_per_s = 0;  // 0: unlimited
  double latency_s = 0;              // per transfer
  int layers = 0;                    // moved layer by layer; 0: serialised
  double layer_wise_s = 0;           // extra time per layer-wise transfer

  bool operator==(const KvTransferPath&) const = default;
};

// The lower bandwidth and the higher latency of both, with the transfer mode of the first.
[[nodiscard]] KvTransferPath slower_of(const KvTransferPath& path, const KvTransferPath& other);

// Measured serialised transfers from one worker to another: seconds = latency + bytes / bandwidth, with bytes as sent. That may
// be more than the receiver's cache takes, such as FP32 values for a BF16 cache.
struct MeasuredTransfer {
  double bandwidth_bytes_per_s = 0;
  double latency_s = 0;
  double bytes_per_token = 0;  // per prompt token; 0: unknown, assumed equal to the cache
  std::int64_t samples = 0;    // 0: unknown

  bool operator==(const MeasuredTransfer&) const = default;
};

// The same for caches of `kv_bytes_per_token`, in bytes of the cache. REQUIRES: bandwidth > 0, the others >= 0.
[[nodiscard]] KvTransferPath path_of(const MeasuredTransfer& measured, double kv_bytes_per_token);

// Seconds from the start of a serialised transfer to its end. REQUIRES: arguments >= 0.
[[nodiscard]] double kv_transfer_s(const KvTransferPath& path, double tokens, double kv_bytes_per_token);

// Seconds from the end of the prefill to the arrival of the cache, if the transfer may start with the prefill's first layer.
// Equals kv_transfer_s() if serialised, or if the receiver had no room before the end of the prefill (prefill_s 0).
// REQUIRES: arguments >= 0.
[[nodiscard]] double kv_transfer_after_prefill_s(const KvTransferPath& path, double tokens, double kv_bytes_per_token,
                                                 double prefill_s);

// A path for weights into a worker's GPUs. Reading, copying and placing overlap, so the slowest part decides.
struct WeightsPath {
  double source_bandwidth_bytes_per_s = 0;  // disk, page cache or network, shared by all GPUs of the worker; 0: unlimited
  double gpu_bandwidth_bytes_per_s = 0;     // host to one GPU; 0: unlimited
  double fixed_s = 0;                       // engine start: processes, CUDA context, memory profiling, graphs
};

// Seconds from the start of a worker's engine to its first iteration; each GPU loads `weight_bytes_per_gpu`.
// REQUIRES: gpus >= 1, the others >= 0.
[[nodiscard]] double load_s(const WeightsPath& path, double weight_bytes_per_gpu, int gpus);

}  // namespace windlass::planner
