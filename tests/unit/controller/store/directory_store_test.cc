// A folder as an object store.
#include "controller/store/directory_store.h"

#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace windlass::controller {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class DirectoryStoreTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "windlass-store-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
  }
  void TearDown() override { fs::remove_all(directory_); }

  void write(const std::string& name, const std::string& text) {
    std::ofstream(directory_ / "objects" / name, std::ios::trunc) << text;
    // Two changes within one tick of the file system's clock differ in size or in this time.
    fs::last_write_time(directory_ / "objects" / name, fs::file_time_type::clock::now() + std::chrono::seconds(++writes_));
  }

  static std::string service(const std::string& name, const std::string& ttft) {
    return "apiVersion: windlass.dev/v1alpha1\nkind: ModelService\nmetadata: {name: " + name +
           "}\nspec:\n  model: {uri: 'pvc://m/x', architecture: llama3-8b}\n  slo: {timeToFirstToken: " + ttft +
           ", timePerOutputToken: 50ms}\n";
  }

  fs::path directory_;
  int writes_ = 0;
};

// Given: a file, a change of its spec, a restart. Expected: uid and creation time stay; the generation grows with the spec.
TEST_F(DirectoryStoreTest, KeepsIdentityOverChangesAndRestarts) {
  auto store = DirectoryStore::open(directory_);
  ASSERT_TRUE(store.ok());
  write("a.yaml", service("chat", "500ms"));
  store->step({1000, 1});
  ASSERT_TRUE(store->synced());
  ASSERT_EQ(store->model_services().size(), 1U) << store->problem();
  const api::ObjectMeta first = store->model_services()[0].metadata;
  EXPECT_EQ(first.generation, 1);
  api::ModelServiceStatus status;
  status.workers.desired = 3;
  ASSERT_TRUE(store->write_status(store->model_services()[0], status).ok());

  write("a.yaml", service("chat", "400ms"));
  store->step({2000, 2});
  EXPECT_EQ(store->model_services()[0].metadata.generation, 1);  // it may still be half written
  store->step({2000, 2.5});
  EXPECT_EQ(store->model_services()[0].metadata.uid, first.uid);
  EXPECT_EQ(store->model_services()[0].metadata.generation, 2);
  EXPECT_EQ(store->model_services()[0].status.workers.desired, 3);

  auto again = DirectoryStore::open(directory_);
  ASSERT_TRUE(again.ok());
  again->step({3000, 3});
  EXPECT_EQ(again->model_services()[0].metadata.uid, first.uid);
  EXPECT_EQ(again->model_services()[0].metadata.creation_timestamp, first.creation_timestamp);
  EXPECT_EQ(again->model_services()[0].status.workers.desired, 3);
}

// Given: a good file that then breaks. Expected: its last good object stays, and the problem has file and field. After a repair
// the problem is gone; after removal the object is gone.
TEST_F(DirectoryStoreTest, ABrokenFileKeepsItsLastGoodObjects) {
  auto store = DirectoryStore::open(directory_);
  ASSERT_TRUE(store.ok());
  write("a.yaml", service("chat", "500ms"));
  store->step({1000, 1});
  write("a.yaml", service("chat", "0s"));
  store->step({1001, 2});
  store->step({1001, 2.5});
  EXPECT_THAT(store->problem(), testing::AllOf(HasSubstr("a.yaml"), HasSubstr("timeToFirstToken")));
  ASSERT_EQ(store->model_services().size(), 1U);
  EXPECT_EQ(store->model_services()[0].spec.slo.time_to_first_token_s, 0.5);
  write("a.yaml", service("chat", "600ms"));
  store->step({1002, 3});
  store->step({1002, 3.5});
  EXPECT_EQ(store->problem(), "");
  EXPECT_EQ(store->model_services()[0].spec.slo.time_to_first_token_s, 0.6);
  fs::remove(directory_ / "objects" / "a.yaml");
  store->step({1003, 4});
  EXPECT_TRUE(store->model_services().empty());
}

