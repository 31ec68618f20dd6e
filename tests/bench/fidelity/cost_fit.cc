// Implements cost_fit.h.
#include "tests/bench/fidelity/cost_fit.h"

#include <algorithm>
#include <cmath>

namespace windlass::bench {
namespace {

struct Cost {
  double EngineCosts::*member;
  double start;
  std::vector<double> grid;
};

const std::vector<Cost>& costs_to_fit() {
  using C = EngineCosts;
  static const std::vector<Cost> kCosts = {
      {&C::iteration_s, 1e-3, {0.5e-3, 0.7e-3, 1e-3, 1.4e-3, 2e-3, 2.8e-3, 4e-3}},
      {&C::eager_layer_s, 0.5e-3, {0.18e-3, 0.25e-3, 0.35e-3, 0.5e-3, 0.6e-3, 0.7e-3}},
      {&C::prefill_s, 2e-3, {0.5e-3, 1e-3, 2e-3, 4e-3, 8e-3}},
      {&C::sequence_s, 0.02e-3, {0.005e-3, 0.01e-3, 0.02e-3, 0.04e-3, 0.08e-3, 0.14e-3}},
      {&C::token_s, 0.02e-3, {0.01e-3, 0.02e-3, 0.04e-3, 0.06e-3, 0.08e-3, 0.1e-3}},
      {&C::request_s, 1e-3, {0.5e-3, 1e-3, 2e-3, 4e-3}},
      {&C::turnaround_s, 5e-3, {2.5e-3, 5e-3, 10e-3}},
  };
  return kCosts;
}

// A cost of twice or half its prior adds this to the loss, as much as a TPOT that is off by 15 %.
constexpr double kPriorWeight = 0.3;
double distance_to_prior(const EngineCosts& costs) {
  double sum = 0;
  for (const Cost& cost : costs_to_fit()) sum += std::pow(std::log2(costs.*cost.member / cost.start), 2);
  return kPriorWeight * sum;
}

double loss_of(std::span<const EndToEndRow> all, std::span<const std::size_t> rows,
               std::span<const ClosedLoopResult> predicted) {
  double loss = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const EndToEndRow& row = all[rows[i]];
    if (!predicted[i].fits) continue;
    loss += 2 * std::min(0.3, std::abs(std::log(predicted[i].mean_tpot_s / row.tpot_s))) +
            std::min(0.7, std::abs(std::log(predicted[i].mean_ttft_s / row.ttft_s)));
  }
  return loss;
}

}  // namespace

Predictions::Key Predictions::key_of(const EngineCosts& costs) {
  Key key{};
  for (std::size_t i = 0; i < key.size(); ++i) key[i] = costs.*costs_to_fit()[i].member;
  return key;
}

Result<std::vector<ClosedLoopResult>> Predictions::of(std::span<const std::size_t> rows, const EngineCosts& costs) {
  const Key key = key_of(costs);
  std::vector<std::size_t> unknown;
  std::vector<const planner::OperatorModel*> models;
  std::vector<std::pair<LoadRecipe, EngineCosts>> settings;
  for (const std::size_t row : rows) {
    if (known_.contains({key, row})) continue;
    WINDLASS_ASSIGN_OR_RETURN(LoadRecipe recipe, recipe_of(this->rows()[row]));
    EngineCosts changed = costs;
    if (change_ != nullptr) change_(recipe, changed);
    WINDLASS_ASSIGN_OR_RETURN(const planner::OperatorModel* model, data_.model_of(this->rows()[row], recipe, kernels_));
    unknown.push_back(row);
    models.push_back(model);
    settings.emplace_back(recipe, changed);
  }
  WINDLASS_ASSIGN_OR_RETURN(const auto found, parallel_map<ClosedLoopResult>(executor_, unknown.size(), [&](std::size_t i) {
                              return predict(this->rows()[unknown[i]], settings[i].first, settings[i].second, *models[i]);
                            }));
  for (std::size_t i = 0; i < unknown.size(); ++i) known_.try_emplace({key, unknown[i]}, found[i]);
  std::vector<ClosedLoopResult> results;
  results.reserve(rows.size());
  for (const std::size_t row : rows) results.push_back(known_.at({key, row}));
  return results;
}

Result<EngineCosts> fit_costs(Predictions& predictions, std::span<const std::size_t> rows) {
  constexpr int kMaxPasses = 4;
  EngineCosts best;
  for (const Cost& cost : costs_to_fit()) best.*cost.member = cost.start;
  const auto loss = [&](const EngineCosts& costs) -> Result<double> {
    WINDLASS_ASSIGN_OR_RETURN(const auto predicted, predictions.of(rows, costs));
    return loss_of(predictions.rows(), rows, predicted) + distance_to_prior(costs);
  };
  WINDLASS_ASSIGN_OR_RETURN(double least, loss(best));
  for (int pass = 0; pass < kMaxPasses; ++pass) {
    const EngineCosts before = best;
    for (const Cost& cost : costs_to_fit()) {
      for (const double value : cost.grid) {
        EngineCosts tried = best;
        tried.*cost.member = value;
        if (tried == best) continue;
        WINDLASS_ASSIGN_OR_RETURN(const double found, loss(tried));
        if (found >= least) continue;
        least = found;
        best = tried;
      }
    }
    if (best == before) break;
  }
  return best;
}

EngineCosts mean_of(std::span<const EngineCosts> all) {
  EngineCosts mean;
  for (const Cost& cost : costs_to_fit()) {
    for (const EngineCosts& one : all) mean.*cost.member += one.*cost.member / static_cast<double>(all.size());
  }
  return mean;
}

}  // namespace windlass::bench
