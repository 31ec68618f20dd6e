// Implements huawei_mapping.h.
#include "tests/bench/heterogeneous/huawei_mapping.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "planner/base/rng.h"

namespace windlass::bench {
namespace {

// Alg. 2's sums of one instance.
struct Sums {
  double load = 0;
  double tokens = 0;
};

class AllMappings {
 public:
  explicit AllMappings(const MappingCase& of) : case_(of), sums_(of.instances.size()) {
    for (const auto& request : of.requests) {
      times_.emplace_back();
      for (const auto& instance : of.instances) {
        times_.back().push_back(dispatch::request_workload_s(dispatch::batch_times(instance), instance.kv_capacity_tokens,
                                                             instance.max_requests, request.input_tokens,
                                                             request.output_tokens));
      }
    }
  }

  double least() {
    walk(0, 0);
    return least_;
  }

 private:
  void walk(std::size_t request, double largest) {
    if (largest >= least_) return;
    if (request == times_.size()) {
      least_ = largest;
      return;
    }
    const double tokens = case_.requests[request].input_tokens + case_.requests[request].output_tokens;
    for (std::size_t s = 0; s < sums_.size(); ++s) {
      const Sums before = sums_[s];
      const double usage = before.tokens / case_.instances[s].kv_capacity_tokens;
      sums_[s] = {before.load + times_[request][s] * std::exp(case_.theta * usage), before.tokens + tokens};
      walk(request + 1, std::max(largest, sums_[s].load));
      sums_[s] = before;
    }
  }

  const MappingCase& case_;
  std::vector<Sums> sums_;
  std::vector<std::vector<double>> times_;  // [request][instance]: T of Eq. 6
  double least_ = std::numeric_limits<double>::infinity();
};

}  // namespace

MappingCase random_mapping_case(std::uint64_t seed, int max_instances, int max_requests, double theta) {
  Rng rng(seed, "mapping");
  MappingCase made;
  made.theta = theta;
  const auto instances = rng.integer(2, max_instances), requests = rng.integer(2, max_requests);
  for (std::int64_t s = 0; s < instances; ++s) {
    const double slower = std::exp2(rng.uniform(0, 3));
    dispatch::PackingModel model;
    model.prefill_token_s = 1e-4 * slower;
    model.prefill_s = 5e-3;
    model.context_token_s = 2e-7 * slower;
    model.decode_request_s = 1e-4;
    model.decode_s = 1e-2 * slower;
    model.kv_capacity_tokens = 8192 * std::exp2(rng.uniform(0, 3));
    made.instances.push_back(model);
  }
  for (std::int64_t r = 0; r < requests; ++r) {
    const auto length = [&] { return static_cast<int>(std::exp2(rng.uniform(4, 11))); };
    const int input = length(), output = length();
    made.requests.push_back({static_cast<std::uint64_t>(r), input, output});
  }
  return made;
}

double mapped_load(const MappingCase& of) {
  dispatch::HuaweiRules rules;
  rules.theta = of.theta;
  dispatch::HuaweiPolicy policy(rules, Rng(1, "unused"));
  std::vector<dispatch::ChainState> chains;
  for (std::size_t s = 0; s < of.instances.size(); ++s) {
    chains.push_back({1, of.instances[s].max_requests, 0, false, s, &of.instances[s]});
  }
  policy.reset(chains);
  for (const auto& request : of.requests) {
    const std::size_t chosen = policy.choose_for(request, 0).value();
    ++chains[chosen].in_flight;
    policy.update(chosen, chains[chosen]);
    policy.placed(chosen, request);
  }
  double largest = 0;
  for (std::size_t s = 0; s < chains.size(); ++s) largest = std::max(largest, policy.load(s));
  return largest;
}

double least_load(const MappingCase& of) { return AllMappings(of).least(); }

}  // namespace windlass::bench
