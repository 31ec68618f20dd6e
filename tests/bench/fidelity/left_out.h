// How good predictions are on rows to which no cost was fitted: each model, engine, tensor-parallel degree and GPU is left out
// in turn. The costs of its engines are fitted to the other rows (an engine with fewer than eight gets the means of the
// others'). The recipes were chosen with sight of all rows.
//
// A prediction's 90 % interval is [p / w, p w]. The factor w comes from the errors that the other groups of its kind had when
// they were left out, of the same engine if there are enough: their ceil(0.9 (n + 1))-th smallest |ln(p / m)|. It is the rule
// of cross-conformal prediction (Vovk, "Cross-conformal predictors", 2015) with groups as folds, without its guarantee, because
// groups differ.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "tests/bench/fidelity/cost_fit.h"

namespace windlass::bench {

enum class Metric { kTpot, kTtft };

struct LeftOutRow {
  std::size_t row = 0;                                       // index in rows()
  double tpot_s = 0, ttft_s = 0;                             // predicted
  std::optional<double> tpot_factor = {}, ttft_factor = {};  // half-widths of the intervals; nullopt: too few errors
};

struct LeftOut {
  std::string kind;   // "model", "engine", "TP", "GPU"
  std::string group;  // "Qwen3-32B"
  std::vector<LeftOutRow> rows;
};

// The factor that covers nine of ten of these errors |ln(p / m)| and one more like them; nullopt if there are too few to say.
[[nodiscard]] std::optional<double> conformal_factor(std::vector<double> errors);

struct CountedRows {
  std::vector<std::size_t> rows;
  std::vector<std::size_t> suspicious;  // more than a tenth of their set exceeds kSuspiciousShare
  std::vector<std::size_t> unfit;       // a request does not fit the predicted memory
};
[[nodiscard]] Result<CountedRows> counted_rows(EndToEnd& data);

// `kinds`: which of "model", "engine", "TP" and "GPU".
[[nodiscard]] Result<std::vector<LeftOut>> leave_out(Predictions& predictions, const std::vector<std::size_t>& rows,
                                                     const std::vector<std::string>& kinds = {"TP", "model", "GPU", "engine"});

// Errors of predictions: of |p - m| / m the median and the 90th percentile, of |ln(p / m)| the median.
struct Errors {
  std::size_t rows = 0;
  double median = 0, p90 = 0, median_log = 0;
};
// REQUIRES: equal sizes, at least one row.
[[nodiscard]] Errors errors_of(const std::vector<double>& predicted, const std::vector<double>& measured);

}  // namespace windlass::bench
