// Builds and describes deployments; see deployment.h.
#include "planner/deployment/deployment.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "planner/base/fnv.h"
#include "planner/deployment/chains.h"
#include "planner/deployment/pool_name.h"

namespace windlass::planner {
namespace {

// "3 x h100-80gb-2", "1 x (1 h100-80gb, 3 a100-80gb) (PP 2)".
std::string describe(const AlikeChains& alike) {
  std::string one;
  if (alike.gpus_by_accelerator.size() == 1) {
    one = fmt::format("{}-{}", alike.gpus_by_accelerator.front().first, alike.gpus);
  } else {
    for (const auto& [name, count] : alike.gpus_by_accelerator) {
      one += fmt::format("{}{} {}", one.empty() ? "(" : ", ", count, name);
    }
    one += ")";
  }
  return fmt::format("{} x {}{}", alike.chains.size(), one, alike.hops > 1 ? fmt::format(" (PP {})", alike.hops) : "");
}

std::string describe(const Pool& pool) {
  const double power = pool.spec.power_share;
  return fmt::format("{} x {}{}", pool.workers, worker_text(pool.spec),
                     power == 1 ? "" : fmt::format(" (at {:.0f} % of its power)", 100 * power));
}

std::string role_text(dispatch::Role role) {
  return role == dispatch::Role::kUnified ? "" : fmt::format("{} ", dispatch::to_string(role));
}

}  // namespace

std::vector<int> Chain::gpus() const {
  std::vector<int> all;
  for (const Hop& hop : hops) all.insert(all.end(), hop.gpus.begin(), hop.gpus.end());
  std::sort(all.begin(), all.end());
  return all;
}

int Chain::tensor_parallel() const {
  std::size_t most = 0;
  for (const Hop& hop : hops) most = std::max(most, hop.gpus.size());
  return static_cast<int>(most);
}

void add_chain(Deployment& deployment, Chain chain, const std::vector<WorkerSpec>& specs) {
  for (std::size_t h = 0; h < chain.hops.size(); ++h) {
    auto& pools = deployment.pools;
    const auto like = [&](const Pool& pool) { return pool.role == chain.role && pool.spec == specs[h]; };
    auto pool = std::find_if(pools.begin(), pools.end(), like);
    if (pool == pools.end()) pool = pools.insert(pool, {specs[h], chain.role, 0});
    chain.hops[h].pool = static_cast<int>(pool - pools.begin());
    chain.hops[h].slot = pool->workers++;
  }
  deployment.chains.push_back(std::move(chain));
}

BlockRange blocks_of_stage(int layers, int stage, int stages) {
  return {layers * stage / stages, layers * (stage + 1) / stages};
}

int gpus_of(const Deployment& deployment) {
  int gpus = 0;
  for (const Pool& pool : deployment.pools) gpus += pool.workers * pool.spec.gpus();
  return gpus;
}

std::string pool_name(const WorkerSpec& spec) {
  std::string rest = fmt::format("-{}", spec.gpus());
  if (spec.pipeline_stages > 1) rest += fmt::format("-pp{}", spec.pipeline_stages);
  // By their members' names, so that a new setting does not compile until it is hashed, too.
  const auto& [accelerator, tensor_parallel, stages, engine, power_share, predictor] = spec;
  if (spec == WorkerSpec{accelerator, tensor_parallel, stages}) return class_label(accelerator, rest);
  const auto& [batching, sequences, tokens, block, blocks, reserve, preemption, host_blocks, caching, order, window, admission,
               ahead, pads, precision] = engine;
  static_cast<void>(ahead);  // follows from the type of engine, which is the service's
  Fnv1a hash;
  hash.mix(fmt::format("{} {} {} {} {} {} {} {} {} {} {} {} {} {} {}", to_string(batching), sequences, tokens, block, blocks,
                       reserve, to_string(preemption), host_blocks, caching, to_string(order), window, to_string(admission),
                       pads, power_share, predictor));
  if (precision) hash.mix(to_string(*precision));
  return class_label(spec.accelerator, fmt::format("{}-{:06x}", rest, hash.value() & 0xFFFFFF));
}

std::string worker_text(const WorkerSpec& spec) {
  const std::string name = pool_name(spec.accelerator, spec.gpus());
  return spec.pipeline_stages == 1 ? name : fmt::format("{} (PP {})", name, spec.pipeline_stages);
}

std::string describe(const Deployment& deployment) {
  std::string text;
  const auto add = [&](const auto& group) { text += (text.empty() ? "" : " + ") + role_text(group.role) + describe(group); };
  if (deployment.chains.empty()) {
    for (const Pool& pool : deployment.pools) add(pool);
  } else {
    for (const AlikeChains& alike : alike_chains(deployment)) add(alike);
  }
  return text;
}

}  // namespace windlass::planner
