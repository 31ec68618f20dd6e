// Tests the GPUs of a class and of its nodes: which workers find room on one node, and what the policy does if none does.
#include "planner/policy/capacity.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/base/rng.h"
#include "planner/policy/make_plan.h"
#include "planner/policy/passes/fit_on_nodes.h"
#include "planner/policy/trouble.h"
#include "tests/effort.h"
#include "tests/unit/planner/policy/fixtures.h"
#include "tests/unit/planner/policy/one_service.h"

namespace windlass::planner {
namespace {

using testing::a100;
using ::testing::AllOf;
using testing::chat_service;
using testing::h100;
using testing::has_reason;
using ::testing::HasSubstr;
using testing::kNow;
using testing::observe;
using testing::on_nodes;
using testing::one;
using testing::ready_worker;
using testing::running_service;
using testing::with_gpus;

ClassCapacity capacity_of(const Snapshot& snapshot) { return capacity_by_class(snapshot).at("h100"); }

// A service whose workers have two GPUs each: one GPU has too little memory for its model.
Service wide_service(const std::string& name, int wanted) {
  Service service = chat_service(name);
  service.shape = model_shape_by_name("llama2-70b").value();
  service.slo = Slo{5, 0.2, 95, 300};
  service.scaling.min_workers = wanted;
  service.max_gpus_per_worker = 2;
  observe(service, kNow, 0.01);
  return service;
}

Worker on_node(Worker worker, const std::string& node) {
  worker.node = node;
  return worker;
}

// Most workers of `size` GPUs that fit after workers of these sizes, over every way to place those; -1: they do not fit.
int most_after(std::vector<int> free, const std::vector<int>& sizes, int size, std::size_t from = 0) {
  int most = -1;
  if (from == sizes.size()) {
    most = 0;
    for (const int gpus : free) most += gpus / size;
  } else {
    for (int& gpus : free) {
      if (gpus < sizes[from]) continue;
      gpus -= sizes[from];
      most = std::max(most, most_after(free, sizes, size, from + 1));
      gpus += sizes[from];
    }
  }
  return most;
}

// Given random small nodes, workers on them and workers that have no node yet; expects as many further workers as an exhaustive
// search finds, or fewer if smaller workers have no node yet, and none that do not fit.
TEST(Capacity, CountsTheWorkersThatFitOnNodes) {
  Rng rng(7, "nodes");
  for (int round = 0; round < effort(500, 20'000); ++round) {
    std::vector<int> gpus(static_cast<std::size_t>(rng.integer(1, 4)));
    for (int& each : gpus) each = static_cast<int>(rng.integer(1, 8));
    Service service = chat_service();
    std::vector<int> free = gpus, pending;
    for (int slot = 0; slot < 5; ++slot) {
      Worker worker = ready_worker("h100-1", "h100", 1 << rng.integer(0, 2), slot, kNow);
      const auto node = static_cast<std::size_t>(rng.integer(0, static_cast<std::int64_t>(gpus.size())));
      std::vector<int> left = free, waiting = pending;
      if (node < gpus.size()) {
        left[node] -= worker.gpus;
        worker.node = "n" + std::to_string(node);
        if (rng.integer(0, 3) == 0) worker.state = WorkerState::kDraining;
      } else {
        worker.state = WorkerState::kStarting;
        waiting.push_back(worker.gpus);
      }
      if (std::any_of(left.begin(), left.end(), [](int each) { return each < 0; }) || most_after(left, waiting, 1) < 0)
        continue;
      free = left;
      pending = waiting;
      service.workers.push_back(worker);
    }
    const Snapshot snapshot = on_nodes({service}, gpus);
    const int size = 1 << rng.integer(0, 3);
    const int most = most_after(free, pending, size);
    const int counted = workers_that_fit(capacity_of(snapshot), size);
    ASSERT_LE(counted, most) << round;
    if (std::all_of(pending.begin(), pending.end(), [&](int each) { return each >= size; })) {
      ASSERT_EQ(counted, most) << round;
    }
  }
}

// Given nodes that take no workers, nodes that others use, and an Elastic class; expects the first to have no room, the second
// what is left, and an Elastic class to count by its limit alone. Without nodes only the totals count.
TEST(Capacity, KnowsWhichNodesCount) {
  Snapshot snapshot = on_nodes({}, {4, 4});
  EXPECT_EQ(workers_that_fit(capacity_of(snapshot), 4), 2);
  snapshot.nodes[0].unschedulable = true;
  EXPECT_EQ(workers_that_fit(capacity_of(snapshot), 4), 1);
  snapshot.nodes[1].used_by_others = 1;
  EXPECT_EQ(workers_that_fit(capacity_of(snapshot), 4), 0);
  EXPECT_EQ(workers_that_fit(capacity_of(snapshot), 3), 1);
  EXPECT_EQ(workers_that_fit(capacity_of(snapshot), 1), 3);
  snapshot.accelerators[0].mode = CapacityMode::kElastic;
  snapshot.accelerators[0].max_gpus = 16;
  EXPECT_EQ(workers_that_fit(capacity_of(snapshot), 4), 4);
  snapshot.accelerators[0].mode = CapacityMode::kObserved;
  snapshot.nodes.clear();
  EXPECT_EQ(workers_that_fit(capacity_of(snapshot), 4), 2);
}

// Given two services on one node; expects each to find all GPUs on the node but those that the other holds.
TEST(Capacity, EachServiceSeesWhatOthersHold) {
  Service mine = chat_service("mine"), other = chat_service("other");
  mine.workers = {on_node(ready_worker("h100-1", "h100", 1, 0, kNow), "n0")};
  other.workers = {on_node(ready_worker("h100-2", "h100", 2, 0, kNow), "n0"),
                   on_node(ready_worker("h100-4", "h100", 4, 1, kNow), "n0")};
  other.workers[1].state = WorkerState::kFailed;
  const Snapshot snapshot = on_nodes({mine, other}, {8});
  EXPECT_EQ(largest_on_one_node(snapshot.services[0], capacity_of(snapshot), "h100"), 6);
  EXPECT_EQ(largest_on_one_node(snapshot.services[1], capacity_of(snapshot), "h100"), 7);
}

// Given random nodes and workers in every state; expects the largest room of each service to be that of a search over all
// nodes, and a worker that fits next to all others to find a node when nodes are assigned.
TEST(Capacity, LargestRoomsAreThoseOfASearch) {
  constexpr WorkerState kStates[] = {WorkerState::kStarting, WorkerState::kReady, WorkerState::kDraining, WorkerState::kFailed,
                                     WorkerState::kUnschedulable};
  for (std::uint64_t seed = 1; seed <= effort<std::uint64_t>(300, 5000); ++seed) {
    Rng random(seed, "rooms");
    std::vector<int> gpus(static_cast<std::size_t>(random.integer(1, 5)));
    for (int& one : gpus) one = static_cast<int>(random.integer(0, 8));
    std::vector<Service> services;
    for (int k = 0; k < 3; ++k) {
      Service& service = services.emplace_back(chat_service("s" + std::to_string(k)));
      for (int slot = static_cast<int>(random.integer(0, 4)); slot > 0; --slot) {
        Worker worker = ready_worker("h100-1", "h100", static_cast<int>(random.integer(1, 3)), slot, kNow);
        worker.state = kStates[random.integer(0, 4)];
        if (random.integer(0, 4) > 0)
          worker.node = "n" + std::to_string(random.integer(0, 5));  // n5 and some others do not exist
        service.workers.push_back(std::move(worker));
      }
    }
    const Snapshot snapshot = on_nodes(services, gpus);
    const ClassCapacity capacity = capacity_of(snapshot);
    for (const Service& service : snapshot.services) {
      int largest = 0;
      for (const auto& [name, node] : *capacity.nodes) {
        int own = 0;
        for (const Worker& worker : service.workers) own += holds_gpus(worker) && worker.node == name ? worker.gpus : 0;
        largest = std::max(largest, node.limit - node.held + own);
      }
      EXPECT_EQ(largest_on_one_node(service, capacity, "h100"), largest) << "seed " << seed << ", " << service.id.name;
    }
    if (!capacity.pending.empty()) continue;
    Claim claim;
    claim.accelerator = "h100";
    claim.wanted = 1;
    claim.split = std::max(1, capacity.largest_free);
    const int fits = fit_on_nodes(draft_of(snapshot), {claim}, {1}, true).most.front();
    EXPECT_GE(fits, capacity.largest_free > 0 ? 1 : 0) << "seed " << seed;
  }
}

// Given eight free GPUs on eight nodes and a service whose workers need two; expects no worker and NoRoomOnOneNode, on four
// nodes of two GPUs four workers, and without nodes four.
TEST(Capacity, AWorkerNeedsOneNode) {
  const Plan scattered = make_plan(on_nodes({wide_service("wide", 4)}, {1, 1, 1, 1, 1, 1, 1, 1}));
  ASSERT_EQ(scattered.services[0].pools.at(0).spec.gpus(), 2);
  EXPECT_EQ(scattered.services[0].desired_workers(), 0);
  EXPECT_EQ(scattered.services[0].able_to_scale.reason, "NoRoomOnOneNode");
  ASSERT_EQ(scattered.denied.size(), 1u);
  EXPECT_EQ(scattered.denied[0].code, "NoRoomOnOneNode");
  EXPECT_THAT(scattered.denied[0].message,
              AllOf(HasSubstr("4 workers of 2 x h100 needed, 0 granted"),
                    HasSubstr("8 GPUs are free, but no node has 2 of them (the most on one node: 1)")));
  EXPECT_EQ(make_plan(on_nodes({wide_service("wide", 4)}, {2, 2, 2, 2})).services[0].desired_workers(), 4);
  EXPECT_EQ(make_plan(on_nodes({wide_service("wide", 4)}, {3, 1, 1, 3})).services[0].desired_workers(), 2);
  Snapshot unknown = on_nodes({wide_service("wide", 4)}, {1, 1, 1, 1, 1, 1, 1, 1});
  unknown.nodes.clear();
  EXPECT_EQ(make_plan(unknown).services[0].desired_workers(), 4);
}

// Given GPUs in ones, a service of high priority that needs two on a node, and a service of low priority that uses ones;
// expects the low one to keep and get what the high one cannot use, at this plan and at the next.
TEST(Capacity, NobodyLosesWorkersForARoomThatNeverComes) {
  Service low = running_service(6, 90);
  low.scaling.min_workers = 8;
  for (int slot = 0; slot < 6; ++slot) low.workers[static_cast<std::size_t>(slot)].node = "n" + std::to_string(slot);
  Service high = wide_service("high", 2);
  high.priority = 9;
  const Plan plan = make_plan(on_nodes({low, high}, {1, 1, 1, 1, 1, 1, 1, 1}));
  EXPECT_EQ(plan.services[0].desired_workers(), 8);
  EXPECT_EQ(plan.services[1].desired_workers(), 0);
}

// Given a node of two GPUs with two workers of low priority, and a service of high priority that needs both; expects it to get
// them, as without nodes.
TEST(Capacity, ANodeOfLowerPriorityIsRoom) {
  Service low = running_service(2, 20);
  for (Worker& worker : low.workers) worker.node = "n0";
  Service high = wide_service("high", 1);
  high.priority = 9;
  const Plan plan = make_plan(on_nodes({low, high}, {2}));
  EXPECT_EQ(plan.services[0].desired_workers(), 0);
  EXPECT_EQ(plan.services[1].desired_workers(), 1);
}

// Given a draining worker that splits the only node with enough GPUs; expects no worker now, and no other service to get its
// GPUs meanwhile.
TEST(Capacity, WaitsForDrainingWorkersOnTheNode) {
  Service wide = wide_service("wide", 1);
  Worker draining = on_node(ready_worker("h100-1", "h100", 1, 0, kNow), "n0");
  draining.state = WorkerState::kDraining;
  wide.workers = {draining};
  Snapshot snapshot = on_nodes({wide, chat_service("small")}, {2, 1});
  observe(snapshot.services[1], kNow, 0.01);
  snapshot.services[1].scaling.min_workers = 3;
  const Plan plan = make_plan(snapshot);
  EXPECT_EQ(plan.services[0].desired_workers(), 0);
  EXPECT_EQ(plan.services[1].desired_workers(), 1);
  snapshot.services[0].workers.clear();
  EXPECT_EQ(make_plan(snapshot).services[0].desired_workers(), 1);
}

// Given two nodes of two GPUs, each with a worker of one that no longer fits its model; expects one of the two to go, so that
// a worker of two GPUs finds a node, and the other to stay until that worker is ready.
TEST(Capacity, AChangeMakesRoomOnOneNode) {
  Service service = wide_service("wide", 1);
  service.memory.history_since_s = kNow - 3600;
  service.memory.desired = 2;
  service.scaling.min_workers = 2;
  for (const int slot : {0, 1})
    service.workers.push_back(on_node(ready_worker("h100-1", "h100", 1, slot, kNow), "n" + std::to_string(slot)));
  const Snapshot snapshot = on_nodes({service}, {2, 2});
  const auto workers = [](const ServicePlan& plan, const std::string& name) {
    int sum = 0;
    for (const Pool& pool : plan.pools) sum += pool.name == name ? pool.workers : 0;
    return sum;
  };
  ServicePlan plan = make_plan(snapshot).services[0];
  EXPECT_EQ(workers(plan, "h100-1"), 1);
  Snapshot next = snapshot;
  next.services[0].memory = plan.memory;
  next.services[0].workers.pop_back();
  plan = make_plan(next).services[0];
  EXPECT_EQ(workers(plan, "h100-1"), 1);
  EXPECT_EQ(workers(plan, "h100-2"), 1);
}

// Given mode Recommend, and free GPUs in ones for workers of two; expects advice of no more workers than find a node, with what
// workers of the service that would go hold.
TEST(Capacity, AdviceCountsWhatNodesTake) {
  Service service = wide_service("wide", 4);
  service.scaling.mode = Mode::kRecommend;
  const auto advised = [](const Snapshot& snapshot) {
    const ServicePlan plan = make_plan(snapshot).services[0];
    return plan.recommended_pools.at(0).workers;
  };
  EXPECT_EQ(advised(on_nodes({service}, {1, 1, 1, 1, 1, 1, 1, 1})), 0);
  EXPECT_EQ(advised(on_nodes({service}, {3, 1, 1, 3})), 2);
  service.workers = {on_node(ready_worker("h100-1", "h100", 1, 0, kNow), "n0")};
  EXPECT_EQ(advised(on_nodes({service}, {3, 1, 1, 2})), 2);
  EXPECT_EQ(advised(on_nodes({service}, {2, 1, 1, 1})), 1) << "with the GPU of the old worker";
}

// Given a first class whose GPUs are scattered and a second one with room; expects workers of the second class.
TEST(Capacity, ASecondClassServesWhatNoNodeTakes) {
  Service service = wide_service("wide", 2);
  service.accelerators = {};
  service.scaling.strategy = Family::kAuto;
  Snapshot snapshot = on_nodes({service}, {2, 1, 1});
  snapshot.accelerators.push_back(with_gpus(a100(), 8));
  snapshot.accelerators[0].spec.price_per_hour = 1;
  snapshot.nodes.push_back({"o0", "a100", 1, 0, "", false});
  snapshot.nodes.push_back({"o1", "a100", 7, 0, "", false});
  const ServicePlan plan = make_plan(snapshot).services[0];
  std::map<std::string, int> workers;
  for (const Pool& pool : plan.pools) workers[pool.spec.accelerator] += pool.workers;
  EXPECT_EQ(workers["h100"], 1);
  EXPECT_GE(workers["a100"], 1);
  EXPECT_TRUE(has_reason(plan, "SecondClass"));
}

}  // namespace
}  // namespace windlass::planner
