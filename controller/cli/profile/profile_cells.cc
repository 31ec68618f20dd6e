// Filters outliers and takes medians; see profile_cells.h.
#include "controller/cli/profile/profile_cells.h"

#include <algorithm>
#include <cmath>

namespace windlass::cli {
namespace {

using planner::ProfileRow;

template <typename Value>
std::vector<double> each(const std::vector<ProfileRow>& runs, Value value) {
  std::vector<double> values;
  values.reserve(runs.size());
  for (const ProfileRow& run : runs) values.push_back(value(run));
  return values;
}

double generated(const ProfileRow& run) {
  return std::clamp(1 + (run.end_to_end_s - run.prompt_s) / run.token_s, 1.0, run.output_tokens);
}

}  // namespace

planner::RobustMedian ProfileCell::prompt_s() const {
  return planner::robust_median(each(runs, [](const ProfileRow& run) { return run.prompt_s; }));
}

planner::RobustMedian ProfileCell::token_s() const {
  return planner::robust_median(each(runs, [](const ProfileRow& run) { return run.token_s; }));
}

ProfileRow ProfileCell::row() const {
  ProfileRow row = runs.front();
  row.prompt_tokens = std::round(planner::median_of(each(runs, [](const ProfileRow& run) { return run.prompt_tokens; })));
  row.prompt_s = prompt_s().value;
  const auto off = [&](const ProfileRow& run) { return std::abs(run.prompt_s - row.prompt_s); };
  row.prompt_iterations = std::min_element(runs.begin(), runs.end(), [&](const ProfileRow& a, const ProfileRow& b) {
                            return off(a) < off(b);
                          })->prompt_iterations;
  row.token_s = token_s().value;
  // The medians of the three times may contradict each other: compute this one from the others and the median number of tokens.
  row.end_to_end_s = row.prompt_s + (planner::median_of(each(runs, generated)) - 1) * row.token_s;
  return row;
}

std::int64_t ProfileCell::outliers() const {
  return static_cast<std::int64_t>(std::max(prompt_s().outliers, token_s().outliers));
}

std::vector<ProfileRow> rows_of(const std::vector<ProfileCell>& cells) {
  std::vector<ProfileRow> rows;
  rows.reserve(cells.size());
  for (const ProfileCell& cell : cells) rows.push_back(cell.row());
  return rows;
}

std::vector<ProfileRow> all_runs_of(const std::vector<ProfileCell>& cells) {
  std::vector<ProfileRow> rows;
  for (const ProfileCell& cell : cells) rows.insert(rows.end(), cell.runs.begin(), cell.runs.end());
  return rows;
}

}  // namespace windlass::cli
