// Rng is a named, seeded stream of random numbers. The same seed and name give the same numbers on every platform.
//
// The distributions of the C++ standard differ between libraries, so they are implemented here on top of std::mt19937_64, whose
// output the standard defines. Use one stream per source ("arrivals", "lengths"), so that drawing more from one does not shift
// another. Plain value without shared state; use a stream from one thread at a time.
#pragma once

#include <cstdint>
#include <random>
#include <string_view>

namespace windlass {

class Rng {
 public:
  // The stream depends on both arguments and nothing else.
  Rng(std::uint64_t seed, std::string_view stream);

  // 64 uniform bits.
  [[nodiscard]] std::uint64_t bits() { return engine_(); }

  // Uniform in [0, 1), with 53 bits.
  [[nodiscard]] double uniform();

  // Uniform in [low, high).
  [[nodiscard]] double uniform(double low, double high) { return low + (high - low) * uniform(); }

  // Uniform integer in [low, high], without bias. REQUIRES: low <= high.
  [[nodiscard]] std::int64_t integer(std::int64_t low, std::int64_t high);

  // Exponential with the given rate (mean 1 / rate). REQUIRES: rate > 0.
  [[nodiscard]] double exponential(double rate);

  // Standard normal.
  [[nodiscard]] double normal();

  // Gamma with the given shape and scale (mean shape * scale). REQUIRES: shape > 0 and scale > 0. Results below the smallest
  // double, which occur for small shapes, become 0.
  [[nodiscard]] double gamma(double shape, double scale);

  // Poisson with the given mean. REQUIRES: 0 <= mean < 1e6. Time grows with the mean.
  [[nodiscard]] std::int64_t poisson(double mean);

 private:
  std::mt19937_64 engine_;
};

}  // namespace windlass
