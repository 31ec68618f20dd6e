// See drawn_requests.h.
#include "planner/strategies/core/drawn_requests.h"

#include <cassert>
#include <utility>

#include "planner/workload/arrivals.h"
#include "planner/workload/composed_source.h"

namespace windlass::search {

Result<DrawnRequests> DrawnRequests::make(workload::LengthDistribution lengths, double cv) {
  WINDLASS_RETURN_IF_ERROR([&]() -> Result<void> {
    const auto rate = workload::mean_rate_per_s(workload::GammaArrivals{1, cv});
    if (!rate.ok()) return rate.error();
    return {};
  }());
  return DrawnRequests(std::move(lengths), cv);
}

std::unique_ptr<workload::RequestSource> DrawnRequests::source(std::uint64_t seed, double requests_per_s,
                                                               std::int64_t count) const {
  auto arrivals = workload::make_arrivals(workload::GammaArrivals{requests_per_s, cv_}, seed, "requests");
  assert(arrivals.ok());  // checked by make() and required of the caller
  return std::make_unique<CountedSource>(
      std::make_unique<workload::ComposedSource>(std::move(arrivals).value(), lengths_, seed, "requests"), count);
}

std::optional<workload::Request> CountedSource::next() {
  if (left_ <= 0) return std::nullopt;
  --left_;
  return source_->next();
}

}  // namespace windlass::search
