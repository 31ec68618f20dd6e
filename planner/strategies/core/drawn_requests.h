// DrawnRequests supplies requests with random arrivals and lengths at any rate: those of a ModelService's assumed workload, or
// of a length file. Immutable. Pure.
#pragma once

#include <cstdint>
#include <memory>

#include "planner/base/result.h"
#include "planner/strategies/core/problem.h"
#include "planner/workload/lengths.h"

namespace windlass::search {

class DrawnRequests final : public Requests {
 public:
  // Gaps between arrivals are Gamma distributed with this coefficient of variation; 1 is Poisson. Error: `cv` that is not
  // finite or below 0.
  [[nodiscard]] static Result<DrawnRequests> make(workload::LengthDistribution lengths, double cv = 1);

  [[nodiscard]] std::unique_ptr<workload::RequestSource> source(std::uint64_t seed, double requests_per_s,
                                                                std::int64_t count) const override;
  [[nodiscard]] double mean_input_tokens() const override { return lengths_.mean_input_tokens(); }
  [[nodiscard]] double mean_output_tokens() const override { return lengths_.mean_output_tokens(); }

 private:
  DrawnRequests(workload::LengthDistribution lengths, double cv) : lengths_(std::move(lengths)), cv_(cv) {}

  workload::LengthDistribution lengths_;
  double cv_;
};

// At most `count` requests of another source.
class CountedSource final : public workload::RequestSource {
 public:
  CountedSource(std::unique_ptr<workload::RequestSource> source, std::int64_t count)
      : source_(std::move(source)), left_(count) {}

  [[nodiscard]] std::optional<workload::Request> next() override;

 private:
  std::unique_ptr<workload::RequestSource> source_;
  std::int64_t left_;
};

}  // namespace windlass::search
