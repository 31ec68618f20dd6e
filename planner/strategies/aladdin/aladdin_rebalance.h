// Aladdin's Alg. 2: moves new requests between workers so that prediction errors even out (Nie, Fonseca, Liu 2024, Section
// 4.3).
//
// A worker whose requests ran longer than predicted, or shorter, has an error: l_e tokens of context and b_e requests more (or
// fewer) than it was packed for. By Eq. 4 this costs k2 l_e + c2 b_e of an iteration's time. The paper minimises the sum of the
// distances of the line through (l_e, b_e) from the origin, which is the magnitude of that cost over sqrt(k2^2 + c2^2). A new
// request that moves takes k2 l_pred + c2 with it. Running requests do not move.
//
// The paper does not say how to find the minimum. Here the move that lowers the sum most is repeated until none lowers it: the
// sum never rises, and tests compare small cases with the true minimum. Pure.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

namespace windlass::search {

// Coefficients of Eq. 3 and 4.
struct ErrorLine {
  double context_token_s = 0;   // k2, alpha
  double decode_request_s = 0;  // c2, beta
};

// Error of one worker since the last heartbeat.
struct PackingError {
  double tokens = 0;    // l_e
  double requests = 0;  // b_e

  void went_on(int predicted_again_tokens) {
    tokens += predicted_again_tokens;
    requests += 1;
  }
  void ended_early(int real_tokens, int predicted_tokens) {
    tokens += real_tokens - predicted_tokens;
    requests -= 1;
  }
  bool operator==(const PackingError&) const = default;
};

// A new request, placed but not started.
struct Movable {
  std::size_t worker = 0;
  int predicted_tokens = 0;
};

// The sum of distances over the workers, Alg. 2, line 22.
[[nodiscard]] double error_distance(const ErrorLine& line, std::span<const PackingError> errors);

// The worker of each request. `errors` are those before any move. `may_move(request, worker)` is called before each move, after
// `moved` has reported all earlier ones: whether the worker can take the request within its constraints.
struct Rebalanced {
  std::vector<std::size_t> workers;  // one per request
  std::vector<PackingError> errors;
  int moves = 0;
};
[[nodiscard]] Rebalanced rebalance(const ErrorLine& line, std::vector<PackingError> errors, std::span<const Movable> requests,
                                   const std::function<bool(std::size_t request, std::size_t worker)>& may_move,
                                   const std::function<void(std::size_t request, std::size_t worker)>& moved);

}  // namespace windlass::search
