// Re-balances new requests between workers, so that the errors of predicted lengths even out: Nie, Fonseca, Liu 2024
// ("Aladdin"), Alg. 2, for one request at a time.
//
// A worker has a positive error if its requests run longer than predicted, and a negative one if they ended early
// (packing_error.h). The paper moves new requests of a heartbeat from workers to others so that the sum of the magnitudes
// becomes least. Here a request is sent on as soon as it is placed, so a heartbeat has one request and the minimum is found by
// trying every worker. Nothing moves between two workers that both have too much, or too little, to do: of workers of different
// speed the faster one would get everything. Pure.
#pragma once

#include <cstddef>

#include "planner/dispatch/best_fit.h"

namespace windlass::dispatch {

// The worker for a new request that find() placed at `placed`. If the error of that is positive: the worker with a negative
// error at which the sum of the errors' magnitudes is least, if that is less than at `placed`. Only workers that are open, run
// something and can take the request; ties go to the first.
[[nodiscard]] std::size_t rebalanced(const BestFit& workers, std::size_t placed, int input_tokens, int predicted_tokens,
                                     double now_s);

}  // namespace windlass::dispatch
