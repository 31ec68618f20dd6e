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

constexpr double kCostStep = 1.5;  // of a fitted cost, up and down

template <double EngineCosts::*cost>
Latent cost_latent(const char* name) {
  return {name,
          {[](LoadRecipe&, EngineCosts& costs) { costs.*cost *= kCostStep; },
           [](LoadRecipe&, EngineCosts& costs) { costs.*cost /= kCostStep; }}};
}

struct LogError {
  double error = 0;   // |ln(p / m)|
  double spread = 0;  // standard deviation of ln p over the latents
};

// What errors of other rows say of a row's half-width.
struct Scale {
  double typical = 0, bound = 0;

  [[nodiscard]] double factor(double spread) const { return std::exp(bound * std::hypot(typical, spread)); }
};

// nullopt: too few rows.
std::optional<Scale> scale_of(const std::vector<LogError>& others) {
  if (others.empty()) return std::nullopt;
  std::vector<double> errors, ratios;
  for (const LogError& other : others) errors.push_back(other.error);
  const double typical = planner::median_of(errors);
  for (const LogError& other : others) ratios.push_back(other.error / std::hypot(typical, other.spread));
  const std::optional<double> bound = conformal_bound(std::move(ratios));
  return bound ? std::optional(Scale{typical, *bound}) : std::nullopt;
}

// Widths for the rows of `of` from the errors of rows outside of it: those of the other groups of its kind, for a GPU also
// those of models, because there are two GPUs only. Each row counts once.
void add_widths(LeftOut& of, const std::vector<LeftOut>& all, const std::vector<EndToEndRow>& rows) {
  struct Both {
    LogError tpot, ttft;
  };
  std::map<std::size_t, Both> errors;
  for (const LeftOut& other : all) {
    if (other.kind != of.kind && !(of.kind == "GPU" && other.kind == "model")) continue;
    for (const LeftOutRow& row : other.rows) {
      const EndToEndRow& measured = rows[row.row];
      if (group_of(of.kind, measured) == of.group) continue;
      errors.try_emplace(row.row, Both{{std::abs(std::log(row.tpot_s / measured.tpot_s)), row.tpot_spread},
                                       {std::abs(std::log(row.ttft_s / measured.ttft_s)), row.ttft_spread}});
    }
  }
  const auto scale = [&](const std::string& engine, LogError Both::*metric) {
    std::vector<LogError> own, any;
    for (const auto& [row, error] : errors) {
      any.push_back(error.*metric);
      if (rows[row].engine == engine) own.push_back(error.*metric);
    }
    const std::optional<Scale> by_engine = scale_of(own);
    return by_engine ? by_engine : scale_of(any);
  };
  std::map<std::string, std::pair<std::optional<Scale>, std::optional<Scale>>> scales;
  for (LeftOutRow& row : of.rows) {
    const std::string& engine = rows[row.row].engine;
    if (!scales.contains(engine)) scales[engine] = {scale(engine, &Both::tpot), scale(engine, &Both::ttft)};
    const auto& [tpot, ttft] = scales[engine];
    if (tpot) row.tpot_factor = tpot->factor(row.tpot_spread);
    if (ttft) row.ttft_factor = ttft->factor(row.ttft_spread);
  }
}

}  // namespace

std::map<std::string, std::vector<std::size_t>> by_engine(const std::vector<EndToEndRow>& all,
                                                          const std::vector<std::size_t>& rows) {
  std::map<std::string, std::vector<std::size_t>> engines;
  for (const std::size_t row : rows) engines[all[row].engine].push_back(row);
  return engines;
}

