// Tests which nodes reach each other.
#include "planner/deployment/network_parts.h"

#include <algorithm>
#include <numeric>

#include <gtest/gtest.h>

#include "planner/base/rng.h"
#include "tests/effort.h"

namespace windlass::hetero {
namespace {

GpuCluster nodes(int count) {
  GpuCluster cluster;
  for (int i = 0; i < count; ++i) {
    ClusterNode node;
    node.name = "n" + std::to_string(i);
    node.accelerator.memory_bytes = 10;
    node.gpus = i + 1;
    cluster.nodes.push_back(node);
  }
  return cluster;
}

// Goes over all links until nothing changes.
std::vector<std::vector<int>> by_brute_force(const GpuCluster& cluster) {
  const int count = static_cast<int>(cluster.nodes.size());
  std::vector<int> least(static_cast<std::size_t>(count));
  std::iota(least.begin(), least.end(), 0);
  for (bool changed = true; changed;) {
    changed = false;
    for (int a = 0; a < count; ++a) {
      for (int b = 0; b < count; ++b) {
        if (a == b || !(cluster.link(a, b).bytes_per_s > 0)) continue;
        int &x = least[static_cast<std::size_t>(a)], &y = least[static_cast<std::size_t>(b)];
        if (x != y) {
          x = y = std::min(x, y);
          changed = true;
        }
      }
    }
  }
  std::vector<std::vector<int>> parts;
  for (int a = 0; a < count; ++a) {
    if (least[static_cast<std::size_t>(a)] != a) continue;
    std::vector<int>& part = parts.emplace_back();
    for (int b = 0; b < count; ++b) {
      if (least[static_cast<std::size_t>(b)] == a) part.push_back(b);
    }
  }
  return parts;
}

// Given random links, with and without a default; expects the parts found by brute force.
TEST(NetworkParts, AgreeWithBruteForce) {
  Rng rng(1, "networks");
  for (int instance = 0; instance < effort(100, 1000); ++instance) {
    const int count = static_cast<int>(rng.integer(1, 9));
    GpuCluster cluster = nodes(count);
    if (rng.uniform() < 0.5) cluster.default_link = {1e9, 0};
    const double stated = rng.uniform();
    for (int a = 0; a < count; ++a) {
      for (int b = a + 1; b < count; ++b) {
        if (rng.uniform() < stated) cluster.between[{a, b}] = {rng.uniform() < 0.3 ? 1e9 : 0, 0};
      }
    }
    ASSERT_EQ(network_parts(cluster), by_brute_force(cluster)) << instance;
  }
}

// Given nodes; expects their total memory, and a readable list of their names.
TEST(NetworkParts, ListMemoryAndNames) {
  const GpuCluster cluster = nodes(12);
  EXPECT_EQ(memory_bytes(cluster, {0, 2}), 40);
  EXPECT_EQ(names_text(cluster, {0, 2}), "n0, n2");
  EXPECT_EQ(names_text(cluster, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}), "n0, n1, n2, n3, n4, n5, n6, n7 and 2 more");
}

}  // namespace
}  // namespace windlass::hetero
