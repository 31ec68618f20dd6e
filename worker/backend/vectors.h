// Several floats as one value, for loops that the compiler leaves scalar or vectorises the wrong way. What is here is inlined
// into functions that are compiled for one processor or another, each with the width that it has: gcc 12 cuts wider sums and
// products into pieces, but takes wider comparisons apart, lane by lane. By `<` and `>` alone, for the same reason.
#pragma once

#include <cstdint>
#include <cstring>

namespace windlass::worker {

template <int kLanes>
using Vector __attribute__((vector_size(kLanes * sizeof(float)), aligned(alignof(float)), may_alias)) = float;
template <int kLanes>
using Words __attribute__((vector_size(kLanes * sizeof(std::int32_t)), aligned(1), may_alias)) = std::int32_t;

template <int kLanes>
inline __attribute__((always_inline)) const Vector<kLanes>& at(const float* floats) {
  return *reinterpret_cast<const Vector<kLanes>*>(floats);
}
template <int kLanes>
inline __attribute__((always_inline)) Vector<kLanes>& at(float* floats) {
  return *reinterpret_cast<Vector<kLanes>*>(floats);
}

// e^x for x <= 0, to about two units in the last place: Cephes' expf (Moshier 1992). Below -87 it is 0.
template <int kLanes>
inline __attribute__((always_inline)) void exp_of(Vector<kLanes>& x) {
  const Vector<kLanes> lowest = Vector<kLanes>{} - 87.0F;
  const Vector<kLanes> exact = x;
  x = x < lowest ? lowest : x;
  const float round = 0x1.8p23F;  // adding and taking away leaves a whole number
  const Vector<kLanes> whole = (x * 1.44269504F + round) - round;
  const Vector<kLanes> r = (x - whole * 0.693359375F) + whole * 2.12194440e-4F;
  Vector<kLanes> p = r * 1.9875691500e-4F + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = p * r * r + r + 1.0F;
  const Words<kLanes> exponent = (__builtin_convertvector(whole, Words<kLanes>) + 127) << 23;
  Vector<kLanes> power;
  std::memcpy(&power, &exponent, sizeof(power));
  x = exact < lowest ? Vector<kLanes>{} : p * power;
}

}  // namespace windlass::worker
