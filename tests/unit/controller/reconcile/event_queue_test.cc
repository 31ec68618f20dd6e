// EventQueue: how many Events it writes, and their messages.
#include "controller/reconcile/event_queue.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "controller/kube/credentials.h"
#include "controller/store/kubernetes_store.h"
#include "tests/fakes/fake_api_server.h"

namespace windlass::controller {
namespace {

using nlohmann::json;

struct Queue {
  void happen(const std::string& service, const std::string& reason, const std::string& message, bool warning = false) {
    api::ModelService one;
    one.metadata.name_space = "default";
    one.metadata.name = service;
    one.metadata.uid = "uid-of-" + service;
    queue.add({&one, warning, reason, message});  // the queue must not need the service any longer
  }
  void write(const std::function<bool()>& time_is_up = {}) { queue.write(store, {api.wall_now(), api.now()}, time_is_up); }
  [[nodiscard]] std::vector<json> events() const { return api.objects(kube::resources::kEvents); }

  fakes::FakeApiServer api;
  std::unique_ptr<fakes::FakeConnection> wire = api.connect("controller");
  std::unique_ptr<kube::CredentialSource> credentials = kube::no_credentials();
  kube::KubeClient client{*wire, api.url(), *credentials};
  KubernetesStore store{client, "test", 1};
  EventQueue queue;
};

// Given a thousand workers of one service that are created together, one that fails and a second service's worker; expects one
// Event per service and reason, three requests in all.
TEST(EventQueue, OneEventForEachServiceAndReason) {
  Queue q;
  for (int i = 0; i < 1000; ++i) q.happen("big", "WorkerCreated", fmt::format("created worker big-{} on 1 x h100", i));
  q.happen("big", "WorkerFailed", "worker big-0 failed: out of memory", true);
  q.happen("small", "WorkerCreated", "created worker small-0 on 1 x h100");
  q.write();
  EXPECT_EQ(q.wire->log().size(), 3U);
  std::map<std::string, std::string> messages;
  for (const json& one : q.events()) {
    messages[one["involvedObject"]["name"].get<std::string>() + " " + one["reason"].get<std::string>()] = one["message"];
  }
  ASSERT_EQ(messages.size(), 3U);
  EXPECT_EQ(messages["big WorkerCreated"].rfind("created worker big-0, big-1, big-2, ", 0), 0U);
  EXPECT_NE(messages["big WorkerCreated"].find("big-19, and 980 more on 1 x h100"), std::string::npos);
  EXPECT_EQ(messages["big WorkerFailed"], "worker big-0 failed: out of memory");
  EXPECT_EQ(messages["small WorkerCreated"], "created worker small-0 on 1 x h100");
}

// Given happenings of three services and time for one; expects one to be written, and the others later together with what
// happened meanwhile, each once.
TEST(EventQueue, WaitingEventsMergeWithNewOnes) {
  Queue q;
  for (const char* name : {"a", "b", "c"})
    q.happen(name, "WorkerCreated", fmt::format("created worker {}-0 on 1 x h100", name));
  q.write([] { return true; });
  EXPECT_EQ(q.events().size(), 1U);
  EXPECT_EQ(q.queue.size(), 2U);
  q.happen("b", "WorkerCreated", "created worker b-1 on 1 x h100");
  q.write();
  EXPECT_EQ(q.queue.size(), 0U);
  ASSERT_EQ(q.events().size(), 3U);
  std::set<std::string> messages;
  for (const json& one : q.events()) messages.insert(one["message"].get<std::string>());
  EXPECT_TRUE(messages.contains("created worker b-0, b-1 on 1 x h100"));
}

// Given an API server that does not answer; expects everything to be dropped after one try each, and no crash.
TEST(EventQueue, FailuresAreNotRetried) {
  Queue q;
  q.wire->partitioned = true;
  for (const char* name : {"a", "b"}) q.happen(name, "WorkerCreated", "created worker");
  q.write();
  EXPECT_EQ(q.queue.size(), 0U);
  EXPECT_TRUE(q.events().empty());
}

// Given more services than the queue holds; expects the queue to stay bounded.
TEST(EventQueue, IsBounded) {
  Queue q;
  for (int i = 0; i < 10'000; ++i) q.happen(fmt::format("s{}", i), "WorkerCreated", "created worker");
  EXPECT_EQ(q.queue.size(), 4096U);
  q.queue.clear();
  EXPECT_EQ(q.queue.size(), 0U);
  q.write();
  EXPECT_TRUE(q.events().empty());
}

// Given messages that differ in one word, are equal, or differ; expects the word's values within one sentence, one sentence, or
// the first three and the number of the rest.
TEST(EventQueue, JoinsMessages) {
  EXPECT_EQ(joined({}), "");
  EXPECT_EQ(joined({"draining worker a"}), "draining worker a");
  EXPECT_EQ(joined({"draining worker a", "draining worker a"}), "draining worker a");
  EXPECT_EQ(joined({"draining worker a", "draining worker b"}), "draining worker a, b");
  EXPECT_EQ(joined({"created worker a on 1 x h100", "created worker b on 2 x h100"}),
            "created worker a on 1 x h100; created worker b on 2 x h100");
  EXPECT_EQ(joined({"one", "two words", "", "three words now", "x y z w"}), "one; two words; ; and 2 more");
}

}  // namespace
}  // namespace windlass::controller
