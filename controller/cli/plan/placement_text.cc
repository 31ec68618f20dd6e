// Formats placements as tables; see placement_text.h.
#include "controller/cli/plan/placement_text.h"

#include <algorithm>
#include <functional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "controller/cli/console/text_table.h"
#include "planner/deployment/chains.h"

namespace windlass::cli {
namespace {

constexpr std::size_t kChainsShown = 64;
constexpr std::size_t kPairsShown = 64;

std::string rate_text(double requests_per_s) { return fmt::format("{:.4g}/s", requests_per_s); }

// "n0[0-1]: 30 layers, n1[0]: 18".
std::string hops_text(const hetero::GpuCluster& cluster, const planner::Chain& chain) {
  std::string text;
  for (const planner::Hop& hop : chain.hops) {
    text += fmt::format("{}{}: {}{}", text.empty() ? "" : ", ", gpus_text(cluster, hop.gpus), hop.layers,
                        text.empty() ? " layers" : "");
  }
  return text;
}

// "2", or "2, 1" if hops differ.
std::string degrees_text(const planner::Chain& chain) {
  std::vector<std::size_t> degrees;
  for (const planner::Hop& hop : chain.hops) degrees.push_back(hop.gpus.size());
  if (std::adjacent_find(degrees.begin(), degrees.end(), std::not_equal_to<>()) == degrees.end()) degrees.resize(1);
  return fmt::format("{}", fmt::join(degrees, ", "));
}

std::string pairs_table(const std::vector<planner::PairShare>& pairs) {
  if (pairs.empty()) return "";
  TextTable table({"FROM", "TO", "REQUESTS", "SHARE", "OF PATH CAPACITY"});
  for (std::size_t p = 0; p < std::min(kPairsShown, pairs.size()); ++p) {
    const planner::PairShare& pair = pairs[p];
    table.add({std::to_string(pair.from), std::to_string(pair.to), rate_text(pair.requests_per_s), percent_text(pair.share),
               pair.capacity_requests_per_s > 0 ? percent_text(pair.requests_per_s / pair.capacity_requests_per_s) : "-"});
  }
  return "\n" + table.text() + more_text(pairs.size(), kPairsShown);
}

}  // namespace

std::string more_text(std::size_t there, std::size_t shown) {
  return there > shown ? fmt::format("and {} more (-o json lists them)\n", there - shown) : "";
}

std::string gpus_text(const hetero::GpuCluster& cluster, const std::vector<int>& gpus) {
  return fmt::format("{}", fmt::join(planner::gpu_names(cluster, gpus), " "));
}

std::string placement_table(const hetero::GpuCluster& cluster, const planner::Deployment& deployment) {
  const std::vector<planner::Chain>& chains = deployment.chains;
  TextTable groups({"GROUP", "ROLE", "GPUS", "TP", "PP", "STAGES", "BATCH", "CAPACITY"});
  for (std::size_t c = 0; c < std::min(kChainsShown, chains.size()); ++c) {
    const planner::Chain& chain = chains[c];
    groups.add({std::to_string(c), dispatch::to_string(chain.role), gpus_text(cluster, chain.gpus()), degrees_text(chain),
                std::to_string(chain.hops.size()), hops_text(cluster, chain), std::to_string(chain.batch),
                rate_text(chain.requests_per_s)});
  }
  return groups.text() + more_text(chains.size(), kChainsShown) + pairs_table(deployment.pairs);
}

}  // namespace windlass::cli