const std::vector<Latent>& latents() {
  using R = LoadRecipe;
  using C = EngineCosts;
  static const std::vector<Latent> kLatents = {
      {"tokens of the chat template",
       {[](R& recipe, C&) { recipe.template_tokens = 0; }, [](R& recipe, C&) { recipe.template_tokens *= 2; }}},
      {"slots", {[](R& recipe, C&) { ++recipe.missing_slots; }, [](R& recipe, C&) { recipe.missing_slots = 0; }}},
      {"requests of a client", {[](R& recipe, C&) { recipe.rounds *= 2; }, [](R& recipe, C&) { recipe.rounds /= 2; }}},
      {"budget of tokens",
       {[](R& recipe, C&) { recipe.budget_tokens *= 2, recipe.budget_prompts *= 2; }, [](R&, C&) {}}},  // or as assumed
      {"memory without cache",
       {[](R& recipe, C&) { recipe.reserved_bytes += 1e9; }, [](R& recipe, C&) { recipe.reserved_bytes -= 1e9; }}},
      cost_latent<&C::iteration_s>("an iteration's CPU time"),
      cost_latent<&C::sequence_s>("a sequence's CPU time"),
      cost_latent<&C::prefill_s>("a prompt's CPU time"),
      cost_latent<&C::eager_layer_s>("a layer's CPU time"),
      cost_latent<&C::request_s>("the front end's time for a request"),
      cost_latent<&C::token_s>("the front end's time for a token"),
      cost_latent<&C::turnaround_s>("the client's turn"),
  };
  return kLatents;
}

std::vector<LeftOutRow> left_out_rows(std::span<const std::size_t> rows, const std::vector<ClosedLoopResult>& results) {
  std::vector<LeftOutRow> found;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (results[i].fits) found.push_back({rows[i], results[i].mean_tpot_s, results[i].mean_ttft_s});
  }
  return found;
}

std::optional<double> conformal_bound(std::vector<double> errors) {
  const auto rank = static_cast<std::size_t>(std::ceil(kCoverage * static_cast<double>(errors.size() + 1)));
  if (rank > errors.size()) return std::nullopt;
  std::nth_element(errors.begin(), errors.begin() + static_cast<std::ptrdiff_t>(rank) - 1, errors.end());
  return errors[rank - 1];
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
                                       std::span<const Latent> latents, const std::vector<std::string>& kinds) {
  const std::vector<EndToEndRow>& all = predictions.rows();
  std::map<Change, Predictions> under;
  for (const Latent& latent : latents) {
    for (const Change change : latent.alternatives) under.try_emplace(change, predictions.with(change));
  }
  const auto predict = [&](std::span<const std::size_t> of, const EngineCosts& costs) -> Result<std::vector<LeftOutRow>> {
    WINDLASS_ASSIGN_OR_RETURN(const auto results, predictions.of(of, costs));
    std::vector<LeftOutRow> found = left_out_rows(of, results);
    assert(found.size() == of.size());  // counted_rows()
    std::vector<double> tpot_squares(of.size(), 0), ttft_squares(of.size(), 0);
    for (const Latent& latent : latents) {
      const double share = 1.0 / static_cast<double>(latent.alternatives.size());
      for (const Change change : latent.alternatives) {
        WINDLASS_ASSIGN_OR_RETURN(const auto moved, under.at(change).of(of, costs));
        for (std::size_t i = 0; i < of.size(); ++i) {
          if (!moved[i].fits) continue;  // says nothing
          tpot_squares[i] += share * std::pow(std::log(moved[i].mean_tpot_s / found[i].tpot_s), 2);
          ttft_squares[i] += share * std::pow(std::log(moved[i].mean_ttft_s / found[i].ttft_s), 2);
        }
      }
    }
    for (std::size_t i = 0; i < of.size(); ++i) {
      found[i].tpot_spread = std::sqrt(tpot_squares[i]);
      found[i].ttft_spread = std::sqrt(ttft_squares[i]);
    }
    return found;
  };
  return leave_out(all, rows, kinds, [&](const auto& train, const auto& test) {
    return predict_left_out<EngineCosts>(
        all, train, test, [&](std::span<const std::size_t> fitted) { return fit_costs(predictions, fitted); },
        [](const std::vector<EngineCosts>& fits) { return mean_of(fits); }, predict);
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
