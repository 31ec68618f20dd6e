// ComposedSource: arrivals and lengths, drawn apart, made into requests. MergedSource: several sources, one for each of a
// workload's models, as one.
//
//   WINDLASS_ASSIGN_OR_RETURN(auto arrivals, make_arrivals(PoissonArrivals{70}, seed, "chat"));
//   ComposedSource chat(std::move(arrivals), lengths, seed, "chat");
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "planner/base/rng.h"
#include "planner/workload/arrivals.h"
#include "planner/workload/lengths.h"
#include "planner/workload/request_source.h"

namespace windlass::workload {

// Lengths are drawn from the stream "<source>/lengths", so that other arrivals bring the same requests. A request's size is its
// tokens, input and output, over their mean. Ends when its arrivals do.
class ComposedSource final : public RequestSource {
 public:
  ComposedSource(std::unique_ptr<ArrivalProcess> arrivals, LengthDistribution lengths, std::uint64_t seed,
                 std::string_view source);

  [[nodiscard]] std::optional<Request> next() override;

 private:
  std::unique_ptr<ArrivalProcess> arrivals_;
  LengthDistribution lengths_;
  Rng rng_;
  double per_mean_tokens_;
};

// Requests of all parts in the order of time; of two at the same time the one of the part listed first is first. Sets each
// request's model to its part's. Ends when all have. O(log parts) per request.
class MergedSource final : public RequestSource {
 public:
  struct Part {
    std::unique_ptr<RequestSource> source;
    int model = 0;
  };
  explicit MergedSource(std::vector<Part> parts);

  [[nodiscard]] std::optional<Request> next() override;

 private:
  struct Head {
    Request request;
    std::size_t part = 0;
  };
  static bool later(const Head& a, const Head& b);
  void pull(std::size_t part);  // its next request, if any, into the heap

  std::vector<Part> parts_;
  std::vector<Head> heads_;  // a heap by time and part, the earliest at the front
};

}  // namespace windlass::workload
