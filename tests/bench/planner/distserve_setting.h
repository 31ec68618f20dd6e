// The setting of DistServe's evaluation (Zhong et al., OSDI 2024, Section 6.1) as a placement problem: OPT-13B and OPT-66B on
// nodes of A100-80GB with NVLink inside and 25 Gbit/s between them, Poisson arrivals of ShareGPT's lengths within OPT's 2,048
// tokens, Table 1's chat objectives for 90 % of the requests, and the latencies and KV capacities of the authors' own profile
// files. Used by the tables, the benchmark and the test.
#pragma once

#include <memory>
#include <string>

#include "planner/base/result.h"
#include "planner/strategies/core/drawn_requests.h"
#include "planner/strategies/core/problem.h"
#include "tests/bench/fidelity/distserve_ordering.h"

namespace windlass::bench {

enum class DistServeLengths {
  kShareGpt,  // from ../shared/data
  kMeasured,  // from the authors' own run (distserve_measured.h)
};

struct DistServeSpec {
  std::string model = "opt-13b";  // or "opt-66b"
  ProfiledEngine engine = ProfiledEngine::kDistServe;
  DistServeLengths lengths = DistServeLengths::kShareGpt;
  int nodes = 4;
  int gpus_per_node = 8;
};

// A problem and the requests that it refers to. Worth is counted in GPUs.
struct DistServeSetting {
  std::unique_ptr<search::DrawnRequests> requests;
  search::Problem problem;
};

// `data`: ../shared/data.
[[nodiscard]] Result<DistServeSetting> distserve_setting(const std::string& data, const DistServeSpec& spec);

}  // namespace windlass::bench
