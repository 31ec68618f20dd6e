// Draws the page of a strategy's plan; see strategy_page.h.
#include "controller/cli/plan/strategy_page.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "controller/cli/charts/svg_chart.h"
#include "controller/cli/console/html_page.h"
#include "controller/cli/plan/placement_svg.h"

namespace windlass::cli {
namespace {

using charts::Chart;
using charts::ChartSeries;

using CostPoint = std::pair<double, double>;  // dollars per hour, attainment

// The points with the highest attainment for their cost, by cost.
std::vector<CostPoint> pareto_front(std::vector<CostPoint> points) {
  std::sort(points.begin(), points.end(), [](const CostPoint& a, const CostPoint& b) {
    return a.first != b.first ? a.first < b.first : a.second > b.second;
  });
  std::vector<CostPoint> front;
  for (const CostPoint& point : points) {
    if (front.empty() || point.second > front.back().second) front.push_back(point);
  }
  return front;
}

ChartSeries series_of(std::string name, const std::vector<CostPoint>& points, bool joined) {
  ChartSeries series{std::move(name), {}, joined};
  for (const auto& [cost, attainment] : points) series.points.push_back({cost, attainment, {}, {}});
  return series;
}

std::string cost_chart(const std::vector<StrategyOutcome>& outcomes) {
  std::vector<CostPoint> all, weighed;
  Chart chart{"SLO attainment by cost", "dollars per hour", "share of requests within the objectives", {}};
  std::vector<ChartSeries> plans;
  for (const StrategyOutcome& outcome : outcomes) {
    if (!outcome.plan) continue;
    const CostPoint own{outcome.plan->cost_per_hour, outcome.plan->predicted.attainment};
    plans.push_back(series_of(outcome.strategy, {own}, false));
    all.push_back(own);
    for (const search::Rejection& other : outcome.plan->considered) {
      if (!other.predicted.simulated) continue;
      weighed.emplace_back(other.cost_per_hour, other.predicted.attainment);
      all.push_back(weighed.back());
    }
  }
  chart.series.push_back(series_of("weighed", weighed, false));
  chart.series.push_back(series_of("Pareto front", pareto_front(all), true));
  for (ChartSeries& plan : plans) chart.series.push_back(std::move(plan));
  return figure_of(chart, "All deployments simulated at the requested rate. On the front, more attainment costs more.");
}

std::string rate_chart(const search::Problem& problem, const std::vector<RateCurve>& curves) {
  Chart chart{"SLO attainment by request rate", "requests per second", "share of requests within the objectives", {}};
  for (const RateCurve& curve : curves) {
    ChartSeries series{curve.name, {}};
    for (const RateCurve::Point& point : curve.points)
      series.points.push_back({point.requests_per_s, point.attainment, {}, {}});
    chart.series.push_back(std::move(series));
  }
  std::string caption = fmt::format("One run of {} requests at each rate; the requested rate is {:.4g} requests/s.",
                                    problem.requests_per_trial, problem.requests_per_s);
  for (const RateCurve& curve : curves) caption += fmt::format(" {}: {}.", curve.name, curve.deployment);
  return figure_of(chart, caption);
}

std::string placement_figures(const hetero::GpuCluster& cluster, const search::Offer& plan) {
  std::string figures = figure_of(placement_svg(cluster, plan.deployment),
                                  "One row per node; each box is a GPU with its group's number. Point at boxes and bands for "
                                  "details.");
  if (const std::string flow = flow_svg(cluster, plan.deployment); !flow.empty()) {
    figures +=
        figure_of(flow, fmt::format("{:.4g} requests/s at most. The width of a band is the share that its pair of groups "
                                    "takes.",
                                    plan.predicted.capacity_requests_per_s));
  }
  return figures;
}

}  // namespace

std::string strategy_page(const search::Problem& problem, const std::vector<StrategyOutcome>& outcomes,
                          const std::vector<RateCurve>& curves, const std::vector<std::string>& notes) {
  const bool on_cluster = problem.cluster != nullptr;
  std::string page = page_head(fmt::format("Plan for {}", problem.name));
  if (outcomes.size() > 1) page += preformatted(comparison_table(problem, outcomes));
  if (!on_cluster) page += cost_chart(outcomes) + rate_chart(problem, curves);
  for (const StrategyOutcome& outcome : outcomes) {
    if (!outcome.plan) continue;
    if (on_cluster) page += fmt::format("<h2>{}</h2>\n", charts::escaped(outcome.strategy));
    if (!outcome.plan->deployment.chains.empty()) page += placement_figures(*problem.cluster, *outcome.plan);
    page += preformatted(strategy_table(problem, outcome, notes));
  }
  return page + page_end();
}

}  // namespace windlass::cli
