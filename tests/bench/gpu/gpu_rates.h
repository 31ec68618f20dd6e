// What a GPU reaches in the simplest use of its memory, its tensor cores and its link to the host: what the worker's figures
// are shares of, measured in the same run.
#pragma once

#include "planner/base/result.h"

namespace windlass::bench {

struct GpuRates {
  double memory_bytes_per_s = 0;    // a copy within the device's memory: bytes read and bytes written
  double bf16_flop_per_s = 0;       // a product of two dense BF16 matrices of (8192, 8192), on random numbers
  double upload_bytes_per_s = 0;    // from pinned memory
  double download_bytes_per_s = 0;  // to pinned memory
};

// Medians of ten. Error: kUnavailable or kResourceExhausted, of the device.
[[nodiscard]] Result<GpuRates> measure_gpu();

}  // namespace windlass::bench
