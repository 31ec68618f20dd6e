// The question of the cheapest mix (mix.h) for a placement problem: its requests cut by size, and what a request of each size
// takes of a worker of each kind inside the objectives.
//
// Buckets are doublings of input and of output tokens. What a request takes is 1 / the steady rate (steady_rate.h) of a worker
// that serves this bucket alone in batches whose iterations stay inside TPOT; a kind on which a request of the bucket's mean
// length is outside TTFT or TPOT alone, or whose cache does not hold the longest, is not for it. Buckets that no kind serves
// inside the objectives may be missed as far as the attainment leaves room: they go where they take the least. Pure.
#pragma once

#include <string>
#include <vector>

#include "planner/strategies/core/problem.h"
#include "planner/strategies/core/steady_rate.h"
#include "planner/strategies/mix/mix.h"

namespace windlass::search {

struct MixQuestionOptions {
  std::int64_t requests = 4000;  // whose lengths are cut
  double least_share = 0.002;    // of the requests; smaller buckets join the nearest
};

struct MixQuestion {
  MixProblem mix;          // one model at 1 request/s; a kind's price is what the problem's goal counts
  std::vector<int> kinds;  // of each of the mix's kinds: index in Problem::kinds
  struct Bucket {
    double share = 0;  // of the requests
    LengthMoments lengths;
    bool outside = false;  // no kind serves it inside the objectives
  };
  std::vector<Bucket> buckets;
  double outside_share = 0;        // of the requests
  std::vector<std::string> notes;  // kinds that were left out, and why
};

// Kinds that another of the same accelerator beats, being no dearer by the worker and by each bucket's request, are left out.
[[nodiscard]] MixQuestion mix_question(const Problem& problem, const MixQuestionOptions& options = {});

// The same at a rate.
[[nodiscard]] MixProblem at_rate(const MixQuestion& question, double requests_per_s);

}  // namespace windlass::search
