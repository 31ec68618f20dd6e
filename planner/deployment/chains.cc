// Groups and names chains for people; see chains.h.
#include "planner/deployment/chains.h"

#include <algorithm>
#include <tuple>

#include <fmt/format.h>

namespace windlass::planner {

std::vector<std::string> gpu_names(const hetero::GpuCluster& cluster, std::vector<int> gpus) {
  std::sort(gpus.begin(), gpus.end());
  std::vector<std::string> names;
  int first = 0;  // GPU of the node
  std::size_t at = 0;
  for (const hetero::ClusterNode& node : cluster.nodes) {
    std::string indices;
    while (at < gpus.size() && gpus[at] < first + node.gpus) {
      std::size_t last = at;
      while (last + 1 < gpus.size() && gpus[last + 1] == gpus[last] + 1 && gpus[last + 1] < first + node.gpus) ++last;
      indices += indices.empty() ? "" : ",";
      indices += last == at ? fmt::format("{}", gpus[at] - first) : fmt::format("{}-{}", gpus[at] - first, gpus[last] - first);
      at = last + 1;
    }
    if (!indices.empty()) names.push_back(fmt::format("{}[{}]", node.name, indices));
    first += node.gpus;
  }
  return names;
}

std::vector<AlikeChains> alike_chains(const Deployment& deployment) {
  std::vector<AlikeChains> all;
  for (std::size_t c = 0; c < deployment.chains.size(); ++c) {
    const Chain& chain = deployment.chains[c];
    AlikeChains one;
    one.role = chain.role;
    one.tensor_parallel = chain.tensor_parallel();
    one.hops = static_cast<int>(chain.hops.size());
    std::vector<const Hop*> hops;
    for (const Hop& hop : chain.hops) hops.push_back(&hop);
    std::sort(hops.begin(), hops.end(), [](const Hop* a, const Hop* b) { return a->gpus < b->gpus; });
    for (const Hop* hop : hops) {
      const WorkerSpec& spec = deployment.pools[static_cast<std::size_t>(hop->pool)].spec;
      one.gpus += spec.gpus();
      auto& counts = one.gpus_by_accelerator;
      const auto at = std::find_if(counts.begin(), counts.end(), [&](const auto& of) { return of.first == spec.accelerator; });
      (at == counts.end() ? counts.emplace_back(spec.accelerator, 0) : *at).second += spec.gpus();
    }
    const auto key = [](const AlikeChains& of) {
      return std::tie(of.role, of.gpus_by_accelerator, of.tensor_parallel, of.hops);
    };
    auto at = std::find_if(all.begin(), all.end(), [&](const AlikeChains& other) { return key(other) == key(one); });
    if (at == all.end()) at = all.insert(at, std::move(one));
    at->chains.push_back(static_cast<int>(c));
  }
  return all;
}

std::string AlikeChains::accelerators_text() const {
  std::string text;
  for (const auto& [name, count] : gpus_by_accelerator) text += (text.empty() ? "" : " + ") + name;
  return text;
}

}  // namespace windlass::planner
