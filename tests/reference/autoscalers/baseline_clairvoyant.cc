// Implements baseline_clairvoyant.h.
#include "tests/reference/autoscalers/baseline_clairvoyant.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <utility>

namespace windlass::sim {
namespace {

constexpr double kLargestFactor = 8;
constexpr int kBisections = 6;

std::vector<ScheduleStep> steps_of(const std::vector<int>& workers, double cell_s) {
  std::vector<ScheduleStep> steps;
  for (std::size_t cell = 0; cell < workers.size(); ++cell) {
    if (steps.empty() || steps.back().workers != workers[cell])
      steps.push_back({static_cast<double>(cell) * cell_s, workers[cell]});
  }
  return steps;
}

// The mean of the cells around each one.
std::vector<double> averaged(const std::vector<double>& values, double over_cells) {
  const auto half = static_cast<std::size_t>(std::max(0.0, std::round((over_cells - 1) / 2)));
  std::vector<double> sums(values.size() + 1, 0);
  for (std::size_t i = 0; i < values.size(); ++i) sums[i + 1] = sums[i] + values[i];
  std::vector<double> means(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::size_t from = i > half ? i - half : 0, to = std::min(values.size(), i + half + 1);
    means[i] = (sums[to] - sums[from]) / static_cast<double>(to - from);
  }
  return means;
}

class Search {
 public:
  Search(const ClairvoyantOptions& options, const std::function<ScheduleTrial(std::vector<ScheduleStep>)>& run)
      : options_(options), run_(run) {}

  // Runs the schedule, keeps it if it is the best so far, and returns whether it attains.
  bool attains(const std::vector<int>& workers) {
    ScheduleTrial trial = run_(steps_of(workers, options_.cell_s));
    const bool good = trial.attainment >= options_.attainment;
    improved_ = best_.steps.empty() ||
                (good ? !found_ || trial.gpu_hours < best_.gpu_hours : !found_ && trial.attainment > best_.attainment);
    if (improved_) {
      best_ = std::move(trial);
      workers_ = workers;
      found_ = good;
    }
    return good;
  }

  void scaled_loads(const std::vector<double>& offered) {
    for (const double average_s : options_.averages_s) {
      const std::vector<double> load = averaged(offered, average_s / options_.cell_s);
      const double highest = *std::max_element(load.begin(), load.end());
      for (const double cap : options_.caps) {
        const auto with = [&](double factor) { return scaled(load, cap * highest, factor); };
        double enough = 1;
        while (!attains(with(enough)) && enough < kLargestFactor) enough *= 1.5;
        if (enough >= kLargestFactor) continue;
        double too_little = enough == 1 ? 0.25 : enough / 1.5;
        for (int i = 0; i < kBisections; ++i) {
          const double middle = (too_little + enough) / 2;
          (attains(with(middle)) ? enough : too_little) = middle;
        }
      }
    }
  }

  // Longest blocks first: they save most where the whole schedule is too high. Repeats for each length until no block saves
  // anything.
  void thin_out() {
    if (!found_) return;
    int runs = 0;
    for (std::size_t length = workers_.size(); runs < options_.improvement_runs;
         length = std::max<std::size_t>(1, length / 2)) {
      bool won = false;
      for (std::size_t from = 0; from < workers_.size() && runs < options_.improvement_runs; from += length) {
        std::vector<int> fewer = workers_;
        const std::size_t to = std::min(fewer.size(), from + length);
        for (std::size_t cell = from; cell < to; ++cell) fewer[cell] = std::max(1, fewer[cell] - 1);
        if (fewer == workers_) continue;
        ++runs;
        won = (attains(fewer) && improved_) || won;
      }
      if (length == 1 && !won) return;
    }
  }

  [[nodiscard]] ScheduleTrial result() { return std::move(best_); }

 private:
  [[nodiscard]] std::vector<int> scaled(const std::vector<double>& load, double most, double factor) const {
    std::vector<int> workers(load.size());
    for (std::size_t cell = 0; cell < load.size(); ++cell) {
      const double wanted = std::ceil(std::min(load[cell], most) * factor - 1e-9);
      workers[cell] = static_cast<int>(std::clamp(wanted, 1.0, static_cast<double>(options_.max_workers)));
    }
    return workers;
  }

  const ClairvoyantOptions& options_;
  const std::function<ScheduleTrial(std::vector<ScheduleStep>)>& run_;
  ScheduleTrial best_;        // no steps: none yet
  std::vector<int> workers_;  // of the best trial
  bool found_ = false;        // the best trial attains
  bool improved_ = false;
};

}  // namespace

double work_floor_s(std::span<const workload::Request> requests, const planner::LinearCoefficients& model, int max_sequences,
                    double share) {
  assert(max_sequences >= 1);
  std::vector<double> work_s;
  work_s.reserve(requests.size());
  for (const workload::Request& request : requests) {
    const double input = std::max(1, request.input_tokens), steps = std::max(1, request.output_tokens) - 1;
    // Decode iteration i attends to the prompt and i generated tokens.
    const double context_tokens = steps * input + steps * (steps + 1) / 2;
    work_s.push_back(model.k1 * input + model.k2 * context_tokens + steps * (model.c2 + model.c3 / max_sequences));
  }
  std::sort(work_s.begin(), work_s.end());
  const auto needed = static_cast<std::size_t>(std::ceil(share * static_cast<double>(work_s.size()) - 1e-9));
  double sum_s = 0;
  for (std::size_t i = 0; i < std::min(needed, work_s.size()); ++i) sum_s += work_s[i];
  return sum_s;
}

std::vector<double> offered_workers(std::span<const workload::Request> requests, const planner::LatencyModel& model, int slots,
                                    double cell_s) {
  std::vector<double> cells;
  for (const workload::Request& request : requests) {
    const planner::Lengths lengths{static_cast<double>(request.input_tokens), static_cast<double>(request.output_tokens)};
    const double from_s = request.arrival_s, to_s = from_s + planner::worker_times(model, slots, lengths).service_s;
    const auto last = static_cast<std::size_t>(to_s / cell_s);
    if (cells.size() <= last) cells.resize(last + 1, 0);
    for (auto cell = static_cast<std::size_t>(from_s / cell_s); cell <= last; ++cell) {
      const double begin_s = std::max(from_s, static_cast<double>(cell) * cell_s),
                   end_s = std::min(to_s, static_cast<double>(cell + 1) * cell_s);
      cells[cell] += std::max(0.0, end_s - begin_s) / (cell_s * slots);
    }
  }
  return cells;
}

ScheduleTrial cheapest_schedule(const std::vector<double>& offered, const ClairvoyantOptions& options,
                                const std::function<ScheduleTrial(std::vector<ScheduleStep>)>& run) {
  assert(!offered.empty());
  Search search(options, run);
  search.scaled_loads(offered);
  search.thin_out();
  return search.result();
}

}  // namespace windlass::sim
