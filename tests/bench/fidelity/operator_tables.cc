// Implements operator_tables.h.
#include "tests/bench/fidelity/operator_tables.h"

#include <functional>

#include <fmt/format.h>

#include "tests/bench/fidelity/operator_data.h"
#include "tests/bench/fidelity/operator_report.h"
#include "tests/bench/fidelity/roofline_fit.h"

namespace windlass::bench {
namespace {

using LinesOf = std::function<std::vector<FidelityLine>(const MeasuredGpu&)>;

Result<std::string> table_of(const std::string& data, const std::vector<std::string>& folders, const LinesOf& lines_of) {
  std::vector<FidelityLine> all;
  for (const std::string& folder : folders) {
    WINDLASS_ASSIGN_OR_RETURN(const MeasuredGpu gpu, load_operators(data, folder));
    const std::vector<FidelityLine> lines = lines_of(gpu);
    all.insert(all.end(), lines.begin(), lines.end());
  }
  return as_table(all);
}

Result<std::string> interpolation_candidates(const std::string& data) {
  std::vector<Candidate> all;
  for (const std::string& folder : operator_folders()) {
    WINDLASS_ASSIGN_OR_RETURN(const MeasuredGpu gpu, load_operators(data, folder));
    for (Candidate& candidate : candidates(gpu)) all.push_back(std::move(candidate));
  }
  return as_candidate_table(all);
}

Result<std::string> efficiencies(const std::string& data) {
  std::vector<FittedEfficiency> all;
  for (const std::string& folder : operator_folders()) {
    WINDLASS_ASSIGN_OR_RETURN(const MeasuredGpu gpu, load_operators(data, folder));
    all.push_back(fit_efficiency(gpu));
  }
  return as_source(all);
}

Result<std::string> vidur(const std::string& data) {
  WINDLASS_ASSIGN_OR_RETURN(const std::vector<planner::VidurSample> samples, load_vidur(data));
  return as_table(vidur_lines(samples));
}

}  // namespace

const std::vector<LatencyTable>& operator_tables() {
  static const std::vector<LatencyTable> kTables = {
      {"interpolation", [](const std::string& data) { return table_of(data, operator_folders(), interpolation_lines); }},
      {"interpolation-candidates", interpolation_candidates},
      {"roofline", [](const std::string& data) { return table_of(data, operator_folders(), roofline_lines); }},
      {"vidur-operators", vidur},
      {"operator-efficiencies", efficiencies}};
  return kTables;
}

}  // namespace windlass::bench
