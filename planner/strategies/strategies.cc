// See strategies.h.
#include "planner/strategies/strategies.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "planner/strategies/aladdin/aladdin.h"
#include "planner/strategies/auto/auto_plan.h"
#include "planner/strategies/distserve/distserve.h"
#include "planner/strategies/hexgen2/hexgen2.h"
#include "planner/strategies/huawei/huawei.h"
#include "planner/strategies/mix/mix_plan.h"
#include "planner/strategies/splitwise/splitwise.h"
#include "planner/strategies/tetriinfer/tetriinfer.h"
#include "planner/strategies/vidur/vidur.h"

namespace windlass::search {

const std::vector<NamedStrategy>& strategies() {
  static const std::vector<NamedStrategy> kStrategies = {
      {"auto", "the cheapest of a space of its own and of what all others propose, tried with a stated confidence",
       [](const Problem& problem, const Effort& effort) {
         AutoOptions options;
         options.proposers = &strategies();
         return auto_plan(problem, options, effort);
       }},
      {"aladdin", "the worker that serves most per GPU, and requests packed into as few as keep the objectives (Aladdin)",
       [](const Problem& problem, const Effort& effort) { return aladdin_plan(problem, effort); }},
      {"distserve",
       "prefill and decoding instances, each in the parallelism of the most goodput, or pairs on a node (DistServe)",
       [](const Problem& problem, const Effort& effort) { return distserve_plan(problem, effort); }},
      {"mix", "unified workers of several kinds, each size of request where it is cheap (the cheapest mix)",
       [](const Problem& problem, const Effort& effort) { return mix_plan(problem, effort); }},
      {"splitwise", "machines for prompts and machines for tokens (Splitwise)",
       [](const Problem& problem, const Effort& effort) { return splitwise_plan(problem, effort); }},
      {"tetriinfer", "prefill and decode instances, with prompts in chunks and decodes by predicted lengths (TetriInfer)",
       [](const Problem& problem, const Effort& effort) { return tetriinfer_plan(problem, effort); }},
      {"vidur", "every accelerator, parallelism, batching and batch size, for the most requests per dollar (Vidur-Search)",
       [](const Problem& problem, const Effort& effort) { return vidur_plan(problem, effort); }},
      {"hexgen2", "prefill and decode groups of unlike GPUs, cut by graph partition and refined by maximum flow (HexGen-2)",
       [](const Problem& problem, const Effort& effort) { return hetero::hexgen2_plan(problem, effort); }, true},
      {"huawei", "on each machine the tensor parallelism of the most throughput (Huawei)",
       [](const Problem& problem, const Effort& effort) { return hetero::huawei_plan(problem, effort); }, true},
  };
  return kStrategies;
}

Result<const NamedStrategy*> strategy_by_name(std::string_view name) {
  std::vector<std::string_view> names;
  for (const NamedStrategy& strategy : strategies()) {
    if (name == strategy.name) return &strategy;
    names.emplace_back(strategy.name);
  }
  return Error{ErrorCode::kInvalidArgument, fmt::format("strategy: found '{}', allowed is {}", name, fmt::join(names, ", "))};
}

}  // namespace windlass::search
