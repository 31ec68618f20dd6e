// The tables of docs/algorithms/latency.md on operators, as Markdown: held-out errors of the interpolation and its
// alternatives, the roofline, Vidur's operators, and the end-to-end predictions. Errors are shares of the measured time.
#pragma once

#include <string>
#include <vector>

#include "tests/bench/fidelity/operator_data.h"

namespace windlass::bench {

// One line of a table: errors of a group of points.
struct FidelityLine {
  std::string group;  // "H100 GEMM fp8"
  std::size_t points = 0;
  double median = 0;
  double mean = 0;
};

// Five folds over distinct points. Repeated measurements of a point count as one point; otherwise one would reveal the other.
[[nodiscard]] std::vector<FidelityLine> interpolation_lines(const MeasuredGpu& gpu);
// Errors of one way of interpolation that was tried, on one GPU's tables of GEMM and attention (head dimension 128, 16-bit
// cache), without rows that contradict the data sheet.
struct Candidate {
  std::string gpu;    // folder
  std::string table;  // "GEMM bfloat16"
  std::string folds;  // what is held out: "rows"; "shapes" or "heads": whole (n, k) or (heads, KV heads)
  std::string way;
  std::vector<double> errors;  // of each point
};
[[nodiscard]] std::vector<Candidate> candidates(const MeasuredGpu& gpu);
// One line per GPU, table and folds, then those of all GPUs pooled; a column per way of interpolation: median (mean).
[[nodiscard]] std::string as_candidate_table(const std::vector<Candidate>& all);
// All rows, then the rows above 3 x the shortest one of their table.
[[nodiscard]] std::vector<FidelityLine> roofline_lines(const MeasuredGpu& gpu);
[[nodiscard]] std::vector<FidelityLine> vidur_lines(const std::vector<planner::VidurSample>& samples);

[[nodiscard]] std::string as_table(const std::vector<FidelityLine>& lines);

}  // namespace windlass::bench
