// Sums up the errors of predicted lengths at one worker; see packing_error.h.
#include "planner/dispatch/packing_error.h"

#include <algorithm>

namespace windlass::dispatch {
namespace {

constexpr double kRounding = 1e-6;  // iterations: shares of one, summed up, may be less than it
constexpr auto kEndsLater = [](const auto& a, const auto& b) { return a.until > b.until; };

}  // namespace

void PackingError::subtract(int tokens) {
  if (tokens <= 0) return;
  parts_.push_back({iterations_ + tokens, tokens});
  std::push_heap(parts_.begin(), parts_.end(), kEndsLater);
  withdraw(tokens);
}

void PackingError::add(int predicted_tokens) {
  tokens_ += predicted_tokens;
  requests_ += 1;
}

void PackingError::withdraw(int predicted_tokens) {
  tokens_ -= predicted_tokens;
  requests_ -= 1;
}

void PackingError::ended_early(int output_tokens, int predicted_tokens) { subtract(predicted_tokens - output_tokens); }

void PackingError::gave(int predicted_tokens) { subtract(predicted_tokens); }

void PackingError::iterated(double iterations) {
  iterations_ += iterations;
  while (!parts_.empty() && parts_.front().until <= iterations_ + kRounding) {
    add(parts_.front().tokens);
    std::pop_heap(parts_.begin(), parts_.end(), kEndsLater);
    parts_.pop_back();
  }
  if (parts_.empty()) iterations_ = 0;
}

void PackingError::clear() { *this = {}; }

}  // namespace windlass::dispatch
