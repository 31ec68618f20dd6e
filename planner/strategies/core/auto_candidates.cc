// See auto_candidates.h.
#include "planner/strategies/core/auto_candidates.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <tuple>

#include <fmt/format.h>

#include "planner/strategies/core/fewest_workers.h"

namespace windlass::search {
namespace {

constexpr double kGuessOfSteady = 0.85;  // share of a steady rate at which capacities usually lie

// Results for one kind.
struct Phases {
  double worth = 0;
  SteadyState whole_bound, whole, decode_bound, decode;  // bounds without objectives, then within them
  double prompts_bound_per_s = 0, prompts_per_s = 0;
  std::string too_slow_to_prefill, too_slow_to_decode;
};

// The largest rate whose mean time in an M/D/1 queue is at most `max_s` (DistServe, Eq. 1: s + rate s^2 / 2 (1 - rate s)).
double md1_rate(double service_s, double max_s) {
  const double wait_s = max_s - service_s;
  if (wait_s <= 0) return 0;
  if (std::isinf(wait_s)) return 1 / service_s;
  return 2 * wait_s / (service_s * (service_s + 2 * wait_s));
}

double prefill_s(const WorkerKind& kind, double tokens, double squares) {
  return kind.model->iteration_s(planner::Batch{1, tokens, squares, 0, 0});
}

Phases phases_of(const Problem& problem, int k, const LengthMoments& lengths, const LatencyBounds& bounds) {
  const WorkerKind& kind = problem.kinds[static_cast<std::size_t>(k)];
  Phases phases;
  phases.worth = worth_of_worker(problem, k);
  phases.whole_bound = steady_state(kind, problem.engine, lengths);
  phases.whole = steady_state(kind, problem.engine, lengths, bounds.tpot_s);
  phases.decode_bound =
      steady_state(kind, problem.engine, lengths, std::numeric_limits<double>::infinity(), SteadyPart::kDecode);
  phases.decode = steady_state(kind, problem.engine, lengths, bounds.tpot_s, SteadyPart::kDecode);
  const double prompt_s = prefill_s(kind, lengths.input_tokens, lengths.input_square) / kind.pipeline_stages;
  phases.prompts_bound_per_s = 1 / prompt_s;
  phases.prompts_per_s = md1_rate(prompt_s, bounds.ttft_s);
  const double alone_s =
      prefill_s(kind, lengths.median_input_tokens, lengths.median_input_tokens * lengths.median_input_tokens);
  const std::string name = fmt::format("{}, TP {}, PP {}", problem.spec(kind).name, kind.tensor_parallel, kind.pipeline_stages);
  if (bounds.ttft_share >= 0.5 && alone_s > bounds.ttft_s) {
    phases.too_slow_to_prefill =
        fmt::format("{}: a prompt of median length takes {:.3g} s alone, above TTFT {:.3g} s", name, alone_s, bounds.ttft_s);
  }
  const double token_s = kind.model->iteration_s(planner::decode_batch(1, 1));
  if (token_s > bounds.tpot_s) {
    phases.too_slow_to_decode =
        fmt::format("{}: a token takes {:.3g} s alone, above TPOT {:.3g} s", name, token_s, bounds.tpot_s);
  }
  return phases;
}

// Workers for a rate, given the rate of each; none: more than a plan may have.
std::optional<int> workers_for(double rate_per_s, double each_per_s) {
  const double workers = std::ceil(rate_per_s / each_per_s * (1 - 1e-12));
  if (!(workers <= kMaxWorkers)) return std::nullopt;
  return std::max(1, static_cast<int>(workers));
}

}  // namespace

LatencyBounds latency_bounds(const Objectives& objectives) {
  LatencyBounds bounds;
  if (objectives.both) {
    bounds.ttft_s = objectives.both->ttft_s;
    bounds.ttft_share = objectives.attainment;
    bounds.tpot_s = objectives.both->tpot_s;
  }
  for (const Limit& limit : objectives.limits) {
    if (limit.metric == Metric::kTtft && limit.most < bounds.ttft_s) {
      bounds.ttft_s = limit.most;
      bounds.ttft_share = limit.percentile / 100;
    }
    if (limit.metric == Metric::kTpot) bounds.tpot_s = std::min(bounds.tpot_s, limit.most);
  }
  return bounds;
}

AutoCandidates auto_candidates(const Problem& problem, const LengthMoments& lengths, double requests_per_s) {
  const LatencyBounds bounds = latency_bounds(problem.objectives);
  AutoCandidates result;
  std::vector<Phases> phases;
  for (int k = 0; k < static_cast<int>(problem.kinds.size()); ++k) {
    phases.push_back(phases_of(problem, k, lengths, bounds));
    for (const std::string* why : {&phases.back().too_slow_to_prefill, &phases.back().too_slow_to_decode}) {
      if (!why->empty()) result.screened.push_back(*why);
    }
  }
  const auto count = static_cast<int>(phases.size());
  for (int p = 0; p < count; ++p) {
    const Phases& prefill = phases[static_cast<std::size_t>(p)];
    if (!prefill.too_slow_to_prefill.empty()) continue;
    for (int d = -1; d < count; ++d) {
      const Phases& decode = phases[static_cast<std::size_t>(d < 0 ? p : d)];
      if (!decode.too_slow_to_decode.empty()) continue;
      AutoCandidate candidate;
      candidate.prefill_kind = p;
      candidate.decode_kind = d;
      candidate.prefill_worth = prefill.worth;
      candidate.decode_worth = d < 0 ? 0 : decode.worth;
      std::optional<int> least_prefill, prefills, least_decode = 0, decodes = 0;
      if (d < 0) {
        least_prefill = workers_for(requests_per_s, prefill.whole_bound.requests_per_s * kSteadyRateMargin);
        prefills = workers_for(requests_per_s, prefill.whole.requests_per_s * kGuessOfSteady);
      } else {
        least_prefill = workers_for(requests_per_s, prefill.prompts_bound_per_s * kSteadyRateMargin);
        prefills = workers_for(requests_per_s, prefill.prompts_per_s);
        least_decode = workers_for(requests_per_s, decode.decode_bound.requests_per_s * kSteadyRateMargin);
        decodes = workers_for(requests_per_s, decode.decode.requests_per_s * kGuessOfSteady);
      }
      if (!least_prefill || !prefills || !least_decode || !decodes) continue;
      candidate.least = {*least_prefill, *least_decode};
      candidate.guess = {std::max(*prefills, *least_prefill), std::max(*decodes, *least_decode)};
      candidate.steady_requests_per_s = d < 0 ? candidate.guess.prefill * prefill.whole.requests_per_s
                                              : std::min(candidate.guess.prefill * prefill.prompts_per_s,
                                                         candidate.guess.decode * decode.decode.requests_per_s);
      result.candidates.push_back(candidate);
    }
  }
  const auto key = [](const AutoCandidate& of) {
    return std::tuple(of.worth(of.guess), !of.unified(), -of.steady_requests_per_s);
  };
  std::stable_sort(result.candidates.begin(), result.candidates.end(),
                   [&](const AutoCandidate& a, const AutoCandidate& b) { return key(a) < key(b); });
  return result;
}

}  // namespace windlass::search
