// The thread that renews the lease, on a fake API server that nothing else uses.
#include "controller/app/lease_thread.h"

#include <atomic>
#include <future>

#include <gtest/gtest.h>

#include "controller/kube/credentials.h"
#include "metrics/host/clock.h"
#include "tests/fakes/fake_api_server.h"

namespace windlass::controller {
namespace {

// Given a busy loop that does not call the lease; expects the lease to be renewed repeatedly, writes to be allowed only in the
// term that the loop knows of, and none once the lease is released.
TEST(LeaseThread, RenewsDuringABusyLoop) {
  fakes::FakeApiServer api;
  std::atomic<int> writes = 0;
  std::promise<void> renewed;
  api.on_write = [&](const fakes::WriteAttempt&) {
    if (++writes == 20) renewed.set_value();
  };
  const auto wire = api.connect("controller");
  const auto credentials = kube::no_credentials();
  kube::KubeClient client{*wire, api.url(), *credentials};
  kube::LeaseOptions options;
  options.name_space = "default";
  options.identity = "a";
  options.retry_period_s = 0.001;
  options.renew_deadline_s = 600;
  options.lease_duration_s = 900;
  std::atomic<int> changes = 0;
  LeaseThread lease(client, options, [&] { ++changes; });
  renewed.get_future().wait();
  EXPECT_TRUE(lease.leading(now().monotonic_s));
  EXPECT_FALSE(lease.leading(now().monotonic_s + options.renew_deadline_s + 1));
  EXPECT_EQ(lease.term(), 1);
  EXPECT_EQ(changes, 1);
  EXPECT_FALSE(lease.may_write(now().monotonic_s)) << "the loop does not know of the tenure yet";
  lease.acts_for(1);
  EXPECT_TRUE(lease.may_write(now().monotonic_s));
  lease.acts_for(2);
  EXPECT_FALSE(lease.may_write(now().monotonic_s));
  lease.acts_for(1);
  EXPECT_TRUE(lease.release(now()).ok());
  EXPECT_FALSE(lease.leading(now().monotonic_s) || lease.may_write(now().monotonic_s));
}

}  // namespace
}  // namespace windlass::controller
