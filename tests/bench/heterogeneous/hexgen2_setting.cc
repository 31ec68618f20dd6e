// Implements hexgen2_setting.h.
#include "tests/bench/heterogeneous/hexgen2_setting.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "planner/catalog/accelerators_by_name.h"

namespace windlass::bench {
namespace {

using hetero::ClusterNode;
using hetero::GpuCluster;
using hetero::Link;

constexpr Link kInfiniBand{100e9 / 8, 10e-6};

Link ethernet(double gbit_per_s) { return {gbit_per_s * 1e9 / 8, 30e-6}; }

ClusterNode machine(const std::string& accelerator, int gpus, std::size_t number) {
  ClusterNode node;
  node.name = fmt::format("{}-{}", accelerator, number);
  node.accelerator = planner::accelerator_by_name(accelerator).value();
  const std::array<std::pair<const char*, double>, 4> prices = {
      {{"h100-80gb", 3.69}, {"a100-80gb", 1.69}, {"l40", 1.04}, {"a6000", 0.75}}};
  for (const auto& [name, price] : prices) {
    if (accelerator == name) node.accelerator.price_per_hour = price;
  }
  node.gpus = gpus;
  node.within = {node.accelerator.intra_link_bandwidth_bytes_per_s, node.accelerator.intra_link_latency_s};
  return node;
}

bool is_data_center(const std::string& accelerator) { return accelerator == "h100-80gb" || accelerator == "a100-80gb"; }

}  // namespace

GpuCluster cluster_of(const std::vector<std::pair<std::string, int>>& machines) {
  GpuCluster cluster;
  for (const auto& [accelerator, gpus] : machines) cluster.nodes.push_back(machine(accelerator, gpus, cluster.nodes.size()));
  cluster.default_link = ethernet(10);
  for (std::size_t a = 0; a < machines.size(); ++a) {
    for (std::size_t b = a + 1; b < machines.size(); ++b) {
      const std::string &one = machines[a].first, &other = machines[b].first;
      Link link = ethernet(one == "a6000" || other == "a6000" ? 5 : 10);
      if (is_data_center(one) == is_data_center(other)) link = one == other ? kInfiniBand : ethernet(25);
      cluster.between[{static_cast<int>(a), static_cast<int>(b)}] = link;
    }
  }
  return cluster;
}

GpuCluster paper_setting(int setting) {
  switch (setting) {
    case 0: return cluster_of({{"h100-80gb", 8}});
    case 1: return cluster_of({{"h100-80gb", 2}, {"a100-80gb", 4}, {"a100-80gb", 2}, {"l40", 4}, {"l40", 4}, {"a6000", 4}});
    case 2: return cluster_of({{"h100-80gb", 3}, {"a100-80gb", 3}, {"l40", 4}, {"l40", 2}, {"a6000", 4}, {"a6000", 2}});
    case 3:
      return cluster_of({{"a100-80gb", 4}, {"a100-80gb", 2}, {"l40", 4}, {"l40", 4}, {"l40", 4}, {"a6000", 4}, {"a6000", 2}});
    case 4: return cluster_of({{"h100-80gb", 3}, {"a100-80gb", 4}, {"a100-80gb", 4}, {"a100-80gb", 1}});
    default: return cluster_of({{"a100-80gb", 4}, {"l40", 4}, {"l40", 2}, {"a6000", 4}, {"a6000", 4}, {"a6000", 2}});
  }
}

GpuCluster appendix_e() { return cluster_of({{"h100-80gb", 4}, {"a100-80gb", 4}}); }

GpuCluster random_cluster(int gpus, Rng& rng) {
  static constexpr std::array<const char*, 5> kAccelerators = {"h100-80gb", "a100-80gb", "l40", "a6000", "v100-32gb"};
  static constexpr std::array<double, 4> kGbit = {100, 25, 10, 5};
  const auto link = [&] {
    const double gbit_per_s = kGbit[static_cast<std::size_t>(rng.integer(0, 3))];
    return gbit_per_s == 100 ? kInfiniBand : ethernet(gbit_per_s);
  };
  GpuCluster cluster;
  for (int left = gpus; left > 0;) {
    const int size = std::min(left, 1 << rng.integer(0, 3));
    const auto accelerator = static_cast<std::size_t>(rng.integer(0, kAccelerators.size() - 1));
    cluster.nodes.push_back(machine(kAccelerators[accelerator], size, cluster.nodes.size()));
    left -= size;
  }
  cluster.default_link = link();
  for (int a = 0; a < static_cast<int>(cluster.nodes.size()); ++a) {
    for (int b = a + 1; b < static_cast<int>(cluster.nodes.size()); ++b) cluster.between[{a, b}] = link();
  }
  return cluster;
}

}  // namespace windlass::bench
