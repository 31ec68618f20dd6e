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
constexpr std::int64_t kMoreRequests = 4;
// Far from the next seeds, with which callers judge what was found.
constexpr std::uint64_t kSeedsOfFinals = 1000;

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
      : families_(families), options_(options), effort_(effort), margin_(options.finals > 0 ? kFinalMargin : 0) {
    for (const std::vector<Unit>& units : families) {
      orders_.push_back(by_estimate(units));
      answers_.families.push_back({std::vector<UnitGoodput>(units.size(), UnitGoodput{0, true}), std::nullopt});
      all_ += units.size();
    }
  }

  Result<UnitAnswers> run() {
    WINDLASS_ASSIGN_OR_RETURN(bool complete, round());
    answers_.stopped = !complete;
    const bool without_winner =
        std::any_of(answers_.families.begin(), answers_.families.end(), [](const UnitAnswer& of) { return !of.best; });
    if (answers_.stopped && without_winner)
      return Error{ErrorCode::kCancelled, "stopped before any instance's goodput was known"};
    for (int final = 0; final < options_.finals && complete && has_steps_for_final(); ++final) {
      const std::vector<UnitAnswer> before = answers_.families;
      for (std::size_t family = 0; family < families_.size(); ++family) select_finalists(family);
      options_.requests *= kMoreRequests;
      options_.seed += kSeedsOfFinals;
      margin_ /= 2;
      WINDLASS_ASSIGN_OR_RETURN(complete, round());
      for (std::size_t family = 0; family < families_.size(); ++family) {
        UnitAnswer& answer = answers_.families[family];
        if (!complete || (!orders_[family].empty() && !answer.best)) answer = before[family];
      }
    }
    if (!complete && stop_requested(effort_.stop)) answers_.stopped = true;  // not for want of steps: a final is extra
    return std::move(answers_);
  }

 private:
  // Tries the units in `orders_`; false: stopped before the last one.
  Result<bool> round() {
    std::size_t longest = 0;
    for (const std::vector<std::size_t>& order : orders_) longest = std::max(longest, order.size());
    for (std::size_t from = 0; from < longest; from += kWave) {
      if (stop_requested(effort_.stop) || answers_.iterations >= effort_.max_iterations) return false;
      WINDLASS_ASSIGN_OR_RETURN(const bool asked, ask(wave(from)));
      if (!asked) return false;
    }
    return true;
  }

  // A final may take as many iterations as there are more requests.
  [[nodiscard]] bool has_steps_for_final() const { return answers_.iterations <= effort_.max_iterations / (1 + kMoreRequests); }

  // Leaves in `orders_` what may be the best of the family and forgets its goodputs. The best itself is among it, so that its
  // goodput is no lucky one either.
  void select_finalists(std::size_t family) {
    UnitAnswer& answer = answers_.families[family];
    if (!answer.best) {
      orders_[family].clear();
      return;
    }
    const double least = (1 - margin_) * best_share(families_[family], answer);
    std::erase_if(orders_[family], [&](std::size_t unit) {
      return share(families_[family][unit], answer.goodputs[unit].requests_per_s) < least;
    });
    answer.best.reset();
    for (const std::size_t unit : orders_[family]) answer.goodputs[unit] = {0, true};
  }

  [[nodiscard]] std::vector<Task> wave(std::size_t from) const {
    std::vector<Task> tasks;
    for (std::size_t family = 0; family < families_.size(); ++family) {
      const std::vector<Unit>& units = families_[family];
      const double beat = options_.prune ? (1 - margin_) * best_share(units, answers_.families[family]) : 0;
      for (std::size_t at = from; at < std::min(from + kWave, orders_[family].size()); ++at) {
        const std::size_t unit = orders_[family][at];
        tasks.push_back({family, unit, beat * units[unit].worth});
      }
    }
    return tasks;
  }

  // False: stopped.
  Result<bool> ask(const std::vector<Task>& tasks) {
    SerialExecutor serial;
    auto found = parallel_map<Result<Capacity>>(
        effort_.executor != nullptr ? *effort_.executor : serial, tasks.size(),
        [&](std::size_t i) {
          return goodput_of(families_[tasks[i].family][tasks[i].unit], tasks[i].beat_per_s, options_, effort_.stop);
        },
        effort_.stop);
    if (!found.ok()) return false;
    bool all = true;
    for (std::size_t i = 0; i < tasks.size(); ++i) {
      WINDLASS_ASSIGN_OR_RETURN(const bool taken, take(tasks[i], (*found)[i]));
      all = all && taken;
    }
    const double done = std::min(1.0, static_cast<double>(done_) / static_cast<double>(all_));
    if (effort_.progress) effort_.progress("goodput of instances", done);
    return all;
  }

  // False: the unit was not tried to the end.
  Result<bool> take(const Task& task, const Result<Capacity>& capacity) {
    if (!capacity.ok() && capacity.error().code == ErrorCode::kCancelled) return false;
    if (!capacity.ok()) return capacity.error();
    UnitAnswer& answer = answers_.families[task.family];
    const std::vector<Unit>& units = families_[task.family];
    answers_.trials += capacity->trials;
    answers_.iterations += capacity->iterations;
    ++done_;
    const double found_per_s = capacity->requests_per_s;
    answer.goodputs[task.unit] = {found_per_s, found_per_s <= 0 && task.beat_per_s > 0};
    if (found_per_s > 0 && share(units[task.unit], found_per_s) > best_share(units, answer)) answer.best = task.unit;
    return true;
  }

  const std::vector<std::vector<Unit>>& families_;
  UnitSearchOptions options_;  // of this round
  const Effort& effort_;
  double margin_;                                 // units that are worse than the best by this share are out
  std::vector<std::vector<std::size_t>> orders_;  // by family: units to try in this round, the most promising first
  UnitAnswers answers_;
  std::size_t all_ = 0, done_ = 0;
};

}  // namespace

Result<UnitAnswers> search_units(const std::vector<std::vector<Unit>>& families, const UnitSearchOptions& options,
                                 const Effort& effort) {
  return UnitSearch(families, options, effort).run();
}

}  // namespace windlass::search
