// See mix_capacity.h.
#include "planner/strategies/mix/mix_capacity.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "planner/strategies/core/auto_candidates.h"
#include "planner/strategies/core/deployment.h"
#include "planner/strategies/core/fewest_workers.h"

namespace windlass::search {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

using Cell = std::pair<int, int>;  // doublings of input and output tokens

int doublings(int tokens) { return static_cast<int>(std::floor(std::log2(std::max(1, tokens)))); }

std::vector<MixQuestion::Bucket> cut(const Problem& problem, const MixQuestionOptions& options) {
  const auto lengths = lengths_of(*problem.requests, problem.seed, options.requests);
  std::map<Cell, std::vector<std::pair<int, int>>> cells;
  for (const auto& [input, output] : lengths) cells[{doublings(input), doublings(output)}].emplace_back(input, output);
  // The smallest joins the nearest until all are large enough.
  const double least = options.least_share * static_cast<double>(lengths.size());
  while (cells.size() > 1) {
    const auto smallest = std::min_element(cells.begin(), cells.end(),
                                           [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
    if (static_cast<double>(smallest->second.size()) >= least) break;
    const Cell from = smallest->first;
    const auto away = [&](const Cell& cell) { return std::abs(cell.first - from.first) + std::abs(cell.second - from.second); };
    auto nearest = cells.end();
    for (auto at = cells.begin(); at != cells.end(); ++at) {
      if (at != smallest && (nearest == cells.end() || away(at->first) < away(nearest->first))) nearest = at;
    }
    nearest->second.insert(nearest->second.end(), smallest->second.begin(), smallest->second.end());
    cells.erase(smallest);
  }
  std::vector<MixQuestion::Bucket> buckets;
  for (const auto& [cell, in] : cells) {
    buckets.push_back({static_cast<double>(in.size()) / static_cast<double>(lengths.size()), length_moments(in), false});
  }
  return buckets;
}

// Seconds of the worker; infinite: it does not hold the bucket's longest, or (with `bounds`) is too slow for it.
double load_of(const Problem& problem, const WorkerKind& kind, const LengthMoments& lengths, const LatencyBounds& bounds) {
  if (kind.kv_capacity_tokens / kind.pipeline_stages < lengths.longest_tokens) return kInfinite;
  const planner::Batch prompt{1, lengths.input_tokens, lengths.input_square, 0, 0};
  if (kind.model->iteration_s(prompt) > bounds.ttft_s) return kInfinite;
  const double token_s = kind.model->iteration_s(planner::decode_batch(1, lengths.decode_context_tokens));
  if (lengths.output_tokens > 1 && token_s > bounds.tpot_s) return kInfinite;
  const double rate = steady_state(kind, problem.engine, lengths, bounds.tpot_s).requests_per_s;
  return rate > 0 ? 1 / rate : kInfinite;
}

}  // namespace

MixQuestion mix_question(const Problem& problem, const MixQuestionOptions& options) {
  MixQuestion question;
  question.buckets = cut(problem, options);
  const LatencyBounds bounds = latency_bounds(problem.objectives);
  const auto count = static_cast<int>(problem.kinds.size());
  std::vector<std::vector<double>> loads;  // by bucket and kind
  for (MixQuestion::Bucket& bucket : question.buckets) {
    std::vector<double>& row = loads.emplace_back();
    for (const WorkerKind& kind : problem.kinds) row.push_back(load_of(problem, kind, bucket.lengths, bounds));
    bucket.outside = std::all_of(row.begin(), row.end(), [](double load) { return std::isinf(load); });
    if (!bucket.outside) continue;
    question.outside_share += bucket.share;
    row.clear();
    for (const WorkerKind& kind : problem.kinds) row.push_back(load_of(problem, kind, bucket.lengths, LatencyBounds{}));
  }

  const auto name = [&](int k) { return worker_text(problem.pool(k).spec); };
  const auto beaten_by = [&](int k, int other) {
    const double price = worth_of_worker(problem, k), others = worth_of_worker(problem, other);
    const bool same =
        problem.kinds[static_cast<std::size_t>(k)].accelerator == problem.kinds[static_cast<std::size_t>(other)].accelerator;
    if (k == other || !same || others > price) return false;
    bool equal = others == price;
    for (const std::vector<double>& row : loads) {
      const double mine = price * row[static_cast<std::size_t>(k)], theirs = others * row[static_cast<std::size_t>(other)];
      if (theirs > mine) return false;
      equal = equal && theirs == mine;
    }
    return !equal || other < k;
  };
  MixModel model;
  model.name = problem.name;
  for (int k = 0; k < count; ++k) {
    int winner = -1;
    for (int other = 0; other < count && winner < 0; ++other) {
      if (beaten_by(k, other)) winner = other;
    }
    const bool none =
        std::all_of(loads.begin(), loads.end(), [&](const auto& row) { return std::isinf(row[static_cast<std::size_t>(k)]); });
    if (none) {
      question.notes.push_back(fmt::format("{}: no size of request is inside the objectives on it", name(k)));
      continue;
    }
    if (winner >= 0) {
      question.notes.push_back(fmt::format("{}: {} takes no more for any size", name(k), name(winner)));
      continue;
    }
    const WorkerKind& kind = problem.kinds[static_cast<std::size_t>(k)];
    question.kinds.push_back(k);
    model.kinds.push_back({name(k), kind.accelerator, kind.gpus(), worth_of_worker(problem, k)});
  }
  for (std::size_t b = 0; b < loads.size(); ++b) {
    MixBucket& bucket = model.buckets.emplace_back();
    bucket.requests_per_s = question.buckets[b].share;
    for (const int k : question.kinds) bucket.load_s.push_back(loads[b][static_cast<std::size_t>(k)]);
  }
  for (const AcceleratorChoice& choice : problem.accelerators)
    question.mix.accelerators.push_back({choice.spec.name, choice.gpus});
  question.mix.max_gpus = problem.max_gpus;
  if (problem.goal == Goal::kCost) question.mix.max_cost_per_hour = problem.max_cost_per_hour;
  question.mix.models = {std::move(model)};
  return question;
}

MixProblem at_rate(const MixQuestion& question, double requests_per_s) {
  MixProblem mix = question.mix;
  for (MixBucket& bucket : mix.models.front().buckets) bucket.requests_per_s *= requests_per_s;
  return mix;
}

}  // namespace windlass::search
