// What a worker waits for besides its iterations: a KV cache that comes from another worker, and weights that come from
// storage.
//
// KV transfer, from the worker that prefilled a prompt to the one that decodes it:
// - serialised (Splitwise, Fig. 11a; DistServe): the whole cache moves after the prefill
// - layer-wise (Splitwise, Section IV-C and Fig. 11b): each layer's cache moves while later layers are computed. Layers take
// the
//   prefill's time in equal parts, and caches go over the link one after another. With bytes B over bandwidth b, layers L and
//   prefill time P, the last byte arrives max(B / (b L), B / b - P (L - 1) / L) after the prefill: the last layer's cache
//   alone, or, on a slow link, all of it less what could move since the first layer's end. Synchronising layer by layer costs a
//   fixed time (Splitwise measured about 8 ms on A100 and 5 ms on H100, Fig. 14), so that short prompts are better off
//   serialised (there: below 512 tokens); the cheaper of both is taken, as in Splitwise.
// A worker cut into pipeline stages sends from all of them at once (DistServe, Section 4.2): `bandwidth_bytes_per_s` is then
// their sum.
//
// These are free functions and no part of IterationModel, whose models know nothing of links and disks. Bytes come from the
// catalog: kv_bytes_per_token() and weight_bytes() of a ModelShape. Pure.
#pragma once

#include <cstdint>

namespace windlass::planner {

// A way for KV caches between two workers.
struct KvTransferPath {
  double bandwidth_bytes_per_s = 0;  // 0: without limit
  double latency_s = 0;              // of each transfer
  int layers = 0;                    // moved layer by layer; 0: serialised
  double layer_wise_s = 0;           // what that adds to a transfer

  bool operator==(const KvTransferPath&) const = default;
};

// The lower bandwidth and the higher latency of both, moved as on the first.
[[nodiscard]] KvTransferPath slower_of(const KvTransferPath& path, const KvTransferPath& other);

// Serialised transfers from one worker to another, as they were measured: seconds = latency + bytes / bandwidth, of bytes as
// they travel. That may be more than the receiver's cache takes: values of FP32 for a cache of BF16.
struct MeasuredTransfer {
  double bandwidth_bytes_per_s = 0;
  double latency_s = 0;
  double bytes_per_token = 0;  // of a prompt; 0: not known, then as many as in the cache
  std::int64_t samples = 0;    // 0: not known

  bool operator==(const MeasuredTransfer&) const = default;
};

// The same for caches of `kv_bytes_per_token`, in bytes of the cache. REQUIRES: bandwidth > 0, the others >= 0.
[[nodiscard]] KvTransferPath path_of(const MeasuredTransfer& measured, double kv_bytes_per_token);

// Seconds from the start of a serialised transfer to its end. REQUIRES: arguments >= 0.
[[nodiscard]] double kv_transfer_s(const KvTransferPath& path, double tokens, double kv_bytes_per_token);

// Seconds from the end of the prefill to the cache's arrival, when the transfer may begin with the prefill's first layer.
// Serialised, or when the receiver had no room before the prefill's end (prefill_s 0): kv_transfer_s().
// REQUIRES: arguments >= 0.
[[nodiscard]] double kv_transfer_after_prefill_s(const KvTransferPath& path, double tokens, double kv_bytes_per_token,
                                                 double prefill_s);

// A way for weights into a worker's GPUs. Reading, copying and placing overlap: the narrowest part decides.
struct WeightsPath {
  double source_bandwidth_bytes_per_s = 0;  // disk, page cache or network, shared by all GPUs of the worker; 0: without limit
  double gpu_bandwidth_bytes_per_s = 0;     // host to one GPU; 0: without limit
  double fixed_s = 0;                       // start of the engine: processes, CUDA context, memory profiling, graphs
};

// Seconds from the start of a worker's engine to its first iteration; every GPU takes `weight_bytes_per_gpu`.
// REQUIRES: gpus >= 1, the others >= 0.
[[nodiscard]] double load_s(const WeightsPath& path, double weight_bytes_per_gpu, int gpus);

}  // namespace windlass::planner
