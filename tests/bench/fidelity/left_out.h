// How good predictions are on rows to which no cost was fitted: each model, engine, tensor-parallel degree and GPU is left out
// in turn. The costs of its engines are fitted to the other rows (an engine with fewer than eight gets the means of the
// others'). The recipes were chosen with sight of all rows.
//
// A prediction's 90 % interval is [p / w, p w]. What nobody published of a run (Latent) moves its prediction by a standard
// deviation of s in ln p, more in some rows than in others. So each error |ln(p / m)| is divided by sqrt(t^2 + s^2), where t is
// the median error, and ln w is the row's own root times the ceil(0.9 (n + 1))-th smallest such ratio of the other groups of
// its kind when they were left out, of the same engine if there are enough. It is the rule of cross-conformal prediction (Vovk,
// "Cross-conformal predictors", 2015) with groups as folds and normalised errors (Papadopoulos et al., "Normalized
// nonconformity measures for regression conformal prediction", 2008), without its guarantee, because groups differ.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tests/bench/fidelity/cost_fit.h"

namespace windlass::bench {

enum class Metric { kTpot, kTtft };

struct LeftOutRow {
  std::size_t row = 0;                                       // index in rows()
  double tpot_s = 0, ttft_s = 0;                             // predicted
  double tpot_spread = 0, ttft_spread = 0;                   // standard deviations of their logarithms over the latents
  std::optional<double> tpot_factor = {}, ttft_factor = {};  // half-widths of the intervals; nullopt: too few errors
};

// One thing that nobody published of the runs: equally likely alternatives to what the recipe or the fit says.
struct Latent {
  std::string name;
  std::vector<Change> alternatives;
};
[[nodiscard]] const std::vector<Latent>& latents();

struct LeftOut {
  std::string kind;   // "model", "engine", "TP", "GPU"
  std::string group;  // "Qwen3-32B"
  std::vector<LeftOutRow> rows;
};

// The bound that covers nine of ten of these errors and one more like them; nullopt if there are too few to say.
[[nodiscard]] std::optional<double> conformal_bound(std::vector<double> errors);

inline constexpr std::size_t kFewRows = 8;  // fewer say nothing about several costs

[[nodiscard]] std::map<std::string, std::vector<std::size_t>> by_engine(const std::vector<EndToEndRow>& all,
                                                                        const std::vector<std::size_t>& rows);

struct CountedRows {
  std::vector<std::size_t> rows;
  std::vector<std::size_t> suspicious;  // more than a tenth of their set exceeds kSuspiciousShare
  std::vector<std::size_t> unfit;       // a request does not fit the predicted memory
};
[[nodiscard]] Result<CountedRows> counted_rows(EndToEnd& data);

// Predicts `test` by what was fitted to `train`; both are indices of rows. A row that does not fit may be missing.
using PredictLeftOut =
    std::function<Result<std::vector<LeftOutRow>>(const std::vector<std::size_t>& train, const std::vector<std::size_t>& test)>;

// One for each row that fits the memory, without spreads.
[[nodiscard]] std::vector<LeftOutRow> left_out_rows(std::span<const std::size_t> rows,
                                                    const std::vector<ClosedLoopResult>& results);

// Fits each engine that has enough rows in `train`; the others get `otherwise(fits)`. fit(rows) -> Result<Fit>, predict(rows,
// Fit) -> Result<vector<LeftOutRow>>.
template <class Fit, class FitRows, class Otherwise, class Predict>
[[nodiscard]] Result<std::vector<LeftOutRow>> predict_left_out(const std::vector<EndToEndRow>& all,
                                                               const std::vector<std::size_t>& train,
                                                               const std::vector<std::size_t>& test, const FitRows& fit,
                                                               const Otherwise& otherwise, const Predict& predict) {
  std::map<std::string, Fit> fitted;
  for (const auto& [engine, rows] : by_engine(all, train)) {
    if (rows.size() < kFewRows) continue;
    WINDLASS_ASSIGN_OR_RETURN(fitted[engine], fit(rows));
  }
  std::vector<Fit> fits;
  for (const auto& [engine, one] : fitted) fits.push_back(one);
  std::vector<LeftOutRow> found;
  for (const auto& [engine, rows] : by_engine(all, test)) {
    const auto own = fitted.find(engine);
    WINDLASS_ASSIGN_OR_RETURN(const auto predicted, predict(rows, own != fitted.end() ? own->second : otherwise(fits)));
    found.insert(found.end(), predicted.begin(), predicted.end());
  }
  return found;
}

// `kinds`: which of "model", "engine", "TP" and "GPU".
[[nodiscard]] Result<std::vector<LeftOut>> leave_out(const std::vector<EndToEndRow>& all, const std::vector<std::size_t>& rows,
                                                     const std::vector<std::string>& kinds, const PredictLeftOut& predict);
// By the operator model with costs fitted to the other rows. Each alternative takes as long as all predictions without any.
[[nodiscard]] Result<std::vector<LeftOut>> leave_out(Predictions& predictions, const std::vector<std::size_t>& rows,
                                                     std::span<const Latent> latents,
                                                     const std::vector<std::string>& kinds = {"TP", "model", "GPU", "engine"});

// Errors of predictions: of |p - m| / m the median and the 90th percentile, of |ln(p / m)| the median.
struct Errors {
  std::size_t rows = 0;
  double median = 0, p90 = 0, median_log = 0;
};
// REQUIRES: equal sizes, at least one row.
[[nodiscard]] Errors errors_of(const std::vector<double>& predicted, const std::vector<double>& measured);

}  // namespace windlass::bench
