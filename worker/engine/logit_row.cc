// Each pass is written once and compiled for several instruction sets. The remainder of a row is padded to a full vector, so
// that a logit's weight does not depend on its position.
#include "worker/engine/logit_row.h"

#include <algorithm>
#include <functional>
#include <limits>

#include "worker/backend/vectors.h"

namespace windlass::worker {
namespace {

constexpr float kNone = -std::numeric_limits<float>::infinity();

// Replaces non-finite lanes by minus infinity.
template <int kLanes>
inline __attribute__((always_inline)) void keep_finite(Vector<kLanes>& logits) {
  const Vector<kLanes> none = Vector<kLanes>{} + kNone;
  const Vector<kLanes> infinity = -none;
  logits = logits < infinity ? logits : none;
}

// Loads the remainder of a row as a vector.
template <int kLanes>
inline __attribute__((always_inline)) void take_rest(const float* logits, std::size_t count, float* rest) {
  std::fill(std::copy_n(logits, count, rest), rest + kLanes, kNone);
}

template <int kLanes>
inline __attribute__((always_inline)) void raise(Vector<kLanes>& highest, const float* from) {
  Vector<kLanes> logits = at<kLanes>(from);
  keep_finite<kLanes>(logits);
  highest = highest < logits ? logits : highest;
}

template <int kLanes>
inline __attribute__((always_inline)) float maximum_of(const float* logits, std::size_t count) {
  Vector<kLanes> even = Vector<kLanes>{} + kNone, odd = even;  // two accumulators, to shorten the dependency chain
  std::size_t i = 0;
  for (; i + 2 * kLanes <= count; i += 2 * kLanes) {
    raise<kLanes>(even, logits + i);
    raise<kLanes>(odd, logits + i + kLanes);
  }
  even = even < odd ? odd : even;
  float rest[kLanes];
  for (; i < count; i += kLanes) {
    take_rest<kLanes>(logits + i, std::min<std::size_t>(kLanes, count - i), rest);
    raise<kLanes>(even, rest);
  }
  at<kLanes>(rest) = even;
  return *std::max_element(rest, rest + kLanes);
}

struct FindMaxima {
  template <int kLanes>
  static inline __attribute__((always_inline)) void run(const float* logits, std::size_t count, float* maxima) {
    for (std::size_t first = 0; first < count; first += kLogitBlock) {
      *maxima++ = maximum_of<kLanes>(logits + first, std::min(kLogitBlock, count - first));
    }
  }
};

struct Scale {
  float highest, steepness, least;
};

template <int kLanes>
inline __attribute__((always_inline)) void weigh_vector(const float* from, const Scale& scale, float* weights) {
  const Vector<kLanes> zero = {}, none = zero + kNone, least = zero + scale.least;
  Vector<kLanes> logits = at<kLanes>(from);
  keep_finite<kLanes>(logits);
  Vector<kLanes> weight = (logits - scale.highest) * scale.steepness;
  exp_of<kLanes>(weight);
  weight = none < logits ? weight : zero;
  at<kLanes>(weights) = weight < least ? zero : weight;
}

struct WeighRow {
  template <int kLanes>
  static inline __attribute__((always_inline)) double run(const float* logits, std::size_t count, const Scale& scale,
                                                          float* weights) {
    double total = 0;
    float rest[kLanes], weights_of_rest[kLanes];
    for (std::size_t first = 0; first < count; first += kLogitBlock) {
      const std::size_t end = std::min(first + kLogitBlock, count);
      Vector<kLanes> sums = {};
      std::size_t i = first;
      for (; i + kLanes <= end; i += kLanes) {
        weigh_vector<kLanes>(logits + i, scale, weights + i);
        sums += at<kLanes>(weights + i);
      }
      if (i < end) {
        take_rest<kLanes>(logits + i, end - i, rest);
        weigh_vector<kLanes>(rest, scale, weights_of_rest);
        std::copy_n(weights_of_rest, end - i, weights + i);
        sums += at<kLanes>(weights_of_rest);
      }
      for (int lane = 0; lane < kLanes; ++lane) total += static_cast<double>(sums[lane]);
    }
    return total;
  }
};

}  // namespace

void find_maxima(std::span<const float> logits, std::vector<float>& maxima) {
  maxima.resize((logits.size() + kLogitBlock - 1) / kLogitBlock);
  Compiled<FindMaxima, void(const float*, std::size_t, float*)>::for_this_processor()(logits.data(), logits.size(),
                                                                                      maxima.data());
}

void find_likeliest(std::span<const float> logits, std::span<const float> maxima, std::size_t most, std::vector<float>& scratch,
                    std::vector<TokenWeight>& likeliest) {
  // This many blocks each have a maximum of at least `least`.
  float least = kNone;
  if (most < maxima.size()) {
    scratch.assign(maxima.begin(), maxima.end());
    const auto last = scratch.begin() + static_cast<std::ptrdiff_t>(most) - 1;
    std::nth_element(scratch.begin(), last, scratch.end(), std::greater<>());
    least = *last;
  }
  likeliest.clear();
  for (std::size_t block = 0; block < maxima.size(); ++block) {
    if (!(maxima[block] >= least)) continue;
    for (std::size_t id = block * kLogitBlock; id < std::min((block + 1) * kLogitBlock, logits.size()); ++id) {
      if (logits[id] >= least && logits[id] - logits[id] == 0) {  // x - x is 0 only for finite x
        likeliest.push_back({static_cast<double>(logits[id]), static_cast<std::int32_t>(id)});
      }
    }
  }
  if (likeliest.size() <= most) return;
  std::nth_element(likeliest.begin(), likeliest.begin() + static_cast<std::ptrdiff_t>(most), likeliest.end(), likelier);
  likeliest.resize(most);
}

double weigh(std::span<const float> logits, float highest, float steepness, float least, float* weights) {
  return Compiled<WeighRow, double(const float*, std::size_t, const Scale&, float*)>::for_this_processor()(
      logits.data(), logits.size(), {highest, steepness, least}, weights);
}

}  // namespace windlass::worker
