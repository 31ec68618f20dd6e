// Sixteen floats as one value, for loops that the compiler leaves scalar or vectorises the wrong way; it maps them to what the
// target has. What is here is inlined into functions that are compiled for one processor or another.
#pragma once

#include <cstdint>
#include <cstring>

namespace windlass::worker {

using Lanes = float __attribute__((vector_size(16 * sizeof(float)), aligned(alignof(float)), may_alias));
constexpr std::int64_t kLanes = 16;

// e^x for x <= 0, to about two units in the last place: Cephes' expf (Moshier 1992). Below -87 it stays at e^-87, which is as
// good as nothing.
inline __attribute__((always_inline)) void exp_lanes(Lanes& x) {
  using Integers = std::int32_t __attribute__((vector_size(16 * sizeof(std::int32_t))));
  const Lanes lowest = Lanes{} - 87.0F;
  x = x < lowest ? lowest : x;
  const float round = 0x1.8p23F;  // adding and taking away leaves a whole number
  const Lanes whole = (x * 1.44269504F + round) - round;
  const Lanes r = (x - whole * 0.693359375F) + whole * 2.12194440e-4F;
  Lanes p = r * 1.9875691500e-4F + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = p * r * r + r + 1.0F;
  const Integers exponent = (__builtin_convertvector(whole, Integers) + 127) << 23;
  Lanes power;
  std::memcpy(&power, &exponent, sizeof(power));
  x = p * power;
}

}  // namespace windlass::worker
