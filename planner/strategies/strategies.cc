// See strategies.h.
#include "planner/strategies/strategies.h"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "planner/strategies/aladdin/aladdin.h"
#include "planner/strategies/auto/auto_plan.h"
#include "planner/strategies/chains/chains.h"
#include "planner/strategies/distserve/distserve.h"
#include "planner/strategies/hexgen2/hexgen2.h"
#include "planner/strategies/huawei/huawei.h"
#include "planner/strategies/mix/mix_plan.h"
#include "planner/strategies/splitwise/splitwise.h"
#include "planner/strategies/tetriinfer/tetriinfer.h"
#include "planner/strategies/vidur/vidur.h"

namespace windlass::search {
namespace {

// The order in which `auto` asks: by the usual time to a first plan. The others come last.
constexpr std::string_view kCheapFirst[] = {"vidur", "mix", "distserve", "splitwise", "tetriinfer", "aladdin"};

}  // namespace

const std::vector<NamedStrategy>& cheap_strategies_first() {
  static const std::vector<NamedStrategy> kOrdered = [] {
    std::vector<NamedStrategy> ordered = strategies();
    std::stable_sort(ordered.begin(), ordered.end(), [](const NamedStrategy& a, const NamedStrategy& b) {
      const auto place = [](const NamedStrategy& of) {
        return std::find(std::begin(kCheapFirst), std::end(kCheapFirst), of.name);
      };
      return place(a) < place(b);
    });
    return ordered;
  }();
  return kOrdered;
}

const std::vector<NamedStrategy>& strategies() {
  static const std::vector<NamedStrategy> kStrategies = {
      {"auto", "the cheapest deployment that its own search or any other strategy finds, with a stated confidence",
       [](const Problem& problem, const Effort& effort) {
         AutoOptions options;
         options.proposers = &cheap_strategies_first();
         return auto_plan(problem, options, effort);
       }},
      {"aladdin",
       "the worker with the highest throughput per GPU, with requests packed on as few as meet the objectives (Aladdin)",
       [](const Problem& problem, const Effort& effort) { return aladdin_plan(problem, effort); }},
      {"distserve",
       "prefill and decoding instances, each with the parallelism of highest goodput, or pairs on a node (DistServe)",
       [](const Problem& problem, const Effort& effort) { return distserve_plan(problem, effort); }},
      {"mix", "unified workers of several kinds, each request on the kind that is cheap for its size (the cheapest mix)",
       [](const Problem& problem, const Effort& effort) { return mix_plan(problem, effort); }},
      {"splitwise", "separate machines for prompts and for tokens (Splitwise)",
       [](const Problem& problem, const Effort& effort) { return splitwise_plan(problem, effort); }},
      {"tetriinfer", "prefill and decode instances, with chunked prompts and decodes placed by predicted length (TetriInfer)",
       [](const Problem& problem, const Effort& effort) { return tetriinfer_plan(problem, effort); }},
      {"vidur", "the most requests per dollar over accelerators, parallelism, batching and batch size (Vidur-Search)",
       [](const Problem& problem, const Effort& effort) { return vidur_plan(problem, effort); }},
      {"hexgen2", "prefill and decode groups of heterogeneous GPUs, by graph partition and maximum flow (HexGen-2)",
       [](const Problem& problem, const Effort& effort) { return hetero::hexgen2_plan(problem, effort); }, true, true},
      {"huawei", "the tensor parallelism with the highest throughput on each machine (Huawei)",
       [](const Problem& problem, const Effort& effort) { return hetero::huawei_plan(problem, effort); }, true, true},
      {"chains", "chains of servers that hold the model together, for models that no worker holds (GBP-CR)",
       [](const Problem& problem, const Effort& effort) { return hetero::chains_plan(problem, effort); }, true},
  };
  return kStrategies;
}

Result<const NamedStrategy*> strategy_by_name(std::string_view name) {
  std::vector<std::string_view> names;
  for (const NamedStrategy& strategy : strategies()) {
    if (name == strategy.name) return &strategy;
    names.emplace_back(strategy.name);
  }
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("strategy: must be one of {} (got '{}')", fmt::join(names, ", "), name)};
}

}  // namespace windlass::search
