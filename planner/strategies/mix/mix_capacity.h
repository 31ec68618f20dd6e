// Turns a placement problem into a mix problem (mix.h): groups its requests by size and computes the worker time that each size
// takes on each kind within the objectives.
//
// Buckets are doublings of input and output tokens. The time of a request is 1 / the steady rate (steady_rate.h) of a worker
// that serves only its bucket, in batches whose iterations meet TPOT. A bucket may not use a kind on which a request of its
// mean length, running alone, misses TTFT or TPOT, or on which its longest request does not fit into the cache. Requests of
// buckets that no kind serves within the objectives may miss them as far as the attainment allows; they go where they take the
// least time. Pure.
#pragma once

#include <string>
#include <vector>

#include "planner/strategies/core/problem.h"
#include "planner/strategies/core/steady_rate.h"
#include "planner/strategies/mix/mix.h"

namespace windlass::search {

struct MixQuestionOptions {
  std::int64_t requests = 4000;  // requests whose lengths are sampled
  double least_share = 0.002;    // share of the requests; smaller buckets are merged into the nearest
};

struct MixQuestion {
  MixProblem mix;          // one model at 1 request/s; a kind's price is in units of the problem's goal
  std::vector<int> kinds;  // by the mix's kinds: index in Problem::kinds
  struct Bucket {
    double share = 0;  // share of the requests
    LengthMoments lengths;
    bool outside = false;  // no kind serves it within the objectives
  };
  std::vector<Bucket> buckets;
  double outside_share = 0;        // share of the requests
  std::vector<std::string> notes;  // kinds left out, and why
};

// Leaves out a kind if another one on the same accelerator costs no more, per worker and per request of each bucket.
[[nodiscard]] MixQuestion mix_question(const Problem& problem, const MixQuestionOptions& options = {});

// The same problem at another rate.
[[nodiscard]] MixProblem at_rate(const MixQuestion& question, double requests_per_s);

}  // namespace windlass::search
