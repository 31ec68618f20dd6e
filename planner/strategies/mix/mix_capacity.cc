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
  // Merge the smallest into the nearest until all are large enough.
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

// Seconds of the worker per request; infinite if the longest of the bucket does not fit, or (with `bounds`) it is too slow.
double load_of(const Problem& problem, const WorkerKind& kind, const LengthMoments& lengths, const LatencyBounds& bounds) {
  if (kind.kv_capacity_tokens / kind.pipeline_stages < lengths.longest_tokens) return kInfinite;
  const planner::Batch prompt{1, lengths.input_tokens, lengths.input_square, 0, 0};
  if (kind.model->iteration_s(prompt) > bounds.ttft_s) return kInfinite;
  const double token_s = kind.model->iteration_s(planner::decode_batch(1, lengths.decode_context_tokens));
  if (lengths.output_tokens > 1 && token_s > bounds.tpot_s) return kInfinite;
  const double rate = steady_state(kind, problem.engine, lengths, bounds.tpot_s).requests_per_s;
  return rate > 0 ? 1 / rate : kInfinite;
}

// By bucket and kind.
using Loads = std::vector<std::vector<double>>;

// Marks buckets that no kind serves within the objectives; their loads are computed without bounds.
Loads loads_of(const Problem& problem, MixQuestion& question) {
  Loads loads;
  const auto row_of = [&](const MixQuestion::Bucket& bucket, const LatencyBounds& bounds) {
    std::vector<double> row;
    for (const WorkerKind& kind : problem.kinds) row.push_back(load_of(problem, kind, bucket.lengths, bounds));
    return row;
  };
  for (MixQuestion::Bucket& bucket : question.buckets) {
    std::vector<double> row = row_of(bucket, latency_bounds(problem.objectives));
    bucket.outside = std::all_of(row.begin(), row.end(), [](double load) { return std::isinf(load); });
    if (bucket.outside) {
      question.outside_share += bucket.share;
      row = row_of(bucket, LatencyBounds{});
    }
    loads.push_back(std::move(row));
  }
  return loads;
}

// Whether another kind on the same accelerator costs no more and takes at least as many requests of every bucket per price.
bool beats(const Problem& problem, const Loads& loads, std::size_t other, std::size_t kind) {
  const double price = worth_of_worker(problem, static_cast<int>(kind));
  const double others = worth_of_worker(problem, static_cast<int>(other));
  if (kind == other || problem.kinds[kind].accelerator != problem.kinds[other].accelerator || others > price) return false;
  bool equal = others == price;
  for (const std::vector<double>& row : loads) {
    const double mine = price * row[kind], theirs = others * row[other];
    if (theirs > mine) return false;
    equal = equal && theirs == mine;
  }
  return !equal || other < kind;
}

// Why a kind is left out; empty if it is not.
std::string why_not(const Problem& problem, const Loads& loads, std::size_t kind) {
  if (std::all_of(loads.begin(), loads.end(), [&](const auto& row) { return std::isinf(row[kind]); }))
    return "no size of request meets the objectives on it";
  for (std::size_t other = 0; other < problem.kinds.size(); ++other) {
    if (beats(problem, loads, other, kind))
      return worker_text(problem.pool(static_cast<int>(other)).spec) + " costs no more for any size";
  }
  return "";
}

}  // namespace

MixQuestion mix_question(const Problem& problem, const MixQuestionOptions& options) {
  MixQuestion question;
  question.buckets = cut(problem, options);
  const Loads loads = loads_of(problem, question);
  MixModel model;
  model.name = problem.name;
  for (std::size_t k = 0; k < problem.kinds.size(); ++k) {
    const int index = static_cast<int>(k);
    const std::string name = worker_text(problem.pool(index).spec);
    if (const std::string why = why_not(problem, loads, k); !why.empty()) {
      question.notes.push_back(fmt::format("{}: {}", name, why));
      continue;
    }
    question.kinds.push_back(index);
    model.kinds.push_back({name, problem.kinds[k].accelerator, problem.kinds[k].gpus(), worth_of_worker(problem, index)});
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
