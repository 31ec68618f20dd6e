// Implements operator_tables.h.
#include "tests/bench/fidelity/operator_tables.h"

#include <functional>

#include <fmt/format.h>

#include "tests/bench/fidelity/end_to_end.h"
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

Result<std::vector<EndToEndPrediction>> predictions(const std::string& data, const EndToEndOptions& options) {
  WINDLASS_ASSIGN_OR_RETURN(const MeasuredGpu gpu, load_operators(data, "h100_sxm"));
  WINDLASS_ASSIGN_OR_RETURN(const std::vector<EndToEndRow> rows, load_end_to_end(data));
  WINDLASS_ASSIGN_OR_RETURN(const std::vector<planner::VidurSample> samples, load_vidur(data));
  return predict_end_to_end(rows, gpu, samples, options);
}

Result<std::string> end_to_end(const std::string& data) {
  struct Case {
    const char* name;
    EndToEndOptions options;
  };
  const std::vector<Case> cases = {{"measured operators", {}},
                                   {"roofline alone", {.roofline_only = true}},
                                   {"measured operators, clients start at once", {.stagger_s = 0}},
                                   {"measured operators, clients start 10 ms apart", {.stagger_s = 10e-3}},
                                   {"measured operators, clients start 40 ms apart", {.stagger_s = 40e-3}}};
  std::string text;
  std::vector<std::string> rows;
  for (const Case& entry : cases) {
    WINDLASS_ASSIGN_OR_RETURN(const auto found, predictions(data, entry.options));
    const std::vector<FidelityLine> lines = end_to_end_lines(found);
    if (text.empty()) {
      text = "| median error (mean) |";
      std::string rule = "|---|";
      for (const FidelityLine& line : lines) {
        text += fmt::format(" {} ({}) |", line.group, line.points);
        rule += "---:|";
      }
      text += "\n" + rule + "\n";
    }
    text += fmt::format("| {} |", entry.name);
    for (const FidelityLine& line : lines) text += fmt::format(" {:.1f} % ({:.1f} %) |", 100 * line.median, 100 * line.mean);
    text += "\n";
  }
  return text;
}

Result<std::string> end_to_end_rows(const std::string& data) {
  WINDLASS_ASSIGN_OR_RETURN(const auto found, predictions(data, {}));
  std::string text =
      "| engine | model | TP | input | output | clients | TTFT ms | predicted | TPOT ms | predicted "
      "|\n|---|---|---|---|---|---|---|---|---|---|\n";
  for (const EndToEndPrediction& p : found) {
    text +=
        fmt::format("| {} | {}{} | {} | {} | {} | {} | {:.0f} | {:.0f} | {:.2f} | {:.2f} |\n", p.row.engine, p.row.model,
                    p.row.float8 ? " fp8" : "", p.row.tensor_parallel, p.row.input_tokens, p.row.output_tokens, p.row.clients,
                    p.row.ttft_s * 1e3, p.predicted.mean_ttft_s * 1e3, p.row.tpot_s * 1e3, p.predicted.mean_tpot_s * 1e3);
  }
  return text;
}

}  // namespace

const std::vector<LatencyTable>& operator_tables() {
  static const std::vector<LatencyTable> kTables = {
      {"interpolation", [](const std::string& data) { return table_of(data, operator_folders(), interpolation_lines); }},
      {"interpolation-candidates", interpolation_candidates},
      {"roofline", [](const std::string& data) { return table_of(data, operator_folders(), roofline_lines); }},
      {"vidur-operators", vidur},
      {"end-to-end", end_to_end},
      {"operator-efficiencies", efficiencies},
      {"operator-rows", end_to_end_rows}};
  return kTables;
}

}  // namespace windlass::bench
