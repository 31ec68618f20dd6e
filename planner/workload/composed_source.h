// ComposedSource combines independently drawn arrivals and lengths into requests. MergedSource merges the sources of several
// models into one.
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

// Draws lengths from the stream "<source>/lengths", so that other arrivals have requests of the same lengths. A request's size
// is its input plus output tokens, divided by their mean. Ends when its arrivals do.
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

// Requests of all parts, sorted by time; at equal times the part listed first goes first. Sets the model of each request to
// that of its part. Ends when all parts have ended. O(log parts) per request.
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
  void pull(std::size_t part);  // pushes its next request, if any, onto the heap

  std::vector<Part> parts_;
  std::vector<Head> heads_;  // a heap by time and part, earliest first
};

}  // namespace windlass::workload
