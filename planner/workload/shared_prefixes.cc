// Adds shared prefixes to the prompts of requests; see shared_prefixes.h.
#include "planner/workload/shared_prefixes.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <string>
#include <utility>

namespace windlass::workload {

PrefixedSource::PrefixedSource(std::unique_ptr<RequestSource> requests, const SharedPrefixes& prefixes, std::uint64_t seed,
                               std::string_view source)
    : requests_(std::move(requests)), prefixes_(prefixes), rng_(seed, std::string(source) + "/prefixes") {
  assert(requests_ && prefixes.count >= 1 && prefixes.count <= kMaxPrefixes && prefixes.tokens >= 1);
  assert(std::isfinite(prefixes.zipf) && prefixes.zipf >= 0);
  up_to_.reserve(static_cast<std::size_t>(prefixes.count));
  double sum = 0;
  for (int k = 1; k <= prefixes.count; ++k) up_to_.push_back(sum += std::pow(k, -prefixes.zipf));
}

std::optional<Request> PrefixedSource::next() {
  auto request = requests_->next();
  if (!request) return std::nullopt;
  const auto found = std::upper_bound(up_to_.begin(), up_to_.end() - 1, rng_.uniform() * up_to_.back());
  request->prefix = static_cast<int>(found - up_to_.begin());
  request->prefix_tokens = std::min(prefixes_.tokens, request->input_tokens);
  return request;
}

}  // namespace windlass::workload
