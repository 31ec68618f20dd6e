// Each pass is written once and compiled for several processors; what is left at a row's end becomes a vector of its own, so
// that a logit's weight does not depend on where it stands.
#include "worker/engine/logit_row.h"

#include <algorithm>
#include <limits>

#include "worker/backend/lanes.h"

namespace windlass::worker {
namespace {

constexpr float kNone = -std::numeric_limits<float>::infinity();
constexpr auto kWidth = static_cast<std::size_t>(kLanes);
static_assert(kLogitBlock % kWidth == 0);

inline __attribute__((always_inline)) const Lanes& at(const float* floats) { return *reinterpret_cast<const Lanes*>(floats); }

// Minus infinity for what is not finite. By `<` alone: gcc 12 takes `==` of wide vectors apart, lane by lane.
inline __attribute__((always_inline)) void keep_finite(Lanes& logits) {
  const Lanes none = Lanes{} + kNone;
  const Lanes infinity = -none;
  logits = logits < infinity ? logits : none;
}

inline __attribute__((always_inline)) void raise(Lanes& highest, Lanes logits) {
  keep_finite(logits);
  highest = highest < logits ? logits : highest;
}

inline __attribute__((always_inline)) float maximum_of(const float* logits, std::size_t count) {
  Lanes even = Lanes{} + kNone, odd = even;  // two, so that one need not wait for the other
  std::size_t i = 0;
  for (; i + 2 * kWidth <= count; i += 2 * kWidth) {
    raise(even, at(logits + i));
    raise(odd, at(logits + i + kWidth));
  }
  raise(even, odd);
  float rest[2 * kWidth];
  std::fill(std::copy(logits + i, logits + count, rest), rest + 2 * kWidth, kNone);
  raise(even, at(rest));
  raise(even, at(rest + kWidth));
  float highest = kNone;
  for (std::size_t lane = 0; lane < kWidth; ++lane) highest = std::max(highest, even[lane]);
  return highest;
}

inline __attribute__((always_inline)) void maxima_of(const float* logits, std::size_t count, float* maxima) {
  for (std::size_t first = 0; first < count; first += kLogitBlock) {
    *maxima++ = maximum_of(logits + first, std::min(kLogitBlock, count - first));
  }
}

struct Scale {
  float highest, steepness, least;
};

inline __attribute__((always_inline)) void weigh_lanes(Lanes logits, const Scale& scale, float* weights) {
  const Lanes zero = {}, none = zero + kNone;
  keep_finite(logits);
  Lanes weight = (logits - scale.highest) * scale.steepness;
  exp_lanes(weight);
  weight = none < logits ? weight : zero;
  *reinterpret_cast<Lanes*>(weights) = weight < scale.least ? zero : weight;
}

inline __attribute__((always_inline)) double weights_of(const float* logits, std::size_t count, const Scale& scale,
                                                        float* weights) {
  double total = 0;
  for (std::size_t first = 0; first < count; first += kLogitBlock) {
    const std::size_t end = std::min(first + kLogitBlock, count);
    Lanes sums = {};
    std::size_t i = first;
    for (; i + kWidth <= end; i += kWidth) {
      weigh_lanes(at(logits + i), scale, weights + i);
      sums += at(weights + i);
    }
    if (i < end) {
      float rest[2][kWidth];
      std::fill(std::copy(logits + i, logits + end, rest[0]), rest[0] + kWidth, kNone);
      weigh_lanes(at(rest[0]), scale, rest[1]);
      std::copy_n(rest[1], end - i, weights + i);
      sums += at(rest[1]);
    }
    for (std::size_t lane = 0; lane < kWidth; ++lane) total += static_cast<double>(sums[lane]);
  }
  return total;
}

struct Passes {
  void (*maxima)(const float*, std::size_t, float*);
  double (*weights)(const float*, std::size_t, const Scale&, float*);
};

void maxima_any(const float* logits, std::size_t count, float* maxima) { maxima_of(logits, count, maxima); }
double weights_any(const float* logits, std::size_t count, const Scale& scale, float* weights) {
  return weights_of(logits, count, scale, weights);
}

#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) void maxima_avx2(const float* logits, std::size_t count, float* maxima) {
  maxima_of(logits, count, maxima);
}
__attribute__((target("avx2,fma"))) double weights_avx2(const float* logits, std::size_t count, const Scale& scale,
                                                        float* weights) {
  return weights_of(logits, count, scale, weights);
}
__attribute__((target("avx512f,prefer-vector-width=512"))) void maxima_avx512(const float* logits, std::size_t count,
                                                                              float* maxima) {
  maxima_of(logits, count, maxima);
}
__attribute__((target("avx512f,prefer-vector-width=512"))) double weights_avx512(const float* logits, std::size_t count,
                                                                                 const Scale& scale, float* weights) {
  return weights_of(logits, count, scale, weights);
}

Passes choose_passes() {
  if (__builtin_cpu_supports("avx512f")) return {maxima_avx512, weights_avx512};
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return {maxima_avx2, weights_avx2};
  return {maxima_any, weights_any};
}
#else
Passes choose_passes() { return {maxima_any, weights_any}; }
#endif

const Passes& passes() {
  static const Passes kChosenPasses = choose_passes();
  return kChosenPasses;
}

}  // namespace

void find_maxima(std::span<const float> logits, std::vector<float>& maxima) {
  maxima.resize((logits.size() + kLogitBlock - 1) / kLogitBlock);
  passes().maxima(logits.data(), logits.size(), maxima.data());
}

double weigh(std::span<const float> logits, float highest, float steepness, float least, float* weights) {
  return passes().weights(logits.data(), logits.size(), {highest, steepness, least}, weights);
}

}  // namespace windlass::worker
