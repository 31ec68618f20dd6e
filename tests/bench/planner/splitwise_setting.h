// The setting of Splitwise's evaluation (Patel et al., ISCA 2024, Sections III and V) as a problem: BLOOM-176B or Llama2-70B on
// machines of 8 A100 or H100 by its authors' profile, with requests of the lengths of one of Azure's traces, Poisson arrivals,
// the nine objectives of Table VI, and machines' cost and power as in Table V (A100 is 1; H100 costs 2.35 and draws 1.75).
#pragma once

#include <memory>
#include <string>

#include "planner/base/result.h"
#include "planner/strategies/core/drawn_requests.h"
#include "planner/strategies/core/problem.h"

namespace windlass::bench {

inline constexpr int kA100Machine = 0, kH100Machine = 1;  // Problem::kinds
inline constexpr double kH100Cost = 2.35, kH100Power = 1.75;

struct SplitwiseSetting {
  std::unique_ptr<search::DrawnRequests> requests;
  search::Problem problem;
};

// `trace`: "code" or "conv".
[[nodiscard]] Result<SplitwiseSetting> splitwise_setting(const std::string& data, const std::string& model,
                                                         const std::string& trace, double requests_per_s);

}  // namespace windlass::bench
