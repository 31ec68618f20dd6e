// What this machine can do: the figures that the CPU backend is held against, and that a data sheet of its cores has.
#pragma once

#include <functional>

namespace windlass::worker::cpu {

// Of all threads together, while all of them are busy.
struct MachineFigures {
  int threads = 1;
  double read_bytes_per_s = 0;  // of memory, through half a GiB, which no cache holds
  double fp32_flops_per_s = 0;  // of a product of matrices of 2,048 x 2,048, as a long prompt's are computed
};

// Seconds of the work: the median of `repeats` runs after one that is not counted. REQUIRES: repeats >= 1.
[[nodiscard]] double median_s(int repeats, const std::function<void()>& work);

// Medians of `repeats` runs; about a second. REQUIRES: threads >= 1, repeats >= 1; nothing else computes meanwhile.
[[nodiscard]] MachineFigures measure_machine(int threads, int repeats);

}  // namespace windlass::worker::cpu
