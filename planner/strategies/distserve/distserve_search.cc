// See distserve_search.h.
#include "planner/strategies/distserve/distserve_search.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace windlass::search {
namespace {

constexpr std::size_t kWave = 2;  // units of each family at once
constexpr double kLeastGuess_per_s = 1e-3;
constexpr double kLeastShare = 1e-3;  // of a unit's ceiling: what holds less has no goodput

double share(const Unit& unit, double per_s) { return per_s / unit.worth; }

std::vector<std::size_t> by_estimate(const std::vector<Unit>& units) {
  std::vector<std::size_t> order(units.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return share(units[a], units[a].estimate_per_s) > share(units[b], units[b].estimate_per_s);
  });
  return order;
}

Result<Capacity> goodput_of(const Unit& unit, double beat_per_s, const UnitSearchOptions& options, const StopCheck& stop) {
  CapacitySearch search;
  search.requests = options.requests;
  search.seed = options.seed;
  search.tolerance = options.tolerance;
  search.most_per_s = std::min(search.most_per_s, unit.ceiling_per_s);
  search.least_per_s = std::max(search.least_per_s, std::min(kLeastShare * unit.ceiling_per_s, 1.0));
  search.first_guess_per_s = std::max(unit.estimate_per_s, std::max(beat_per_s, kLeastGuess_per_s));
  search.only_above_per_s = beat_per_s;
  search.figures = false;
  search.stop = stop;
  return capacity_of(*unit.problem, unit.deployment, search);
}

}  // namespace

Result<UnitAnswers> search_units(const std::vector<std::vector<Unit>>& families, const UnitSearchOptions& options,
                                 const Effort& effort) {
  SerialExecutor serial;
  Executor& executor = effort.executor != nullptr ? *effort.executor : serial;
  UnitAnswers answers;
  std::vector<std::vector<std::size_t>> orders;
  std::size_t longest = 0, all = 0, done = 0;
  for (const std::vector<Unit>& units : families) {
    orders.push_back(by_estimate(units));
    answers.families.push_back({std::vector<UnitGoodput>(units.size(), UnitGoodput{0, true}), std::nullopt});
    longest = std::max(longest, units.size());
    all += units.size();
  }
  struct Task {
    std::size_t family;
    std::size_t unit;
    double beat_per_s;
  };
  const auto without_winner = [&] {
    return std::any_of(answers.families.begin(), answers.families.end(), [](const UnitAnswer& of) { return !of.best; });
  };
  for (std::size_t from = 0; from < longest; from += kWave) {
    if (stop_requested(effort.stop) || answers.iterations >= effort.most_iterations) {
      answers.stopped = true;
      break;
    }
    std::vector<Task> tasks;
    for (std::size_t family = 0; family < families.size(); ++family) {
      const std::vector<Unit>& units = families[family];
      const std::optional<std::size_t>& best = answers.families[family].best;
      for (std::size_t at = from; at < std::min(from + kWave, units.size()); ++at) {
        const std::size_t unit = orders[family][at];
        const double best_share = best ? share(units[*best], answers.families[family].goodputs[*best].requests_per_s) : 0;
        tasks.push_back({family, unit, options.prune ? best_share * units[unit].worth : 0});
      }
    }
    auto found = parallel_map<Result<Capacity>>(
        executor, tasks.size(),
        [&](std::size_t i) {
          return goodput_of(families[tasks[i].family][tasks[i].unit], tasks[i].beat_per_s, options, effort.stop);
        },
        effort.stop);
    if (!found.ok()) {
      answers.stopped = true;
      break;
    }
    for (std::size_t i = 0; i < tasks.size(); ++i) {
      const Result<Capacity>& capacity = (*found)[i];
      if (!capacity.ok() && capacity.error().code == ErrorCode::kCancelled) {
        answers.stopped = true;
        continue;
      }
      if (!capacity.ok()) return capacity.error();
      const auto [family, unit, beat_per_s] = tasks[i];
      UnitAnswer& answer = answers.families[family];
      const std::vector<Unit>& units = families[family];
      answers.trials += capacity->trials;
      answers.iterations += capacity->iterations;
      ++done;
      answer.goodputs[unit] = {capacity->requests_per_s, capacity->requests_per_s <= 0 && beat_per_s > 0};
      if (capacity->requests_per_s <= 0) continue;
      const double best_share = answer.best ? share(units[*answer.best], answer.goodputs[*answer.best].requests_per_s) : 0;
      if (share(units[unit], capacity->requests_per_s) > best_share) answer.best = unit;
    }
    if (effort.progress) effort.progress("goodput of instances", static_cast<double>(done) / static_cast<double>(all));
    if (answers.stopped) break;
  }
  if (answers.stopped && without_winner())
    return Error{ErrorCode::kCancelled, "stopped before any instance's goodput was known"};
  return answers;
}

}  // namespace windlass::search
