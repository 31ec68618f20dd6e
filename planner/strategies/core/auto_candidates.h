// AutoCandidates: what `auto` may deploy, screened in closed form: unified workers of each kind, and prefill and decode workers
// of each pair of kinds, with how many of them the problem's rate is expected to take. For auto_*.cc alone.
//
// Left out, with why: kinds on which a request alone is too slow for the objectives: then more requests are outside than may
// be, whatever else is deployed. Bounds: no worker serves more than its steady rate times kSteadyRateMargin; no prefill worker
// more than prompts follow each other without a gap. Guesses: the steady rate of batches inside the TPOT objective; the M/D/1
// queue (DistServe, Eq. 1) inside the TTFT objective. Pure.
#pragma once

#include <limits>
#include <string>
#include <vector>

#include "planner/strategies/core/phase_counts.h"
#include "planner/strategies/core/problem.h"
#include "planner/strategies/core/steady_rate.h"

namespace windlass::search {

// What the objectives leave at the strictest: infinite where nothing is asked.
struct LatencyBounds {
  double ttft_s = std::numeric_limits<double>::infinity();
  double ttft_share = 0;  // of the requests that are to be inside it
  double tpot_s = std::numeric_limits<double>::infinity();
};
[[nodiscard]] LatencyBounds latency_bounds(const Objectives& objectives);

struct AutoCandidate {
  int prefill_kind = 0;
  int decode_kind = -1;  // -1: unified
  PhaseCounts least;     // fewer cannot serve the rate
  PhaseCounts guess;
  double prefill_worth = 0, decode_worth = 0;  // of one worker
  double steady_requests_per_s = 0;            // of the guessed workers, inside the objectives

  [[nodiscard]] bool unified() const { return decode_kind < 0; }
  [[nodiscard]] double worth(const PhaseCounts& counts) const {
    return counts.prefill * prefill_worth + counts.decode * decode_worth;
  }
};

struct AutoCandidates {
  std::vector<AutoCandidate> candidates;  // by the guess's worth; of equals unified ones first, then by steady rate
  std::vector<std::string> screened;      // why others were left out
};

// At `requests_per_s`; the problem's kinds.
[[nodiscard]] AutoCandidates auto_candidates(const Problem& problem, const LengthMoments& lengths, double requests_per_s);

}  // namespace windlass::search
