// ScenarioRequests: the requests of a scenario, from its trace or length files or distributions, and a source that generates
// them. Pure.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "planner/whatif/scenario.h"
#include "planner/workload/context_limit.h"
#include "planner/workload/trace.h"

namespace windlass::sim {

// Maximum tokens of a request. None for BLOOM: its ALiBi positions have no table, and the catalog states the length it was
// trained on.
[[nodiscard]] std::optional<int> context_limit(const ScenarioModel& model, const planner::ModelShape& shape);

class ScenarioRequests {
 public:
  // `text` is the content of the scenario's trace or length file; empty without one. `context` none: no limit. Errors name FILE
  // and line, or SCENARIO:LINE and the field.
  [[nodiscard]] static Result<ScenarioRequests> make(const Scenario& scenario, const ScenarioService& service,
                                                     std::string_view text, std::optional<int> context_tokens);

  // Means of the request lengths and of the arrival rate.
  [[nodiscard]] double mean_input_tokens() const { return mean_input_tokens_; }
  [[nodiscard]] double mean_output_tokens() const { return mean_output_tokens_; }
  [[nodiscard]] double rate_per_s() const { return rate_per_s_; }
  // Whether source() accepts factors other than 1; a trace whose rows all arrive at the same time has no rate.
  [[nodiscard]] bool rate_is_free() const { return rate_is_free_; }
  // Approximate number of requests and duration.
  [[nodiscard]] double expected_requests() const;
  [[nodiscard]] double expected_duration_s() const;
  // Whether the requests depend on the seed.
  [[nodiscard]] bool random() const;

  // Requests at `rate_factor` times the rate, until the workload's duration or number of requests ends them. One seed gives one
  // sequence; lengths do not depend on the rate.
  [[nodiscard]] std::unique_ptr<workload::RequestSource> source(std::uint64_t seed, double rate_factor) const;

 private:
  [[nodiscard]] workload::ArrivalSpec arrivals(double rate_factor) const;
  [[nodiscard]] workload::TraceScaling scaling(double rate_factor) const;

  ScenarioWorkload workload_;
  std::string stream_ = "requests";
  std::vector<workload::TraceRow> rows_;                 // for a trace that is replayed
  std::optional<workload::LengthDistribution> lengths_;  // otherwise
  double base_rate_per_s_ = 1;                           // the stated or implied requestsPerSecond
  double own_rate_per_s_ = 1;                            // the trace's own rate
  double rate_per_s_ = 1;
  double mean_input_tokens_ = 1;
  double mean_output_tokens_ = 1;
  bool rate_is_free_ = true;
};

}  // namespace windlass::sim