// Given: two files that define the same object. Expected: the problem says so; nothing is half applied.
TEST_F(DirectoryStoreTest, OneObjectInTwoFilesIsAProblem) {
  auto store = DirectoryStore::open(directory_);
  ASSERT_TRUE(store.ok());
  write("a.yaml", service("chat", "500ms"));
  store->step({1000, 1});
  write("b.yaml", service("chat", "700ms"));
  store->step({1001, 2});
  store->step({1001, 2.5});
  EXPECT_THAT(store->problem(), HasSubstr("chat"));
  ASSERT_EQ(store->model_services().size(), 1U);
  EXPECT_EQ(store->model_services()[0].spec.slo.time_to_first_token_s, 0.5);
}

// Given: a PerformanceProfile with a written calibration, then a restart, then a changed fit. Expected: the status is found
// again, and the generation grows only with the spec.
TEST_F(DirectoryStoreTest, KeepsProfilesAndTheirStatus) {
  const auto profile = [](const std::string& constant) {
    const std::string range =
        "range: {sequences: {from: '1', to: '9'}, meanTokens: {from: '1', to: '9'}, tokens: {from: '1', to: '9'}}";
    return "apiVersion: windlass.dev/v1alpha1\nkind: PerformanceProfile\nmetadata: {name: fast}\nspec:\n  model: {name: tiny}\n"
           "  accelerator: local-cpu\n  gpusPerWorker: 1\n  fit:\n    type: Linear\n    linear:\n      form: Aladdin\n"
           "      prefill: {constantSeconds: '" +
           constant + "', " + range + "}\n      decode: {constantSeconds: '0.01', " + range + "}\n";
  };
  auto store = DirectoryStore::open(directory_);
  ASSERT_TRUE(store.ok());
  write("p.yaml", profile("0.5"));
  store->step({1000, 1});
  ASSERT_EQ(store->performance_profiles().size(), 1U) << store->problem();
  api::PerformanceProfileStatus status;
  status.calibration.last_update_time = "2026-05-01T10:00:00Z";
  status.calibration.decode.scale = 1.25;
  status.calibration.decode.samples = 40;
  ASSERT_TRUE(store->write_status(store->performance_profiles()[0], status).ok());
  const api::ObjectMeta first = store->performance_profiles()[0].metadata;

  auto again = DirectoryStore::open(directory_);
  ASSERT_TRUE(again.ok());
  again->step({2000, 1});
  ASSERT_EQ(again->performance_profiles().size(), 1U) << again->problem();
  EXPECT_EQ(again->performance_profiles()[0].metadata.uid, first.uid);
  EXPECT_EQ(again->performance_profiles()[0].metadata.generation, 1);
  EXPECT_EQ(again->performance_profiles()[0].status, status);
  write("p.yaml", profile("0.25"));
  again->step({2000, 2});
  again->step({2000, 3});
  EXPECT_EQ(again->performance_profiles()[0].metadata.generation, 2);
  EXPECT_EQ(again->performance_profiles()[0].status, status);
}

// Given a message with invalid UTF-8 (a worker's last log lines, cut inside a character); expects the status and the event to
// be written with these bytes replaced, and to be readable after a restart.
TEST_F(DirectoryStoreTest, InvalidUtf8IsReplaced) {
  auto store = DirectoryStore::open(directory_);
  ASSERT_TRUE(store.ok());
  write("a.yaml", service("chat", "500ms"));
  store->step({1000, 1});
  ASSERT_EQ(store->model_services().size(), 1U) << store->problem();
  api::ModelServiceStatus status;
  api::Condition ready;
  ready.type = "Ready";
  ready.reason = "CrashLoop";
  ready.message = "it said \xc3";
  status.conditions = {ready};
  EXPECT_TRUE(store->write_status(store->model_services()[0], status).ok());
  EXPECT_TRUE(store->record_event(store->model_services()[0], true, "WorkerFailed", "it said \xff\xfe", {1000, 1}).ok());
  auto again = DirectoryStore::open(directory_);
  ASSERT_TRUE(again.ok());
  again->step({1001, 1});
  ASSERT_EQ(again->model_services().size(), 1U);
  ASSERT_EQ(again->model_services()[0].status.conditions.size(), 1U);
  EXPECT_THAT(again->model_services()[0].status.conditions[0].message, HasSubstr("it said "));
}

}  // namespace
}  // namespace windlass::controller
