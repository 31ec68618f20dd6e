// See aladdin_rebalance.h.
#include "planner/strategies/aladdin/aladdin_rebalance.h"

#include <algorithm>
#include <cmath>
#include <tuple>

namespace windlass::search {
namespace {

constexpr double kLeastGain = 1e-12;  // relative to the larger of both errors: rounding must not cause moves

double weight(const ErrorLine& line, const PackingError& error) {
  return line.context_token_s * error.tokens + line.decode_request_s * error.requests;
}

struct Move {
  double gain = 0;
  std::size_t request = 0, worker = 0;
};

}  // namespace

double error_distance(const ErrorLine& line, std::span<const PackingError> errors) {
  double sum = 0;
  for (const PackingError& error : errors) sum += std::abs(weight(line, error));
  const double norm = std::hypot(line.context_token_s, line.decode_request_s);
  return norm > 0 ? sum / norm : 0;
}

Rebalanced rebalance(const ErrorLine& line, std::vector<PackingError> errors, std::span<const Movable> requests,
                     const std::function<bool(std::size_t, std::size_t)>& may_move,
                     const std::function<void(std::size_t, std::size_t)>& moved) {
  Rebalanced result;
  for (const Movable& request : requests) result.workers.push_back(request.worker);
  std::vector<double> weights;
  for (const PackingError& error : errors) weights.push_back(weight(line, error));
  std::vector<Move> moves;
  while (true) {
    moves.clear();
    for (std::size_t r = 0; r < requests.size(); ++r) {
      const std::size_t from = result.workers[r];
      if (weights[from] <= 0) continue;
      const double taken = line.context_token_s * requests[r].predicted_tokens + line.decode_request_s;
      for (std::size_t to = 0; to < weights.size(); ++to) {
        if (weights[to] >= 0) continue;
        const double before = std::abs(weights[from]) + std::abs(weights[to]);
        const double gain = before - std::abs(weights[from] - taken) - std::abs(weights[to] + taken);
        if (gain > kLeastGain * before) moves.push_back({gain, r, to});
      }
    }
    std::sort(moves.begin(), moves.end(), [](const Move& a, const Move& b) {
      return std::tuple(-a.gain, a.request, a.worker) < std::tuple(-b.gain, b.request, b.worker);
    });
    const auto made = std::find_if(moves.begin(), moves.end(), [&](const Move& m) { return may_move(m.request, m.worker); });
    if (made == moves.end()) break;
    const std::size_t from = result.workers[made->request];
    const int tokens = requests[made->request].predicted_tokens;
    errors[from].tokens -= tokens;
    errors[from].requests -= 1;
    errors[made->worker].tokens += tokens;
    errors[made->worker].requests += 1;
    weights[from] = weight(line, errors[from]);
    weights[made->worker] = weight(line, errors[made->worker]);
    result.workers[made->request] = made->worker;
    ++result.moves;
    moved(made->request, made->worker);
  }
  result.errors = std::move(errors);
  return result;
}

}  // namespace windlass::search
