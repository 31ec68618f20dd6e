// Implements left_out.h.
#include "tests/bench/fidelity/left_out.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstddef>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "planner/perf/robust_median.h"

namespace windlass::bench {
namespace {

constexpr double kCoverage = 0.9;

std::string group_of(const std::string& kind, const EndToEndRow& row) {
  if (kind == "model") return short_model(row);
  if (kind == "engine") return row.engine;
  if (kind == "TP") return fmt::format("TP {}", row.tensor_parallel);
  return row.gpu;
}

// Widths for the rows of `of` from the errors of rows outside of it: those of the other groups of its kind, for a GPU also
// those of models, because there are two GPUs only. Each row counts once.
void add_widths(LeftOut& of, const std::vector<LeftOut>& all, const std::vector<EndToEndRow>& rows) {
  struct Error {
    double tpot = 0, ttft = 0;
  };
  std::map<std::size_t, Error> errors;
  for (const LeftOut& other : all) {
    if (other.kind != of.kind && !(of.kind == "GPU" && other.kind == "model")) continue;
    for (const LeftOutRow& row : other.rows) {
      const EndToEndRow& measured = rows[row.row];
      if (group_of(of.kind, measured) == of.group) continue;
      errors.try_emplace(
          row.row, Error{std::abs(std::log(row.tpot_s / measured.tpot_s)), std::abs(std::log(row.ttft_s / measured.ttft_s))});
    }
  }
  const auto factor = [&](const std::string& engine, double Error::*metric) {
    std::vector<double> own, any;
    for (const auto& [row, error] : errors) {
      any.push_back(error.*metric);
      if (rows[row].engine == engine) own.push_back(error.*metric);
    }
    const std::optional<double> by_engine = conformal_factor(std::move(own));
    return by_engine ? by_engine : conformal_factor(std::move(any));
  };
  std::map<std::string, std::pair<std::optional<double>, std::optional<double>>> factors;
  for (LeftOutRow& row : of.rows) {
    const std::string& engine = rows[row.row].engine;
    if (!factors.contains(engine)) factors[engine] = {factor(engine, &Error::tpot), factor(engine, &Error::ttft)};
    std::tie(row.tpot_factor, row.ttft_factor) = factors[engine];
  }
}

}  // namespace

std::map<std::string, std::vector<std::size_t>> by_engine(const std::vector<EndToEndRow>& all,
                                                          const std::vector<std::size_t>& rows) {
  std::map<std::string, std::vector<std::size_t>> engines;
  for (const std::size_t row : rows) engines[all[row].engine].push_back(row);
  return engines;
}

std::optional<double> conformal_factor(std::vector<double> errors) {
  const auto rank = static_cast<std::size_t>(std::ceil(kCoverage * static_cast<double>(errors.size() + 1)));
  if (rank > errors.size()) return std::nullopt;
  std::nth_element(errors.begin(), errors.begin() + static_cast<std::ptrdiff_t>(rank) - 1, errors.end());
  return std::exp(errors[rank - 1]);
}

Result<CountedRows> counted_rows(EndToEnd& data) {
  // Rows of one set were measured in the same way: if more than one of ten is suspicious, all are.
  constexpr double kMaxSuspicious = 0.1;
  std::map<std::string, std::pair<std::size_t, std::size_t>> sets;  // suspicious ones, all
  for (const EndToEndRow& row : data.rows()) {
    WINDLASS_ASSIGN_OR_RETURN(const double share, speed_of_light_share(row));
    auto& [suspicious, all] = sets[set_of(row)];
    suspicious += share > kSuspiciousShare ? 1 : 0;
    ++all;
  }
  CountedRows counted;
  for (std::size_t i = 0; i < data.rows().size(); ++i) {
    const EndToEndRow& row = data.rows()[i];
    const auto& [suspicious, all] = sets.at(set_of(row));
    if (static_cast<double>(suspicious) > kMaxSuspicious * static_cast<double>(all)) {
      counted.suspicious.push_back(i);
      continue;
    }
    WINDLASS_ASSIGN_OR_RETURN(const LoadRecipe recipe, recipe_of(row));
    WINDLASS_ASSIGN_OR_RETURN(const planner::OperatorModel* model, data.model_of(row, recipe));
    (holds(row, recipe, *model) ? counted.rows : counted.unfit).push_back(i);
  }
  return counted;
}

Result<std::vector<LeftOut>> leave_out(const std::vector<EndToEndRow>& all, const std::vector<std::size_t>& rows,
                                       const std::vector<std::string>& kinds, const PredictLeftOut& predict) {
  std::vector<LeftOut> found;
  for (const std::string& kind : kinds) {
    std::map<std::string, std::vector<std::size_t>> groups;
    for (const std::size_t row : rows) groups[group_of(kind, all[row])].push_back(row);
    for (const auto& [group, test] : groups) {
      std::vector<std::size_t> train;
      for (const std::size_t row : rows) {
        if (group_of(kind, all[row]) != group) train.push_back(row);
      }
      WINDLASS_ASSIGN_OR_RETURN(auto predicted, predict(train, test));
      found.push_back({kind, group, std::move(predicted)});
    }
  }
  for (LeftOut& of : found) add_widths(of, found, all);
  return found;
}

Result<std::vector<LeftOut>> leave_out(Predictions& predictions, const std::vector<std::size_t>& rows,
                                       const std::vector<std::string>& kinds) {
  const std::vector<EndToEndRow>& all = predictions.rows();
  return leave_out(all, rows, kinds, [&](const auto& train, const auto& test) {
    return predict_left_out<EngineCosts>(
        all, train, test, [&](std::span<const std::size_t> fitted) { return fit_costs(predictions, fitted); },
        [](const std::vector<EngineCosts>& fits) { return mean_of(fits); },
        [&](std::span<const std::size_t> of, const EngineCosts& costs) {
          auto results = predictions.of(of, costs);
          assert(!results.ok() ||  // counted_rows()
                 std::all_of(results->begin(), results->end(), [](const ClosedLoopResult& one) { return one.fits; }));
          return results;
        });
  });
}

Errors errors_of(const std::vector<double>& predicted, const std::vector<double>& measured) {
  std::vector<double> relative, logs;
  for (std::size_t i = 0; i < predicted.size(); ++i) {
    relative.push_back(std::abs(predicted[i] / measured[i] - 1));
    logs.push_back(std::abs(std::log(predicted[i] / measured[i])));
  }
  std::sort(relative.begin(), relative.end());
  const auto ninth = static_cast<std::size_t>(std::ceil(0.9 * static_cast<double>(relative.size())));
  return {predicted.size(), planner::median_of(relative), relative[ninth - 1], planner::median_of(logs)};
}

}  // namespace windlass::bench
