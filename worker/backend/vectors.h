// Vectors of floats, for loops that the compiler leaves scalar or vectorises badly. Each loop is compiled once per vector
// width, with the helpers inlined into it. Vectors must not be wider than the processor's: gcc 12 splits wider sums and
// products into pieces, but breaks wider comparisons down lane by lane. For the same reason, `<` and `>` are the only
// comparisons used.
#pragma once

#include <cstdint>
#include <cstring>

// Function target with 512-bit vectors wherever possible. clang does not know the option and would ignore the whole target.
#if defined(__clang__)
#define WINDLASS_WIDE ""
#else
#define WINDLASS_WIDE ",prefer-vector-width=512"
#endif

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

// The vector set of this processor; wider vectors have no benefit.
enum class VectorSet { kAny, kAvx2, kAvx512 };
inline VectorSet widest_vectors() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return VectorSet::kAvx512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return VectorSet::kAvx2;
#endif
  return VectorSet::kAny;
}

// A loop, Loop::run<kLanes>(arguments), compiled for each vector set. Dispatches by hand because sanitizers break ifunc.
// REQUIRES: run() is always_inline.
template <class Loop, class Signature>
struct Compiled;
template <class Loop, class R, class... Arguments>
struct Compiled<Loop, R(Arguments...)> {
  static R any(Arguments... arguments) { return Loop::template run<4>(arguments...); }
#if defined(__x86_64__)
  __attribute__((target("avx2,fma"))) static R avx2(Arguments... arguments) { return Loop::template run<8>(arguments...); }
  __attribute__((target("avx512f" WINDLASS_WIDE))) static R avx512(Arguments... arguments) {
    return Loop::template run<16>(arguments...);
  }
#else
  static constexpr auto avx2 = any, avx512 = any;
#endif

  static auto for_vectors(VectorSet set) -> R (*)(Arguments...) {
    switch (set) {
      case VectorSet::kAvx512: return avx512;
      case VectorSet::kAvx2: return avx2;
      default: return any;
    }
  }
  static auto for_this_processor() -> R (*)(Arguments...) {
    static const auto kChosen = for_vectors(widest_vectors());
    return kChosen;
  }
};

// e^x for x <= 0, to about two units in the last place: Cephes' expf (Moshier 1992). Returns 0 below -87.
template <int kLanes>
inline __attribute__((always_inline)) void exp_of(Vector<kLanes>& x) {
  const Vector<kLanes> lowest = Vector<kLanes>{} - 87.0F;
  const Vector<kLanes> exact = x;
  x = x < lowest ? lowest : x;
  const float round = 0x1.8p23F;  // adding and subtracting it rounds to an integer
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
