// Sums up the errors of predicted lengths at one worker; see packing_error.h.
#include "planner/dispatch/packing_error.h"

#include <algorithm>

namespace windlass::dispatch {
namespace {

constexpr auto kEndsLater = [](const auto& a, const auto& b) { return a.until > b.until; };

}  // namespace

void PackingError::add(double iterations, double tokens, double requests) {
  if (!(iterations > 0)) return;
  parts_.push_back({iterations_ + iterations, tokens, requests});
  std::push_heap(parts_.begin(), parts_.end(), kEndsLater);
  tokens_ += tokens;
  requests_ += requests;
}

void PackingError::went_on(int made, int predicted_tokens) { add(predicted_tokens - made, predicted_tokens, 1); }

void PackingError::ended_early(int output_tokens, int predicted_tokens) {
  const int missing = predicted_tokens - output_tokens;
  add(missing, -missing, -1);
}

void PackingError::took(int predicted_tokens) { add(predicted_tokens, predicted_tokens, 1); }

void PackingError::gave(int predicted_tokens) { add(predicted_tokens, -predicted_tokens, -1); }

void PackingError::iterated(double iterations) {
  iterations_ += iterations;
  while (!parts_.empty() && parts_.front().until <= iterations_) {
    tokens_ -= parts_.front().tokens;
    requests_ -= parts_.front().requests;
    std::pop_heap(parts_.begin(), parts_.end(), kEndsLater);
    parts_.pop_back();
  }
  if (parts_.empty()) clear();
}

void PackingError::clear() { *this = {}; }

}  // namespace windlass::dispatch
