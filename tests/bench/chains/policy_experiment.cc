// Fig. 5: JFFC against the other policies on fixed chains, and against the bounds of Theorem 3.7.
#include <array>
#include <map>

#include <fmt/format.h>

#include "tests/bench/chains/experiments.h"

namespace windlass::bench {
namespace {

constexpr double kLoads[] = {0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9};

struct Point {
  std::map<dispatch::PolicyKind, double> response_s;
  double jffc_service_s = 0;
  double lower_s = 0, upper_s = 0;
};

// The policies for chains, whose requests have sizes instead of lengths.
constexpr std::array kPolicies = {dispatch::PolicyKind::kJffc,      dispatch::PolicyKind::kJsq,   dispatch::PolicyKind::kJiq,
                                  dispatch::PolicyKind::kSed,       dispatch::PolicyKind::kSaJsq, dispatch::PolicyKind::kRandom,
                                  dispatch::PolicyKind::kRoundRobin};

}  // namespace

Report policy_experiment(const Inputs& inputs) {
  const int seeds = inputs.scale.seeds;
  const auto loads = static_cast<int>(std::size(kLoads));
  std::vector<Point> points(static_cast<std::size_t>(loads * seeds));
  for_each_index(loads * seeds, [&](int index) {
    const auto seed = static_cast<std::uint64_t>(index % seeds);
    auto instance = paper_instance(inputs.network, {}, seed);
    chain::Composition composed = compose_all(instance, kPaperCapacity);
    instance.arrival_rate_per_s = kLoads[index / seeds] * composed.total_service_rate_per_s;
    composed = compose_all(instance, kPaperCapacity);
    Point& point = points[static_cast<std::size_t>(index)];
    for (const dispatch::PolicyKind policy : kPolicies) {
      const auto result = simulate(instance, composed, policy, instance.arrival_rate_per_s, inputs.scale, seed);
      point.response_s[policy] = result.response.mean_s;
      if (policy == dispatch::PolicyKind::kJffc) point.jffc_service_s = result.service.mean_s;
    }
    point.lower_s = composed.mean_response_lower_s.value();
    point.upper_s = composed.mean_response_upper_s.value();
  });

  Report report;
  report.tables = fmt::format(
      "Mean response time in seconds over {} seeds with {} requests each (the same arrivals and sizes for all "
      "policies), c = {}, every server placed. ± is the 95 % half-width over seeds, whose chains differ.\n\n| load |",
      seeds, inputs.scale.requests, kPaperCapacity);
  for (const auto policy : kPolicies) report.tables += fmt::format(" {} |", to_string(policy));
  report.tables += "\n|---|";
  for (std::size_t i = 0; i < kPolicies.size(); ++i) report.tables += "---|";
  report.tables += "\n";
  std::string differences =
      "\nWhat each policy takes longer than JFFC, in seconds, paired by seed (negative beyond its half-width would be a policy "
      "better than JFFC):\n\n| load |";
  for (const auto policy : kPolicies) {
    if (policy != dispatch::PolicyKind::kJffc) differences += fmt::format(" {} |", to_string(policy));
  }
  differences += "\n|---|---|---|---|---|---|---|\n";
  std::string bounds =
      "\nJFFC between the bounds of Theorem 3.7 (seconds; the differences are paired by seed):\n\n"
      "| load | lower | simulated | upper | simulated - lower | upper - simulated | service share "
      "|\n|---|---|---|---|---|---|---|\n";

  Chart policies{"Mean response time under dispatch policies", "load (share of nu)", "seconds", {}, false};
  Chart bound_chart{"JFFC and the bounds of Theorem 3.7", "load (share of nu)", "seconds", {}, false};
  std::map<dispatch::PolicyKind, ChartSeries> series;
  ChartSeries lower_series{"lower bound", {}}, simulated_series{"JFFC, simulated", {}}, upper_series{"upper bound", {}};
  for (int l = 0; l < loads; ++l) {
    std::map<dispatch::PolicyKind, std::vector<double>> response, difference;
    std::vector<double> lower, upper, above, below, share;
    for (int seed = 0; seed < seeds; ++seed) {
      const Point& point = points[static_cast<std::size_t>(l * seeds + seed)];
      const double jffc_s = point.response_s.at(dispatch::PolicyKind::kJffc);
      for (const auto& [policy, response_s] : point.response_s) {
        response[policy].push_back(response_s);
        difference[policy].push_back(response_s - jffc_s);
      }
      lower.push_back(point.lower_s);
      upper.push_back(point.upper_s);
      above.push_back(jffc_s - point.lower_s);
      below.push_back(point.upper_s - jffc_s);
      share.push_back(100 * point.jffc_service_s / jffc_s);
    }
    report.tables += fmt::format("| {} |", kLoads[l]);
    differences += fmt::format("| {} |", kLoads[l]);
    for (const auto policy : kPolicies) {
      report.tables += fmt::format(" {} |", with_interval(response[policy], 2));
      if (policy != dispatch::PolicyKind::kJffc) differences += fmt::format(" {} |", with_interval(difference[policy], 3));
      series[policy].name = to_string(policy);
      series[policy].points.push_back(point_of(kLoads[l], response[policy]));
    }
    report.tables += "\n";
    differences += "\n";
    const auto& jffc = response[dispatch::PolicyKind::kJffc];
    bounds +=
        fmt::format("| {} | {} | {} | {} | {} | {} | {:.0f} % |\n", kLoads[l], with_interval(lower, 2), with_interval(jffc, 2),
                    with_interval(upper, 2), with_interval(above, 3), with_interval(below, 3), point_of(0, share).y);
    lower_series.points.push_back(point_of(kLoads[l], lower));
    simulated_series.points.push_back(point_of(kLoads[l], jffc));
    upper_series.points.push_back(point_of(kLoads[l], upper));
  }
  // Random, round robin, and JIQ near full load overload the chains: their curves would flatten all others.
  for (const auto policy :
       {dispatch::PolicyKind::kJffc, dispatch::PolicyKind::kSed, dispatch::PolicyKind::kJsq, dispatch::PolicyKind::kJiq}) {
    if (policy == dispatch::PolicyKind::kJiq) series[policy].points.pop_back();
    policies.series.push_back(series[policy]);
  }
  bound_chart.series = {lower_series, simulated_series, upper_series};
  report.tables += differences + bounds;
  report.figures = {{"fig5a", policies}, {"fig5b", bound_chart}};
  return report;
}

}  // namespace windlass::bench
