// Places blocks by CG-BP; see cg_bp.h.
#include "planner/chain/cg_bp.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstddef>

#include "planner/chain/gbp_cr.h"
#include "planner/chain/lowest_window.h"

namespace windlass::chain {

double amortised_time_s(const Server& server, double communication_s, int blocks) {
  assert(blocks >= 1);
  return server.block_s + communication_s / blocks;
}

double session_capacity(const Instance& instance, int server, int blocks) {
  assert(blocks >= 1);
  const double memory_gb = instance.servers[static_cast<std::size_t>(server)].memory_gb;
  return std::floor((memory_gb - instance.block_gb * blocks) / (instance.cache_gb * blocks));
}

ConservativePlacement cg_bp(const Instance& instance, int design_load, std::span<const double> communication_s) {
  assert(design_load >= 1);
  const auto servers = instance.servers.size();
  assert(communication_s.empty() || communication_s.size() == servers);
  const auto communication_of = [&](int server) {
    const auto j = static_cast<std::size_t>(server);
    return communication_s.empty() ? instance.servers[j].communication_s : communication_s[j];
  };

  ConservativePlacement result;
  result.placement.resize(servers);
  std::vector<double> amortised_s(servers, 0);
  for (int server = 0; server < static_cast<int>(servers); ++server) {
    const auto j = static_cast<std::size_t>(server);
    // Step 1 is Eq. 8 of GBP-CR with c = |R|.
    const int blocks = blocks_for_capacity(instance, instance.servers[j].memory_gb, design_load);
    result.placement[j].blocks = blocks;
    if (blocks == 0) continue;
    amortised_s[j] = amortised_time_s(instance.servers[j], communication_of(server), blocks);
    result.order.push_back(server);
  }
  std::stable_sort(result.order.begin(), result.order.end(), [&](int a, int b) {
    return amortised_s[static_cast<std::size_t>(a)] < amortised_s[static_cast<std::size_t>(b)];
  });

  std::vector<double> capacity(static_cast<std::size_t>(instance.blocks), 0);  // C_b at b - 1
  int served = 0;                                                              // blocks 1..served are placed
  double bound_s = 0;
  for (std::size_t k = 0; k < result.order.size(); ++k) {
    const int server = result.order[k];
    BlockRange& range = result.placement[static_cast<std::size_t>(server)];
    if (served < instance.blocks) {
      range.first = std::min(served + 1, instance.blocks - range.blocks + 1);
      const int overlap = served + 1 - range.first;  // for the server that completes the model: sum m_j - L
      const double block_s = instance.servers[static_cast<std::size_t>(server)].block_s;
      bound_s += communication_of(server) + block_s * (range.blocks - overlap);
      served = range.last();
      if (served == instance.blocks) {
        result.covering_servers = static_cast<int>(k) + 1;
        result.time_bound_s = bound_s;
      }
    } else {
      range.first = 1 + lowest_window(capacity, range.blocks);
    }
    const double sessions = session_capacity(instance, server, range.blocks);
    for (int block = range.first; block <= range.last(); ++block) capacity[static_cast<std::size_t>(block - 1)] += sessions;
  }
  return result;
}

}  // namespace windlass::chain
