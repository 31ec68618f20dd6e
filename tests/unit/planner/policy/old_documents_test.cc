// Tests documents written by earlier versions (tests/golden/old_documents): an upgraded controller reads its old memory, a
// gateway reads an older controller's table, and `windlass plan --snapshot` reads saved files.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/dispatch/routing_table.h"
#include "planner/policy/json.h"
#include "planner/policy/make_plan.h"
#include "tests/paths.h"

namespace windlass::planner {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string text_of(const std::string& name) {
  std::ifstream file(source_path("/tests/golden/old_documents/" + name));
  EXPECT_TRUE(file) << name;
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::string> documents(const std::string& kind) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(source_path("/tests/golden/old_documents"))) {
    if (entry.path().filename().string().starts_with(kind)) names.push_back(entry.path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// Given snapshots of each version; expects that they are read and planned, and can be read again when written in today's
// format. Removed fields are rejected by name.
TEST(OldDocuments, SnapshotsAreReadAndPlanned) {
  const auto names = documents("snapshot");
  EXPECT_GE(names.size(), 5u);
  for (const std::string& name : names) {
    SCOPED_TRACE(name);
    const auto snapshot = snapshot_from_json(text_of(name));
    if (name == "snapshot-2026-11-21-b.json") {  // corrections of a latency model, replaced by measured times
      ASSERT_FALSE(snapshot.ok());
      EXPECT_THAT(snapshot.error().message, HasSubstr("services[0].corrections: unknown field"));
      continue;
    }
    ASSERT_TRUE(snapshot.ok()) << snapshot.error().message;
    EXPECT_EQ(make_plan(*snapshot).services.size(), snapshot->services.size());
    const std::string today = to_json(*snapshot);
    EXPECT_EQ(to_json(snapshot_from_json(today).value()), today);
  }
}

// Given a snapshot from when split services' pool names ended with their role; expects the same as with today's names: memory
// and workers belong to the pools that the plan names now, and no worker starts or stops because of it.
TEST(OldDocuments, PoolsLoseTheirRoleInTheirNames) {
  const std::string text = text_of("snapshot-2026-11-28-split.json");
  const Snapshot snapshot = snapshot_from_json(text).value();
  const Service& service = snapshot.services[0];
  EXPECT_EQ(service.memory.configuration, "h100-2");
  EXPECT_TRUE(service.memory.prefill_share);
  EXPECT_EQ(service.memory.slots.at(0).pool_id(), (PoolId{"h100-2", dispatch::Role::kDecode}));
  EXPECT_EQ(service.memory.slots.at(1).pool_id(), (PoolId{"h100-2", dispatch::Role::kPrefill}));
  EXPECT_EQ(service.workers.at(0).pool_id(), (PoolId{"h100-2", dispatch::Role::kDecode}));
  const ServicePlan plan = make_plan(snapshot).services[0];
  EXPECT_EQ(plan.pools.at(0).id(), service.workers.at(0).pool_id());
  EXPECT_EQ(plan.pools[0].workers, 2);
  EXPECT_EQ(plan.pools.at(1).id(), service.workers.at(2).pool_id());
  EXPECT_EQ(plan.memory.configuration_since_s, service.memory.configuration_since_s);
  EXPECT_THAT(to_json(snapshot), Not(HasSubstr(R"("pool":"h100-2-)")));
}

// Given plans of each version; expects that they are read.
TEST(OldDocuments, PlansAreRead) {
  const auto names = documents("plan");
  EXPECT_GE(names.size(), 2u);
  for (const std::string& name : names) {
    SCOPED_TRACE(name);
    const auto plan = plan_from_json(text_of(name));
    ASSERT_TRUE(plan.ok()) << plan.error().message;
    EXPECT_EQ(plan->services.size(), 2u);
    EXPECT_FALSE(plan->services[0].reasons.empty());
  }
}

// Given routing tables from before each field was added; expects their chains with the field's default.
TEST(OldDocuments, RoutingTablesAreRead) {
  const auto names = documents("routing");
  EXPECT_GE(names.size(), 5u);
  for (const std::string& name : names) {
    SCOPED_TRACE(name);
    const auto table = dispatch::routing_table_from_json(text_of(name));
    ASSERT_TRUE(table.ok()) << table.error().message;
    EXPECT_EQ(table->version, (dispatch::TableVersion{3, 7}));
    const dispatch::ModelRoute& route = table->models.at(0);
    EXPECT_EQ(route.expected_start_s, name.find("starts") != std::string::npos ? 95.5 : 0);
    EXPECT_EQ(route.latencies.size(), name.find("latencies") != std::string::npos ? 1u : 0u);
    const dispatch::Chain& first = route.chains.at(0);
    EXPECT_EQ(first.capacity, 16);
    EXPECT_EQ(first.share, name.find("latencies") != std::string::npos ? 0.5 : 1);
    EXPECT_EQ(first.decode_weights.empty(), name.find("weights") == std::string::npos);
    EXPECT_EQ(first.token, name.find("tokens") != std::string::npos ? "t0k3n" : "");
  }
}

}  // namespace
}  // namespace windlass::planner
