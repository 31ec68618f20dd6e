// Tests HexGen-2's cost model against Table 1 written out over GPUs, and the strategies against brute force.
#include "planner/strategies/core/stage_cost.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/catalog/accelerators_by_name.h"
#include "planner/strategies/hexgen2/hexgen2_strategies.h"
#include "tests/effort.h"
#include "tests/unit/planner/strategies/hexgen2/clusters.h"

namespace windlass::hetero {
namespace {

using testing::HasSubstr;

// Given OPT-30B, whose layers have 12 H^2 weights and a cache of 2 H values per token; expects each line of Table 1, written
// out with its maxima and sums over the stage's GPUs.
TEST(Hexgen2Cost, IsTable1) {
  const double h = 7168, type = 2, in = bench::kHphd.input_tokens, out = bench::kHphd.output_tokens;
  const InferenceTask task = make_task("opt-30b", bench::kHphd, 1);
  const planner::AcceleratorSpec a100 = planner::accelerator_by_name("a100-80gb").value();
  const Link link{300e9, 5e-6};
  for (const int n : {1, 2, 4}) {
    const StageFigures stage = stage_figures(task, a100, link, n);
    double peers_prefill = 0, peers_decode_b = 0;
    constexpr int kBatch = 5;
    for (int peer = 1; peer < n; ++peer) {
      peers_prefill += link.latency_s + in * h * type / (n * link.bytes_per_s);
      peers_decode_b += link.latency_s + kBatch * h * type / (n * link.bytes_per_s);
    }
    EXPECT_NEAR(stage.prefill_layer_s, 24 * in * h * h / (n * 312e12) + peers_prefill * 4, 1e-9 * stage.prefill_layer_s);
    const double decode =
        12 * h * h * type * out / (n * 2039e9) + 24 * kBatch * out * h * h / (n * 312e12) + peers_decode_b * 4 * out;
    EXPECT_NEAR(stage.decode_layer_s + kBatch * stage.decode_layer_request_s, decode, 1e-9 * decode);
    // The memory limit: as many layers as it allows, and no more.
    const int layers = stage.max_layers(kBatch, 1000);
    const auto limit = [&](int l) {
      return (12 * h * h * type / n + 2 * kBatch * (in + out) * h * type / n) * l + 4 * kBatch * (in + out) * h * type;
    };
    EXPECT_LE(limit(layers), a100.memory_bytes);
    EXPECT_GT(limit(layers + 1), a100.memory_bytes);
  }
  EXPECT_DOUBLE_EQ(prefill_hop_s(task, link), 5e-6 + in * h * type / 300e9);
  EXPECT_DOUBLE_EQ(decode_hop_s(task, link, 7), (5e-6 + 7 * h * type / 300e9) * out);
  EXPECT_DOUBLE_EQ(kv_transfer_s(task, link, 3, 2), 5e-6 + 3 * 2 * in * h * type / 2 / 300e9);
}

// Given Llama-2-70B with 8 KV heads of 64; expects an eighth of the cache, divided over at most 8 GPUs; and K from memory.
TEST(Hexgen2Cost, CountsKvHeads) {
  const InferenceTask task = make_task("llama2-70b", bench::kHphd);
  const double tokens = bench::kHphd.input_tokens + bench::kHphd.output_tokens;
  EXPECT_DOUBLE_EQ(task.layer_kv_bytes, 2 * tokens * 8192 / 8 * 2);
  EXPECT_EQ(task.kv_shards, 8);
  EXPECT_NEAR(task.replica_bytes(), 137.95e9 + 32 * 80 * task.layer_kv_bytes, 0.01e9);
  EXPECT_EQ(groups_by_memory(task, bench::appendix_e()), 4);  // as in Appendix E
}

// Given invalid lengths, shares and links; expects an error that says so, or infinite times.
TEST(Hexgen2Cost, RefusesWhatMeansNothing) {
  const planner::ModelShape shape = planner::model_shape_by_name("opt-30b").value();
  EXPECT_THAT(inference_task(shape, 0, 10, 8).error().message, HasSubstr("input tokens: must be above 0 (got 0)"));
  EXPECT_THAT(inference_task(shape, 10, -1, 8).error().message, HasSubstr("output tokens: must be above 0 (got -1)"));
  EXPECT_THAT(inference_task(shape, 10, 10, 8, 1.5).error().message,
              HasSubstr("memory share: must be above 0 and at most 1 (got 1.5)"));
  const InferenceTask task = make_task("opt-30b", bench::kHphd);
  const planner::AcceleratorSpec a100 = planner::accelerator_by_name("a100-80gb").value();
  EXPECT_TRUE(std::isinf(stage_figures(task, a100, Link{}, 2).prefill_layer_s));
  EXPECT_TRUE(std::isfinite(stage_figures(task, a100, Link{}, 1).prefill_layer_s));
  EXPECT_TRUE(std::isinf(kv_transfer_s(task, Link{}, 1, 1)));
}

// The best capacity of either phase over all divisions of layers over stages. `stages`: kind and degree, all adjacent.
struct Brute {
  double prefill = 0, decode = 0;
};

void brute_split(const InferenceTask& task, const std::vector<StageFigures>& stages, std::size_t at, int left,
                 std::vector<int>& layers, double prefill_hops_s, const std::function<double(int)>& decode_hops_s, Brute& best,
                 int batch) {
  if (at + 1 == stages.size()) {
    layers[at] = left;
    double prefill = prefill_hops_s, decode = decode_hops_s(batch);
    bool fits = true, fits_one = true;
    for (std::size_t i = 0; i < stages.size(); ++i) {
      fits = fits && layers[i] <= stages[i].max_layers(batch, task.layers);
      fits_one = fits_one && layers[i] <= stages[i].max_layers(1, task.layers);
      prefill += layers[i] * stages[i].prefill_layer_s;
      decode += layers[i] * (stages[i].decode_layer_s + batch * stages[i].decode_layer_request_s);
    }
    if (fits_one) best.prefill = std::max(best.prefill, 1 / prefill);
    if (fits) best.decode = std::max(best.decode, batch / decode);
    return;
  }
  for (int here = 1; here <= left - static_cast<int>(stages.size() - at - 1); ++here) {
    layers[at] = here;
    brute_split(task, stages, at + 1, left - here, layers, prefill_hops_s, decode_hops_s, best, batch);
  }
}

// Given groups of one to three GPUs on each of two nodes; expects the best of all cuts into stages and all splits of the
// layers; for decode at the largest batch that has a split, cut by cut, or at the limit if that is smaller.
class Hexgen2Strategies : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Batches, Hexgen2Strategies, testing::Values(std::numeric_limits<int>::max(), 7));
TEST_P(Hexgen2Strategies, AreTheBestOfAll) {
  const GpuCluster cluster = bench::cluster_of({{"a100-80gb", 2}, {"l40", 2}});
  InferenceTask task = make_task("opt-30b", bench::kLpld);
  task.layers = 24;  // half of the model, so that small groups fit and brute force finishes
  task.max_batch = GetParam();
  StrategyTable table(cluster, task);
  const std::vector<std::vector<int>> cuts_of[] = {{{}}, {{1}}, {{1, 1}, {2}}};
  for (int a = 0; a <= 2; ++a) {
    for (int b = 0; b <= 2; ++b) {
      Composition group;
      if (a > 0) group.push_back({0, a});
      if (b > 0) group.push_back({1, b});
      if (group.empty()) continue;
      Brute best;
      for (const std::vector<int>& cut_a : cuts_of[a]) {
        for (const std::vector<int>& cut_b : cuts_of[b]) {
          std::vector<StageFigures> stages;
          for (const int degree : cut_a) stages.push_back(table.figures(table.kind(0), degree));
          for (const int degree : cut_b) stages.push_back(table.figures(table.kind(1), degree));
          std::vector<const Link*> hops;
          if (cut_a.size() == 2) hops.push_back(&cluster.nodes[0].within);
          if (cut_b.size() == 2) hops.push_back(&cluster.nodes[1].within);
          if (!cut_a.empty() && !cut_b.empty()) hops.push_back(&cluster.link(0, 1));
          double prefill_hops = 0;
          for (const Link* link : hops) prefill_hops += prefill_hop_s(task, *link);
          const auto decode_hops = [&](int batch) {
            double sum = 0;
            for (const Link* link : hops) sum += decode_hop_s(task, *link, batch);
            return sum;
          };
          int batch = 0;
          for (int more = 1; more <= task.max_batch; ++more) {
            int sum = 0;
            bool each = true;
            for (const StageFigures& stage : stages) {
              sum += stage.max_layers(more, task.layers);
              each = each && stage.max_layers(more, task.layers) > 0;
            }
            if (!each || sum < task.layers) break;
            batch = more;
          }
          if (batch == 0) continue;
          std::vector<int> layers(stages.size());
          brute_split(task, stages, 0, task.layers, layers, prefill_hops, decode_hops, best, batch);
        }
      }
      const GroupStrategies& found = *table.of(group).strategies;
      EXPECT_NEAR(found.prefill.capacity_requests_per_s, best.prefill, 1e-9 * best.prefill) << a << " + " << b;
      EXPECT_NEAR(found.decode.capacity_requests_per_s, best.decode, 1e-9 * best.decode) << a << " + " << b;
    }
  }
}

// Given random groups; expects stages that hold all layers exactly once in each order, use every GPU, and fit.
TEST(Hexgen2Groups, HoldEachLayerOnce) {
  int served = 0;
  for (std::uint64_t seed = 0; seed < effort(25U, 200U); ++seed) {
    const RandomCase test = random_case(seed, 4, 20);
    StrategyTable table(test.cluster, test.task);
    Rng rng(seed, "groups");
    Composition group;
    for (int node = 0; node < static_cast<int>(test.cluster.nodes.size()); ++node) {
      const int gpus = static_cast<int>(rng.integer(0, test.cluster.nodes[static_cast<std::size_t>(node)].gpus));
      if (gpus > 0 && group.size() < 4) group.push_back({node, gpus});
    }
    const GroupEntry& entry = table.of(group);
    for (const PhaseStrategy* strategy : {&entry.strategies->prefill, &entry.strategies->decode}) {
      if (strategy->capacity_requests_per_s == 0) continue;
      ++served;
      EXPECT_NEAR(strategy->capacity_requests_per_s * strategy->latency_s, strategy->batch, 1e-9 * strategy->batch);
      for (const auto& order : strategy->orders) {
        int layer = 0;
        std::vector<int> gpus(entry.nodes.size(), 0);
        for (const OrderedStage& stage : order) {
          EXPECT_EQ(stage.first_layer, layer);
          layer += stage.layers;
          gpus[static_cast<std::size_t>(stage.slot)] += stage.tensor_parallel;
          const int node = entry.nodes[static_cast<std::size_t>(stage.slot)];
          EXPECT_LE(stage.layers,
                    table.figures(table.kind(node), stage.tensor_parallel).max_layers(strategy->batch, test.task.layers));
        }
        EXPECT_EQ(layer, test.task.layers);
        for (std::size_t slot = 0; slot < gpus.size(); ++slot) {
          const auto own =
              std::find_if(group.begin(), group.end(), [&](const NodeShare& share) { return share.node == entry.nodes[slot]; });
          EXPECT_EQ(gpus[slot], own->gpus);
        }
      }
    }
  }
  EXPECT_GT(served, effort(8, 100));
}

// Given random groups; expects bounds of at least their capacities, and for prefill on up to three nodes no more.
TEST(Hexgen2Groups, StayWithinTheirBounds) {
  int exact = 0;
  for (std::uint64_t seed = 0; seed < effort(25U, 200U); ++seed) {
    const RandomCase test = random_case(seed, 4, 32);
    StrategyTable table(test.cluster, test.task);
    Rng rng(seed, "bounds");
    for (int group = 0; group < 20; ++group) {
      const std::int64_t most_nodes = rng.integer(1, 6);
      std::vector<int> nodes, gpus;
      Composition composition;
      for (int node = 0; node < static_cast<int>(test.cluster.nodes.size()); ++node) {
        const bool in = rng.integer(0, 1) == 0 && static_cast<std::int64_t>(composition.size()) < most_nodes;
        nodes.push_back(node);
        gpus.push_back(in ? static_cast<int>(rng.integer(0, test.cluster.nodes[static_cast<std::size_t>(node)].gpus)) : 0);
        if (gpus.back() > 0) composition.push_back({node, gpus.back()});
      }
      const GroupEntry& entry = table.of(composition);
      const GroupBound bound = table.bound(nodes, gpus);
      ASSERT_GE(bound.prefill_units, entry.prefill_units) << seed << " " << group;
      ASSERT_GE(bound.decode_units, entry.decode_units) << seed << " " << group;
      if (composition.size() > 3) continue;
      const auto units = static_cast<double>(entry.prefill_units);
      ASSERT_NEAR(static_cast<double>(bound.prefill_units), units, 2 + 1e-8 * units) << seed << " " << group;
      exact += entry.prefill_units > 0 ? 1 : 0;
    }
  }
  EXPECT_GT(exact, effort(50, 400));
}

}  // namespace
}  // namespace windlass::hetero
