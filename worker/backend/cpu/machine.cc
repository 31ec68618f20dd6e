// Runs the measurements; see machine.h.
#include "worker/backend/cpu/machine.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <vector>

#include "worker/backend/cpu/matrix_product.h"
#include "worker/backend/cpu/thread_team.h"
#include "worker/model/large_memory.h"

namespace windlass::worker::cpu {
namespace {

using Lanes = float __attribute__((vector_size(16 * sizeof(float)), aligned(alignof(float)), may_alias));

// REQUIRES: `count` is a multiple of 64. Four sums, so that additions do not wait for each other.
float sum_of(const float* memory, std::size_t count) {
  Lanes a = {}, b = {}, c = {}, d = {};
  for (std::size_t i = 0; i < count; i += 64) {
    const auto* at = reinterpret_cast<const Lanes*>(memory + i);
    a += at[0];
    b += at[1];
    c += at[2];
    d += at[3];
  }
  a += b + c + d;
  float total = 0;
  for (int lane = 0; lane < 16; ++lane) total += a[lane];
  return total;
}

// With large pages, a MiB at a time.
double read_bytes_per_s(ThreadTeam& team, int repeats) {
  constexpr std::size_t kParts = 512, kPartFloats = (1U << 20U) / sizeof(float);
  std::vector<float> memory;
  reserve_large(memory, kParts * kPartFloats);
  memory.assign(kParts * kPartFloats, 1.0F);
  std::vector<float> sums(kParts);
  const double seconds = median_s(repeats, [&] {
    team.run(kParts, [&](std::int64_t part, int /*member*/) {
      const auto at = static_cast<std::size_t>(part);
      sums[at] += sum_of(memory.data() + at * kPartFloats, kPartFloats);
    });
  });
  if (std::any_of(sums.begin(), sums.end(), [](float sum) { return !(sum > 0); }))
    std::abort();  // use the result, so that reading is not optimised away
  return static_cast<double>(memory.size() * sizeof(float)) / seconds;
}

double flops_per_s(ThreadTeam& team, int repeats) {
  constexpr std::int64_t kSide = 2048;
  MatrixProduct product(team);
  const std::vector<float> x(kSide * kSide, 0.5F), w(kSide * kSide, 0.25F);
  std::vector<float> y(kSide * kSide);
  const double seconds = median_s(repeats, [&] { product.multiply(x.data(), w.data(), y.data(), kSide, kSide, kSide); });
  return 2.0 * kSide * kSide * kSide / seconds;
}

}  // namespace

double median_s(int repeats, const std::function<void()>& work) {
  work();
  std::vector<double> times;
  for (int i = 0; i < repeats; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    times.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

MachineFigures measure_machine(int threads, int repeats) {
  set_blas_threads(threads);
  ThreadTeam team(threads);
  return {threads, read_bytes_per_s(team, repeats), flops_per_s(team, repeats)};
}

}  // namespace windlass::worker::cpu
