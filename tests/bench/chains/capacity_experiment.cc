// Fig. 6 and 7: the reserved capacity c as chosen by the lower bound, the upper bound and the surrogate, compared with the best
// simulated c.
#include <algorithm>
#include <limits>
#include <map>
#include <optional>

#include <fmt/format.h>

#include "planner/chain/gbp_cr.h"
#include "tests/bench/chains/experiments.h"

namespace windlass::bench {
namespace {

// Results of one value of c for one seed; nullopt if undefined.
struct Judged {
  std::optional<double> simulated_s, lower_s, upper_s, surrogate_s;
};

constexpr int kLargestCapacity = 60;

// Results by c. Every server is placed, as in Fig. 5; values of c that give the same chains are simulated once.
std::vector<Judged> judge_all(const Inputs& inputs, const chain::Instance& instance, std::uint64_t seed) {
  std::vector<Judged> judged(kLargestCapacity + 1);
  chain::Placement before;
  for (int c = 1; c <= kLargestCapacity; ++c) {
    Judged& at = judged[static_cast<std::size_t>(c)];
    const auto stopped = chain::gbp_cr(instance, c);
    if (stopped.reaches_rate) at.surrogate_s = c * static_cast<double>(stopped.chains.size()) / instance.arrival_rate_per_s;
    const auto all = compose_all(instance, c);
    if (all.placement == before) {
      const Judged& same = judged[static_cast<std::size_t>(c) - 1];
      at.simulated_s = same.simulated_s;
      at.lower_s = same.lower_s;
      at.upper_s = same.upper_s;
      continue;
    }
    before = all.placement;
    if (!all.stable) continue;
    at.lower_s = all.mean_response_lower_s;
    at.upper_s = all.mean_response_upper_s;
    at.simulated_s =
        simulate(instance, all, dispatch::PolicyKind::kJffc, instance.arrival_rate_per_s, inputs.scale, seed).response.mean_s;
  }
  return judged;
}

int best_capacity(const std::vector<Judged>& judged, std::optional<double> Judged::*field) {
  int best = 0;
  for (int c = 1; c <= kLargestCapacity; ++c) {
    const auto& value = judged[static_cast<std::size_t>(c)].*field;
    if (value.has_value() && (best == 0 || *value < *(judged[static_cast<std::size_t>(best)].*field) * (1 - 1e-12))) best = c;
  }
  return best;
}

}  // namespace

Report capacity_experiment(const Inputs& inputs) {
  constexpr double kRates[] = {0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.2};
  const int seeds = inputs.scale.seeds, rates = static_cast<int>(std::size(kRates));
  std::vector<std::vector<Judged>> runs(static_cast<std::size_t>(rates * seeds));
  for_each_index(rates * seeds, [&](int index) {
    const auto seed = static_cast<std::uint64_t>(index % seeds);
    const auto instance = paper_instance(inputs.network, {20, 0.2, kRates[index / seeds]}, seed);
    runs[static_cast<std::size_t>(index)] = judge_all(inputs, instance, seed);
  });

  Report report;
  // Fig. 6: lambda = 0.2, the mean over seeds by c, for each c that has a value in every seed.
  Chart fig6{"Mean response time by reserved capacity, 0.2 requests/s", "c", "seconds", {}, true};
  const std::pair<const char*, std::optional<double> Judged::*> curves[] = {{"JFFC, simulated", &Judged::simulated_s},
                                                                            {"lower bound", &Judged::lower_s},
                                                                            {"upper bound", &Judged::upper_s},
                                                                            {"c K(c) / lambda", &Judged::surrogate_s}};
  for (const auto& [name, field] : curves) {
    ChartSeries series{name, {}};
    for (int c = 1; c <= 30; ++c) {
      std::vector<double> values;
      for (int seed = 0; seed < seeds; ++seed) {
        if (const auto& value = runs[static_cast<std::size_t>(seeds + seed)][static_cast<std::size_t>(c)].*field)
          values.push_back(*value);
      }
      if (static_cast<int>(values.size()) < seeds) continue;
      series.points.push_back({static_cast<double>(c), point_of(c, values).y, {}, {}});
    }
    fig6.series.push_back(series);
  }
  report.figures.push_back({"fig6", fig6});

  // Fig. 7: c* by each method, and the loss of its choice against the best simulated c.
  report.tables = fmt::format(
      "Over {} seeds, every server placed, c from 1 to {}. c*: mean of the chosen c. \"loss\": the mean response simulated at "
      "that c over the least "
      "simulated of all c, less one; mean and worst over seeds.\n\n"
      "| lambda | c* simulated | c* lower bound | loss | c* upper bound | loss | c* surrogate | loss "
      "|\n|---|---|---|---|---|---|---|---|\n",
      seeds, kLargestCapacity);
  Chart fig7{"Chosen capacity by arrival rate", "arrival rate (requests/s)", "c*", {}, false};
  ChartSeries simulated_series{"simulated", {}}, lower_series{"lower bound", {}}, upper_series{"upper bound", {}},
      surrogate_series{"surrogate", {}};
  for (int r = 0; r < rates; ++r) {
    std::vector<double> best_c;
    struct Choice {
      std::vector<double> c, loss;
    } lower, upper, surrogate;
    for (int seed = 0; seed < seeds; ++seed) {
      const auto& judged = runs[static_cast<std::size_t>(r * seeds + seed)];
      const int best = best_capacity(judged, &Judged::simulated_s);
      if (best == 0) continue;
      best_c.push_back(best);
      const double least_s = *judged[static_cast<std::size_t>(best)].simulated_s;
      const auto note = [&](Choice& choice, std::optional<double> Judged::*field) {
        const int c = best_capacity(judged, field);
        if (c == 0) return;
        choice.c.push_back(c);
        const auto& simulated_s = judged[static_cast<std::size_t>(c)].simulated_s;
        if (simulated_s.has_value()) choice.loss.push_back(*simulated_s / least_s - 1);
      };
      note(lower, &Judged::lower_s);
      note(upper, &Judged::upper_s);
      note(surrogate, &Judged::surrogate_s);
    }
    const auto mean = [](const std::vector<double>& values) {
      return values.empty() ? std::string("-") : fmt::format("{:.1f}", point_of(0, values).y);
    };
    const auto loss = [](const Choice& choice) {
      if (choice.loss.empty()) return std::string("-");
      return fmt::format("{:.1f} %, worst {:.1f} %", 100 * point_of(0, choice.loss).y,
                         100 * *std::max_element(choice.loss.begin(), choice.loss.end()));
    };
    report.tables += fmt::format("| {} | {} | {} | {} | {} | {} | {} | {} |\n", kRates[r], mean(best_c), mean(lower.c),
                                 loss(lower), mean(upper.c), loss(upper), mean(surrogate.c), loss(surrogate));
    if (!best_c.empty()) simulated_series.points.push_back(point_of(kRates[r], best_c));
    if (!lower.c.empty()) lower_series.points.push_back(point_of(kRates[r], lower.c));
    if (!upper.c.empty()) upper_series.points.push_back(point_of(kRates[r], upper.c));
    if (!surrogate.c.empty()) surrogate_series.points.push_back(point_of(kRates[r], surrogate.c));
  }
  fig7.series = {simulated_series, lower_series, upper_series, surrogate_series};
  report.figures.push_back({"fig7", fig7});
  return report;
}

}  // namespace windlass::bench
