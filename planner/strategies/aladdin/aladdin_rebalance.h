// Aladdin's Alg. 2: new requests are moved between workers so that errors of prediction even out (Nie, Fonseca, Liu 2024,
// Section 4.3).
//
// A worker's requests that went on beyond their prediction, or ended before it, leave it with an error: l_e tokens of context
// and b_e requests more (or fewer) than it was packed for. By Eq. 4 they weigh k2 l_e + c2 b_e of an iteration's time, and the
// distance of the line through (l_e, b_e) from the origin, which the paper minimises in sum, is the magnitude of that over
// sqrt(k2^2 + c2^2). A new request that moves takes k2 l_pred + c2 along. Nothing that runs is moved.
//
// The paper leaves open how the minimum is found. Here the move that lowers the sum most is made until none lowers it: the sum
// never rises, and small cases are compared with the true minimum in the tests. Pure.
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

// Of one worker since the last heartbeat.
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

// A new request, placed and not begun.
struct Movable {
  std::size_t worker = 0;
  int predicted_tokens = 0;
};

// The sum of distances of Alg. 2, line 22, over the workers.
[[nodiscard]] double error_distance(const ErrorLine& line, std::span<const PackingError> errors);

// Where each request goes. `errors` are before any of the moves. `may_move(request, worker)` is asked before each, with all
// moves that were told by `moved` made: whether the worker takes the request inside its constraints.
struct Rebalanced {
  std::vector<std::size_t> workers;  // of the requests
  std::vector<PackingError> errors;
  int moves = 0;
};
[[nodiscard]] Rebalanced rebalance(const ErrorLine& line, std::vector<PackingError> errors, std::span<const Movable> requests,
                                   const std::function<bool(std::size_t request, std::size_t worker)>& may_move,
                                   const std::function<void(std::size_t request, std::size_t worker)>& moved);

}  // namespace windlass::search
