// See problem.h.
#include "planner/strategies/core/problem.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

namespace windlass::search {
namespace {

constexpr std::array kPercentiles = {50.0, 90.0, 95.0, 99.0};  // percentiles that TimeSummary records
constexpr std::size_t kUnfitTold = 3;

Error wrong(const Problem& problem, const std::string& what) {
  return Error{ErrorCode::kInvalidArgument, fmt::format("{}: {}", problem.name, what)};
}

std::string why_unfit(const Problem& problem) {
  std::string text;
  for (std::size_t i = 0; i < std::min(kUnfitTold, problem.unfit.size()); ++i) {
    text += (i == 0 ? "" : "; ") + problem.unfit[i].why;
  }
  if (problem.unfit.size() > kUnfitTold) text += fmt::format("; and {} more", problem.unfit.size() - kUnfitTold);
  return text;
}

}  // namespace

const char* to_string(Goal goal) {
  switch (goal) {
    case Goal::kCost: return "cost";
    case Goal::kPower: return "power";
    case Goal::kThroughput: return "throughput";
  }
  return "";
}

const char* to_string(Metric metric) {
  switch (metric) {
    case Metric::kTtft: return "TTFT";
    case Metric::kTpot: return "TPOT";
    case Metric::kE2e: return "E2E";
    case Metric::kSchedulingDelay: return "scheduling delay";
    case Metric::kTtftSlowdown: return "TTFT slowdown";
    case Metric::kTbtSlowdown: return "TBT slowdown";
    case Metric::kE2eSlowdown: return "E2E slowdown";
  }
  return "";
}

bool is_slowdown(Metric metric) {
  return metric == Metric::kTtftSlowdown || metric == Metric::kTbtSlowdown || metric == Metric::kE2eSlowdown;
}

std::vector<std::pair<int, int>> lengths_of(const Requests& requests, std::uint64_t seed, std::int64_t count) {
  std::vector<std::pair<int, int>> lengths;
  const auto source = requests.source(seed, 1, count);
  while (const auto request = source->next()) lengths.emplace_back(request->input_tokens, request->output_tokens);
  return lengths;
}

Result<void> validate(const Problem& problem) {
  if (!problem.accelerators.empty() && problem.kinds.empty()) {
    return Error{ErrorCode::kNotFound,
                 fmt::format("{}: no worker fits the accelerators: {}", problem.name, why_unfit(problem))};
  }
  return validate_question(problem);
}

Result<void> validate_cluster(const Problem& problem) {
  if (problem.cluster == nullptr) return wrong(problem, "cluster: must have nodes and links (got none)");
  auto valid = hetero::validate(*problem.cluster);
  return valid.ok() ? valid : valid.error().within(problem.name);
}

Result<void> validate_question(const Problem& problem) {
  if (problem.accelerators.empty()) return wrong(problem, "accelerators: must have at least one (got none)");
  if (problem.requests == nullptr) return wrong(problem, "workload: must be set (got none)");
  if (!(problem.requests_per_s > 0) || !std::isfinite(problem.requests_per_s)) {
    return wrong(problem, fmt::format("requestsPerSecond: must be a number above 0 (got {})", problem.requests_per_s));
  }
  const Objectives& objectives = problem.objectives;
  if (!objectives.both && objectives.limits.empty()) return wrong(problem, "slo: must have at least one objective (got none)");
  if (objectives.both && !(objectives.both->ttft_s > 0 && objectives.both->tpot_s > 0)) {
    return wrong(problem, fmt::format("slo: must have times above 0 (got TTFT {} s and TPOT {} s)", objectives.both->ttft_s,
                                      objectives.both->tpot_s));
  }
  if (!(objectives.attainment > 0 && objectives.attainment < 1)) {
    return wrong(problem, fmt::format("slo.percentile: must be above 0 and below 100 (got {})", 100 * objectives.attainment));
  }
  for (const Limit& limit : objectives.limits) {
    if (std::find(kPercentiles.begin(), kPercentiles.end(), limit.percentile) == kPercentiles.end()) {
      return wrong(problem, fmt::format("limit on {}: percentile: must be 50, 90, 95 or 99 (got {})", to_string(limit.metric),
                                        limit.percentile));
    }
    if (!(limit.most > 0)) {
      return wrong(problem, fmt::format("limit on {}: must be above 0 (got {})", to_string(limit.metric), limit.most));
    }
    if (is_slowdown(limit.metric) && !problem.slowdown_reference) {
      return wrong(problem, fmt::format("limit on {}: slowdownReference: must be set (got none)", to_string(limit.metric)));
    }
  }
  return {};
}

}  // namespace windlass::search
