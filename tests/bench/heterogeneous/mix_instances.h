// Random instances of the cheapest-mix problem, for its tests and experiments.
#pragma once

#include <cmath>
#include <limits>
#include <string>

#include "planner/base/rng.h"
#include "planner/strategies/mix/mix.h"

namespace windlass::search {

struct MixInstanceSpec {
  int models = 1;
  int accelerators = 3;
  int kinds = 3;             // of each model
  int buckets = 4;           // of each model
  double workers = 4;        // approximate number of workers of an average kind that a model needs
  double impossible = 0.15;  // share of loads that cannot be served
  bool budgets = false;      // limits on GPUs and cost, which may be too low
};

// Expensive kinds are faster, by different factors per bucket, so that a mix of several kinds pays off.
inline MixProblem random_mix(const MixInstanceSpec& spec, std::uint64_t seed) {
  Rng rng(seed, "mix");
  MixProblem problem;
  for (int a = 0; a < spec.accelerators; ++a) {
    problem.accelerators.push_back({"class-" + std::to_string(a)});
    if (spec.budgets && rng.uniform() < 0.7)
      problem.accelerators.back().gpus = static_cast<int>(rng.integer(0, static_cast<int>(6 * spec.workers)));
  }
  for (int m = 0; m < spec.models; ++m) {
    MixModel& model = problem.models.emplace_back();
    model.name = "model-" + std::to_string(m);
    model.priority = spec.budgets ? static_cast<int>(rng.integer(0, 1)) : 0;
    std::vector<double> speed;
    for (int k = 0; k < spec.kinds; ++k) {
      const int gpus = 1 << rng.integer(0, 2);
      speed.push_back(gpus * std::exp(1.2 * rng.uniform() - 0.6));
      const double price = std::round(100 * speed.back() * std::exp(0.8 * rng.uniform() - 0.4)) / 100;
      model.kinds.push_back(
          {"kind-" + std::to_string(k), static_cast<int>(rng.integer(0, spec.accelerators - 1)), gpus, price});
    }
    for (int b = 0; b < spec.buckets; ++b) {
      MixBucket& bucket = model.buckets.emplace_back();
      const double size = std::exp(3 * rng.uniform() - 1.5);
      for (int k = 0; k < spec.kinds; ++k) {
        const double load = size * std::exp(rng.uniform() - 0.5) / speed[static_cast<std::size_t>(k)];
        bucket.load_s.push_back(rng.uniform() < spec.impossible ? std::numeric_limits<double>::infinity() : load);
      }
      bucket.requests_per_s = spec.workers * rng.uniform() * 2 / spec.buckets / size;
    }
  }
  if (spec.budgets && rng.uniform() < 0.5)
    problem.max_gpus = static_cast<int>(rng.integer(2, static_cast<int>(6 * spec.workers * spec.models)));
  if (spec.budgets && rng.uniform() < 0.5) problem.max_cost_per_hour = spec.workers * spec.models * 3 * rng.uniform();
  return problem;
}

}  // namespace windlass::search
