// Measures this machine's memory bandwidth and FP32 speed, the limits that the CPU backend is compared with.
#pragma once

#include <functional>

namespace windlass::worker::cpu {

// Totals over all threads, while all of them are busy.
struct MachineFigures {
  int threads = 1;
  double read_bytes_per_s = 0;  // reading half a GiB, which fits no cache
  double fp32_flops_per_s = 0;  // multiplying 2,048 x 2,048 matrices, as for a long prompt
};

// Seconds of `work`: the median of `repeats` runs after one uncounted run. REQUIRES: repeats >= 1.
[[nodiscard]] double median_s(int repeats, const std::function<void()>& work);

// Medians of `repeats` runs; takes about a second. REQUIRES: threads >= 1, repeats >= 1; the machine is otherwise idle.
[[nodiscard]] MachineFigures measure_machine(int threads, int repeats);

}  // namespace windlass::worker::cpu
