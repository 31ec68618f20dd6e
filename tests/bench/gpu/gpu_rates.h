// Peak rates that a GPU reaches in the simplest use of its memory, its tensor cores and its link to the host. Benchmarks report
// the worker's rates as shares of these, measured in the same run.
#pragma once

#include "planner/base/result.h"

namespace windlass::bench {

struct GpuRates {
  double memory_bytes_per_s = 0;    // copy within the device's memory; counts bytes read plus bytes written
  double bf16_flop_per_s = 0;       // product of two dense (8192, 8192) BF16 matrices of random numbers
  double upload_bytes_per_s = 0;    // from pinned memory
  double download_bytes_per_s = 0;  // to pinned memory
};

// Medians of ten runs. Errors: kUnavailable or kResourceExhausted from the device.
[[nodiscard]] Result<GpuRates> measure_gpu();

}  // namespace windlass::bench
