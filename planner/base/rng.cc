// The methods behind Rng: splitmix64 for seeding, 53-bit uniform numbers, inversion for the exponential, the polar method for
// the normal, Marsaglia and Tsang for the gamma, and counting for the Poisson distribution.
#include "planner/base/rng.h"

#include <cassert>
#include <cmath>

#include "planner/base/fnv.h"

namespace windlass {
namespace {

std::uint64_t mix(std::uint64_t z) {
  z += 0x9E3779B97F4A7C15ULL;
  z = (z ^ (z >> 30U)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27U)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31U);
}

std::uint64_t name_hash(std::string_view name) {
  Fnv1a hash;
  hash.mix(name);
  return hash.value();
}

}  // namespace

Rng::Rng(std::uint64_t seed, std::string_view stream) : engine_(mix(mix(seed) ^ name_hash(stream))) {}

double Rng::uniform() { return static_cast<double>(bits() >> 11U) * 0x1.0p-53; }

std::int64_t Rng::integer(std::int64_t low, std::int64_t high) {
  assert(low <= high);
  const std::uint64_t span = static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low) + 1;
  if (span == 0) return static_cast<std::int64_t>(bits());  // the whole range of 64 bits
  // Values at or above the largest multiple of span would favour small results, so draw again.
  const std::uint64_t limit = UINT64_MAX - (UINT64_MAX % span + 1) % span;
  std::uint64_t draw = bits();
  while (draw > limit) draw = bits();
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(low) + draw % span);
}

double Rng::exponential(double rate) {
  assert(rate > 0);
  return -std::log1p(-uniform()) / rate;
}

double Rng::normal() {
  // Marsaglia's polar method. Its second number is discarded, so that the state of a stream is that of its engine alone.
  while (true) {
    const double x = uniform(-1, 1);
    const double y = uniform(-1, 1);
    const double square = x * x + y * y;
    if (square > 0 && square < 1) return x * std::sqrt(-2 * std::log(square) / square);
  }
}

double Rng::gamma(double shape, double scale) {
  assert(shape > 0 && scale > 0);
  // Marsaglia and Tsang, "A simple method for generating gamma variables" (2000), Section 2; below shape 1 their boost (Section
  // 6).
  if (shape < 1) {
    const double root = std::pow(1 - uniform(), 1 / shape);
    return root * gamma(shape + 1, scale);
  }
  const double d = shape - 1.0 / 3;
  const double c = 1 / std::sqrt(9 * d);
  while (true) {
    const double x = normal();
    const double v = std::pow(1 + c * x, 3);
    if (!(v > 0)) continue;
    if (std::log(1 - uniform()) < 0.5 * x * x + d - d * v + d * std::log(v)) return d * v * scale;
  }
}

std::int64_t Rng::poisson(double mean) {
  assert(mean >= 0 && mean < 1e6);
  // Count exponential gaps of rate 1 inside an interval of length `mean`: exact, and free of underflow.
  std::int64_t count = 0;
  for (double t = exponential(1); t < mean; t += exponential(1)) ++count;
  return count;
}

}  // namespace windlass
