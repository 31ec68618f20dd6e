// AutoCandidates: the deployments that `auto` considers, screened by closed forms: unified workers of each kind, and prefill
// and decode workers of each pair of kinds, with the expected number of workers at the problem's rate. Only for auto_*.cc.
//
// A kind on which a single request is too slow is excluded, with the reason: more requests than allowed would miss the
// objectives in any deployment.
// - Bounds: no worker serves more than its steady rate times kSteadyRateMargin. No prefill worker serves more than prompts back
//   to back.
// - Guesses of the expected number of workers: the steady rate of batches within the TPOT objective, and the M/D/1 queue
//   (DistServe, Eq. 1) within the TTFT objective.
//
// Pure.
#pragma once

#include <limits>
#include <string>
#include <vector>

#include "planner/strategies/core/phase_counts.h"
#include "planner/strategies/core/problem.h"
#include "planner/strategies/core/steady_rate.h"

namespace windlass::search {

// The strictest bounds of the objectives; infinite without one.
struct LatencyBounds {
  double ttft_s = std::numeric_limits<double>::infinity();
  double ttft_share = 0;  // share of the requests that must meet it
  double tpot_s = std::numeric_limits<double>::infinity();
};
[[nodiscard]] LatencyBounds latency_bounds(const Objectives& objectives);

struct AutoCandidate {
  int prefill_kind = 0;
  int decode_kind = -1;  // -1: unified
  PhaseCounts least;     // lower bound; fewer cannot serve the rate
  PhaseCounts guess;
  double prefill_worth = 0, decode_worth = 0;  // per worker
  double steady_requests_per_s = 0;            // rate of the guessed workers within the objectives

  [[nodiscard]] bool unified() const { return decode_kind < 0; }
  [[nodiscard]] double worth(const PhaseCounts& counts) const {
    return counts.prefill * prefill_worth + counts.decode * decode_worth;
  }
};

struct AutoCandidates {
  std::vector<AutoCandidate> candidates;  // by the guess's worth; ties: unified ones first, then by steady rate
  std::vector<std::string> screened;      // why others were excluded
};

// For the problem's kinds at `requests_per_s`.
[[nodiscard]] AutoCandidates auto_candidates(const Problem& problem, const LengthMoments& lengths, double requests_per_s);

}  // namespace windlass::search
