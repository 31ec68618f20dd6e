// Tests workers that are chains of servers: how long a chain is, where its servers find room, and what the policy says if none
// is possible.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/base/rng.h"
#include "planner/policy/capacity.h"
#include "planner/policy/json.h"
#include "planner/policy/make_plan.h"
#include "planner/sizing/worker_config.h"
#include "tests/effort.h"
#include "tests/unit/planner/policy/one_service.h"

namespace windlass::planner {
namespace {

using testing::carry_out;
using testing::chat_service;
using testing::h100;
using testing::has_reason;
using ::testing::HasSubstr;
using testing::kNow;
using testing::observe;

AcceleratorSpec linked_h100() {
  AcceleratorSpec spec = h100();
  spec.inter_link_bandwidth_bytes_per_s = 50e9;
  spec.inter_link_latency_s = 5e-6;
  return spec;
}

// A model of 140 GB, for which a GPU and a node of one GPU are too small.
Service chained_service() {
  Service service = chat_service();
  service.shape = model_shape_by_name("llama2-70b").value();
  service.slo = Slo{5, 0.4, 95, 300};
  service.scaling.strategy = Family::kChained;
  service.max_gpus_per_worker = 1;
  observe(service, kNow, 0.01);
  return service;
}

// Nodes n0, n1, ... with these GPUs, linked with each other.
Snapshot world(std::vector<Service> services, const std::vector<int>& gpus) {
  return testing::on_nodes(std::move(services), gpus, linked_h100());
}

const Pool& only_pool(const ServicePlan& plan) {
  EXPECT_EQ(plan.pools.size(), 1U);
  return plan.pools.front();
}

// Given a model that no node holds; expects one chain over as many nodes as it needs, of servers with one GPU each.
TEST(Chained, CutsAModelOverNodes) {
  const ServicePlan plan = make_plan(world({chained_service()}, {1, 1, 1, 1})).services[0];
  EXPECT_EQ(plan.strategy, Family::kChained);
  EXPECT_EQ(plan.feasible.status, Truth::kTrue) << plan.feasible.message;
  const Pool& pool = only_pool(plan);
  EXPECT_EQ(pool.workers, 1);
  EXPECT_EQ(pool.spec.tensor_parallel, 1);
  EXPECT_GE(pool.spec.pipeline_stages, 2);
  EXPECT_EQ(pool.name, pool_name(pool.spec));
  EXPECT_EQ(plan.predicted.gpus, pool.spec.pipeline_stages);
  EXPECT_GT(plan.predicted.requests_per_s, 0.01);
}

// Given fewer GPUs than a chain has servers; expects no worker and that they are missing; given them all, but one held by
// others, the same.
TEST(Chained, NeedsAllItsServers) {
  const ServicePlan plan = make_plan(world({chained_service()}, {1})).services[0];
  EXPECT_EQ(plan.desired_workers(), 0);
  EXPECT_EQ(plan.able_to_scale.reason, "InsufficientCapacity");
  EXPECT_THAT(plan.able_to_scale.message, HasSubstr("a chain of"));

  const int stages = only_pool(make_plan(world({chained_service()}, {8, 8})).services[0]).spec.pipeline_stages;
  Snapshot taken = world({chained_service()}, std::vector<int>(static_cast<std::size_t>(stages), 1));
  taken.nodes.back().used_by_others = 1;
  taken.accelerators[0].used_by_others = 1;
  EXPECT_EQ(make_plan(taken).services[0].desired_workers(), 0);
  taken.nodes.back().used_by_others = taken.accelerators[0].used_by_others = 0;
  EXPECT_EQ(make_plan(taken).services[0].desired_workers(), 1);
}

// Given a chain that runs, at the demand it was planned for and at twice its capacity; expects the same kind of chain, and more
// of them.
TEST(Chained, ScalesInWholeChains) {
  Service service = chained_service();
  service.memory.history_since_s = kNow - 3600;
  const ServicePlan first = make_plan(world({service}, {8, 8, 8})).services[0];
  const Pool before = only_pool(first);
  carry_out(first, service, kNow);
  for (Worker& worker : service.workers) worker.node = worker.later_nodes.front() = "n0";
  observe(service, kNow, 0.01);
  EXPECT_EQ(only_pool(make_plan(world({service}, {8, 8, 8})).services[0]).spec, before.spec);

  observe(service, kNow, 2.5 * before.each.requests_per_s, 20);
  const Pool after = only_pool(make_plan(world({service}, {8, 8, 8})).services[0]);
  EXPECT_EQ(after.spec, before.spec);
  EXPECT_GT(after.workers, before.workers);
}

// Given whole workers that run when the spec begins to ask for chains; expects them to stay until a chain is ready.
TEST(Chained, ReplacesWholeWorkers) {
  Service service = testing::running_service(1, 1);
  service.scaling.strategy = Family::kChained;
  Snapshot snapshot = world({service}, {8});
  const ServicePlan plan = make_plan(snapshot).services[0];
  ASSERT_EQ(plan.pools.size(), 2U);
  EXPECT_GT(plan.pools[0].spec.pipeline_stages, 1);
  EXPECT_EQ(plan.pools[1].name, "h100-1");
  EXPECT_TRUE(has_reason(plan, "ConfigurationChange"));
}

// Given a class without a link between nodes; expects that to be named.
TEST(Chained, NeedsALink) {
  Snapshot snapshot = world({chained_service()}, {8});
  snapshot.accelerators[0].spec = h100();
  const ServicePlan plan = make_plan(snapshot).services[0];
  EXPECT_EQ(plan.desired_workers(), 0);
  EXPECT_THAT(plan.feasible.message, HasSubstr("inter-node link"));
}

// Given more servers; expects less cache on each that the model takes, the messages in each iteration, and so more tokens and
// longer iterations.
TEST(Chained, TimesAndMemoryOfMoreServers) {
  const AcceleratorSpec spec = linked_h100();
  const ModelShape shape = model_shape_by_name("llama2-70b").value();
  LinearCoefficients before = linear_coefficients(shape, spec, {1, 2}, EngineType::kWindlass);
  for (const int stages : {4, 8, 16}) {
    const LinearCoefficients now = linear_coefficients(shape, spec, {1, stages}, EngineType::kWindlass);
    EXPECT_GT(now.kv_capacity_tokens, before.kv_capacity_tokens);
    EXPECT_NEAR(now.c3 - before.c3, stages / 2 * 2 * spec.inter_link_latency_s, 1e-12);
    EXPECT_NEAR(now.k1 - before.k1, stages / 2 * shape.hidden * 4 / spec.inter_link_bandwidth_bytes_per_s, 1e-15);
    EXPECT_NEAR(now.c1 - before.c1, now.c3 - before.c3, 1e-12);
    EXPECT_NEAR(now.c2 - before.c2, now.k1 - before.k1, 1e-15);
    before = now;
  }
}

// Given random numbers of layers and stages; expects every layer at one stage, and stages of equal size but for one layer.
TEST(Chained, StagesShareTheLayers) {
  Rng rng(3, "stages");
  for (int round = 0; round < 200; ++round) {
    const auto layers = static_cast<int>(rng.integer(2, 130));
    const auto stages = static_cast<int>(rng.integer(2, layers));
    int next = 0;
    for (int stage = 0; stage < stages; ++stage) {
      const BlockRange blocks = blocks_of_stage(layers, stage, stages);
      ASSERT_EQ(blocks.first, next);
      ASSERT_GE(blocks.end - blocks.first, layers / stages);
      ASSERT_LE(blocks.end - blocks.first, layers / stages + 1);
      next = blocks.end;
    }
    ASSERT_EQ(next, layers);
  }
}

// Given random nodes; expects as many chains as a count of their servers says, each complete, and GPUs taken only for these.
TEST(Chained, FindsRoomForCompleteChainsOnly) {
  Rng rng(5, "chains");
  for (int round = 0; round < effort(200, 5000); ++round) {
    FreeByNode free;
    int servers = 0, gpus = 0;
    const GpuSplit each(static_cast<int>(rng.integer(1, 3)), static_cast<int>(rng.integer(2, 5)));
    for (int node = 0; node < 6; ++node) {
      const auto here = static_cast<int>(rng.integer(-1, 8));
      free["n" + std::to_string(node)] = here;
      servers += std::max(0, here) / each.tensor_parallel;
      gpus += here;
    }
    const auto wanted = static_cast<int>(rng.integer(1, 8));
    const int placed = place_workers(free, each, wanted);
    ASSERT_EQ(placed, std::min(wanted, servers / each.stages));
    for (const auto& [node, left] : free) {
      gpus -= left;
      ASSERT_GE(left, -1);
    }
    ASSERT_EQ(gpus, placed * each.gpus());
  }
}

// Given a snapshot with a chain; expects its text to say the same.
TEST(Chained, SnapshotsAreReadBack) {
  Snapshot snapshot = world({chained_service()}, {1, 1});
  Service& service = snapshot.services[0];
  service.workers = {testing::ready_worker("h100-2-pp2", "h100", 2, 0, kNow)};
  service.workers[0].node = "n0";
  service.workers[0].later_nodes = {"n1"};
  service.estimates = {testing::measured(service, linked_h100(), 1, 1, 1)};
  service.estimates[0].gpus_per_worker = service.estimates[0].stages = 2;
  const auto read = snapshot_from_json(to_json(snapshot));
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(*read, snapshot);
  EXPECT_EQ(read->services[0].workers[0].split(), GpuSplit(1, 2));
}

}  // namespace
}  // namespace windlass::planner
