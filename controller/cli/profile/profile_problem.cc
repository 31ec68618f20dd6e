// Judges fits and explains bad ones; see profile_problem.h.
#include "controller/cli/profile/profile_problem.h"

#include <algorithm>
#include <limits>
#include <optional>

#include <fmt/format.h>

#include "controller/cli/console/text_table.h"

namespace windlass::cli {
namespace {

constexpr double kShortTokenS = 2e-3;  // roughly the jitter of HTTP and a scheduler

}  // namespace

std::optional<double> usual_spread(const std::vector<ProfileCell>& cells, bool of_prefill) {
  std::vector<double> spreads;
  for (const ProfileCell& cell : cells) {
    if (cell.runs.size() < 2) continue;
    const planner::RobustMedian time = of_prefill ? cell.prompt_s() : cell.token_s();
    spreads.push_back(time.spread / time.value);
  }
  return spreads.empty() ? std::nullopt : std::optional(planner::median_of(std::move(spreads)));
}

double worst_error(const planner::PerformanceProfile& profile) {
  double worst = profile.errors.empty() ? std::numeric_limits<double>::infinity() : 0;
  for (const planner::FitError& error : profile.errors) worst = std::max(worst, error.median_ape);
  return worst;
}

std::string phases_beyond(const planner::PerformanceProfile& profile, double max_error) {
  std::string text;
  for (const planner::FitError& error : profile.errors) {
    if (error.median_ape <= max_error) continue;
    text += fmt::format("{}{}: median error on held-out load points must be at most {} (got {}; --max-error)",
                        text.empty() ? "" : "; ", error.part, percent_text(max_error), percent_text(error.median_ape));
  }
  return text;
}

std::string problem_of(const planner::PerformanceProfile& profile, const std::vector<ProfileCell>& cells,
                       const ProfileEnd& end) {
  std::string text = phases_beyond(profile, end.max_error);
  if (text.empty()) return text;
  std::optional<double> spread;
  for (const planner::FitError& error : profile.errors) {
    if (error.median_ape > end.max_error) spread = std::max(spread, usual_spread(cells, error.part == kPrefillPart));
  }
  if (!spread) return text + ". Each load point was run once: give more time (--budget) for repeats.";
  text += fmt::format(". Runs of one load point differ by {} (median deviation, {} runs)", percent_text(*spread), end.runs);
  if (*spread <= end.max_error / 2) {
    return text +
           ": they agree, so the fit is at fault. Try --fit profile, or more sizes between the measured ones "
           "(--prompts, --batches).";
  }
  text += ": something else uses this machine or the worker. Stop it";
  if (end.out_of_time) text += ", give more time (--budget)";
  std::vector<double> tokens_s;
  for (const ProfileCell& cell : cells) tokens_s.push_back(cell.token_s().value);
  const double token_s = planner::median_of(std::move(tokens_s));
  if (token_s < kShortTokenS) {
    text +=
        fmt::format(", or use longer answers (--max-tokens): a token takes {}, less than the jitter of HTTP and a scheduler",
                    seconds_text(token_s));
  }
  return text + ".";
}

}  // namespace windlass::cli
