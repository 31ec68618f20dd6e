// Two controllers, one Lease: the standby takes over from a leader that dies, and a leader that was paused too long writes
// nothing afterwards.
#include <algorithm>
#include <csignal>

#include <fmt/format.h>

#include "tests/cluster/controller_fixture.h"
#include "tests/cluster/harness/http.h"

namespace windlass::testing {
namespace {

using nlohmann::json;
using std::chrono::seconds;

class LeadershipTest : public ControllerTest {
 protected:
  // Waits until one of the two leads and returns (leader, standby).
  std::pair<Controller*, Controller*> leader_and_standby(Controller& a, Controller& b) {
    const bool one = eventually(kPatience, [&] { return a.leads() || b.leads(); });
    EXPECT_TRUE(one) << "no controller leads";
    return a.leads() ? std::pair{&a, &b} : std::pair{&b, &a};
  }

  // Whether this is a successful write to the leaders' Lease.
  static bool lease_write(const AuditEvent& event) {
    return event.mutating() && event.resource == "leases" && event.code < 300;
  }
};

// Given two controllers, the leader of which is killed; expects the other to take over, to adopt the workers unchanged and to
// carry out later requests. No slot is filled twice.
TEST_F(LeadershipTest, StandbyTakesOver) {
  Controller a = start_controller("controller-a");
  Controller b = start_controller("controller-b");
  const std::string gateway = start_gateway({&a, &b});
  json object = model_service();
  object["spec"]["scaling"]["minWorkers"] = 2;
  apply_object(object);
  ASSERT_TRUE(eventually(kPatience, [&] { return ready_workers() == 2; })) << describe_state();
  const std::map<std::string, std::string> before = worker_uids();
  auto [leader, standby] = leader_and_standby(a, b);
  EXPECT_FALSE(standby->leads());
  EXPECT_EQ(ask(*standby, "/v1/routing-table?gateway=x&admin=127.0.0.1:1&wait=1s").status, 503);

  leader->process->signal(SIGKILL);
  patch_spec({{"scaling", {{"minWorkers", 3}}}});
  ASSERT_TRUE(eventually(kPatience, [&] { return standby->leads(); })) << tail_of_file(log_of(standby->name), 20);
  ASSERT_TRUE(eventually(kPatience, [&] { return ready_workers() == 3; })) << describe_state();
  expect_no_duplicates();
  const std::map<std::string, std::string> after = worker_uids();
  for (const auto& [name, uid] : before) EXPECT_TRUE(after.contains(name) && after.at(name) == uid) << name << " was replaced";
  // The gateway follows the new leader: it learns of a worker that only the new leader has created.
  LoadOptions options;
  options.url = gateway;
  options.model = served_name();
  options.threads = 4;
  Load load(options);
  EXPECT_TRUE(eventually(kPatience, [&] { return load.report().by_worker.size() == 3; })) << load.report().describe();
  const LoadReport report = load.stop();
  EXPECT_TRUE(report.failures.empty()) << report.describe();
}

// Given a leader that is paused until the other has taken over, with changes to make; expects none of its writes to be accepted
// after the Lease moved, by the audit log and its own metric.
TEST_F(LeadershipTest, DeposedLeaderWritesNothing) {
  Controller a = start_controller("controller-a");
  Controller b = start_controller("controller-b");
  apply_object(model_service());
  ASSERT_TRUE(eventually(kPatience, [&] { return ready_workers() == 1; })) << describe_state();
  auto [leader, standby] = leader_and_standby(a, b);
  ASSERT_FALSE(standby->leads());

  leader->process->signal(SIGSTOP);
  ASSERT_TRUE(eventually(kPatience, [&] { return standby->leads(); })) << tail_of_file(log_of(standby->name), 20);
  // Both would act on this: the new leader now, the old one when it resumes.
  patch_spec({{"scaling", {{"minWorkers", 2}}}});
  leader->process->signal(SIGCONT);
  EXPECT_TRUE(eventually(kPatience, [&] {
    const bool gone = !leader->process->running();
    return gone || sample(http_get(leader->url + "/metrics").body, "windlass_controller_leader").value == 0;
  })) << tail_of_file(log_of(leader->name), 20);
  ASSERT_TRUE(eventually(kPatience, [&] { return ready_workers() == 2; })) << describe_state();
  // The resumed controller has had time to try: it is reading the Lease again.
  const std::string woken_credential = leader->credential;
  const auto reads_of_lease = [&] {
    int count = 0;
    for (const AuditEvent& event : plane().audit_log()) {
      if (event.credential == woken_credential && event.resource == "leases") ++count;
    }
    return count;
  };
  const int reads = reads_of_lease();
  if (leader->process->running()) {
    EXPECT_TRUE(eventually(kPatience, [&] { return reads_of_lease() > reads; })) << tail_of_file(log_of(leader->name), 20);
  }

  const std::vector<AuditEvent> events = plane().audit_log();
  const auto moved = std::find_if(events.begin(), events.end(), [&](const AuditEvent& event) {
    return event.credential == standby->credential && lease_write(event);
  });
  ASSERT_NE(moved, events.end()) << "the audit log has no write to the Lease by the new leader";
  int writes_before = 0;
  for (const AuditEvent& event : events) {
    if (event.credential != leader->credential || !event.mutating() || event.code >= 300) continue;
    if (event.received < moved->received) {
      ++writes_before;
      continue;
    }
    ADD_FAILURE() << fmt::format("the deposed leader's {} of {}/{} {}/{} was accepted at {}, after the Lease had moved at {}",
                                 event.verb, event.resource, event.subresource, event.name_space, event.name, event.received,
                                 moved->received);
  }
  EXPECT_GT(writes_before, 0) << "the old leader never wrote: the test proves nothing";
  expect_no_duplicates();
  EXPECT_NE(read_text_file(log_of(leader->name)).find("lead"), std::string::npos)
      << "its log does not say that it stopped leading";
}

}  // namespace
}  // namespace windlass::testing
