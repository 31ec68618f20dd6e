// See distserve_search.h.
#include "planner/strategies/distserve/distserve_search.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace windlass::search {
namespace {

constexpr std::size_t kWave = 2;  // units of each family per wave
constexpr double kLeastGuess_per_s = 1e-3;
constexpr double kLeastShare = 1e-3;  // share of a unit's ceiling below which it has no goodput

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
  search.max_per_s = std::min(search.max_per_s, unit.ceiling_per_s);
  search.least_per_s = std::max(search.least_per_s, std::min(kLeastShare * unit.ceiling_per_s, 1.0));
  search.first_guess_per_s = std::max(unit.estimate_per_s, std::max(beat_per_s, kLeastGuess_per_s));
  search.only_above_per_s = beat_per_s;
  search.figures = false;
  search.stop = stop;
  return capacity_of(*unit.problem, unit.deployment, search);
}

// A unit to try, and the rate it must beat.
struct Task {
  std::size_t family;
  std::size_t unit;
  double beat_per_s;
};

double best_share(const std::vector<Unit>& units, const UnitAnswer& answer) {
  return answer.best ? share(units[*answer.best], answer.goodputs[*answer.best].requests_per_s) : 0;
}

class UnitSearch {
 public:
  UnitSearch(const std::vector<std::vector<Unit>>& families, const UnitSearchOptions& options, const Effort& effort)
      : families_(families), options_(options), effort_(effort) {
    for (const std::vector<Unit>& units : families) {
      orders_.push_back(by_estimate(units));
      answers_.families.push_back({std::vector<UnitGoodput>(units.size(), UnitGoodput{0, true}), std::nullopt});
      longest_ = std::max(longest_, units.size());
      all_ += units.size();
    }
  }

  Result<UnitAnswers> run() {
    for (std::size_t from = 0; from < longest_ && !answers_.stopped; from += kWave) {
      answers_.stopped = stop_requested(effort_.stop) || answers_.iterations >= effort_.max_iterations;
      if (!answers_.stopped) WINDLASS_RETURN_IF_ERROR(ask(wave(from)));
    }
    const bool without_winner =
        std::any_of(answers_.families.begin(), answers_.families.end(), [](const UnitAnswer& of) { return !of.best; });
    if (answers_.stopped && without_winner)
      return Error{ErrorCode::kCancelled, "stopped before any instance's goodput was known"};
    return std::move(answers_);
  }

 private:
  [[nodiscard]] std::vector<Task> wave(std::size_t from) const {
    std::vector<Task> tasks;
    for (std::size_t family = 0; family < families_.size(); ++family) {
      const std::vector<Unit>& units = families_[family];
      const double beat = options_.prune ? best_share(units, answers_.families[family]) : 0;
      for (std::size_t at = from; at < std::min(from + kWave, units.size()); ++at) {
        const std::size_t unit = orders_[family][at];
        tasks.push_back({family, unit, beat * units[unit].worth});
      }
    }
    return tasks;
  }

  Result<void> ask(const std::vector<Task>& tasks) {
    SerialExecutor serial;
    auto found = parallel_map<Result<Capacity>>(
        effort_.executor != nullptr ? *effort_.executor : serial, tasks.size(),
        [&](std::size_t i) {
          return goodput_of(families_[tasks[i].family][tasks[i].unit], tasks[i].beat_per_s, options_, effort_.stop);
        },
        effort_.stop);
    if (!found.ok()) {
      answers_.stopped = true;
      return {};
    }
    for (std::size_t i = 0; i < tasks.size(); ++i) WINDLASS_RETURN_IF_ERROR(take(tasks[i], (*found)[i]));
    if (effort_.progress) effort_.progress("goodput of instances", static_cast<double>(done_) / static_cast<double>(all_));
    return {};
  }

  Result<void> take(const Task& task, const Result<Capacity>& capacity) {
    if (!capacity.ok() && capacity.error().code == ErrorCode::kCancelled) {
      answers_.stopped = true;
      return {};
    }
    if (!capacity.ok()) return capacity.error();
    UnitAnswer& answer = answers_.families[task.family];
    const std::vector<Unit>& units = families_[task.family];
    answers_.trials += capacity->trials;
    answers_.iterations += capacity->iterations;
    ++done_;
    const double found_per_s = capacity->requests_per_s;
    answer.goodputs[task.unit] = {found_per_s, found_per_s <= 0 && task.beat_per_s > 0};
    if (found_per_s > 0 && share(units[task.unit], found_per_s) > best_share(units, answer)) answer.best = task.unit;
    return {};
  }

  const std::vector<std::vector<Unit>>& families_;
  const UnitSearchOptions& options_;
  const Effort& effort_;
  std::vector<std::vector<std::size_t>> orders_;  // by family: units, the most promising first
  UnitAnswers answers_;
  std::size_t longest_ = 0, all_ = 0, done_ = 0;
};

}  // namespace

Result<UnitAnswers> search_units(const std::vector<std::vector<Unit>>& families, const UnitSearchOptions& options,
                                 const Effort& effort) {
  return UnitSearch(families, options, effort).run();
}

}  // namespace windlass::search
