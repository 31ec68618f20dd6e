// Small cases of Huawei's mapping (Xiong et al. 2025, Alg. 2): a burst of requests on heterogeneous instances, the policy's
// mapping, and the best possible mapping. Used by the tables and the test.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/dispatch/huawei_policy.h"

namespace windlass::bench {

struct MappingCase {
  double theta = 2;
  std::vector<dispatch::PackingModel> instances;
  std::vector<dispatch::RequestLengths> requests;  // with known outputs, in order of arrival; none ends
};

// 2 to `max_instances` instances whose speeds and caches differ by up to 8 times, and 2 to `max_requests` requests of 16 to
// 2,048 tokens in and out.
[[nodiscard]] MappingCase random_mapping_case(std::uint64_t seed, int max_instances, int max_requests, double theta);

// The largest load under HuaweiPolicy (of the sums of w, Eq. 7).
[[nodiscard]] double mapped_load(const MappingCase& of);
// The smallest largest load over all mappings of the requests, with each w computed by Eq. 7 when the request arrives. Searches
// the instances^requests mappings, pruning those that are no better than the best so far.
[[nodiscard]] double least_load(const MappingCase& of);

}  // namespace windlass::bench
