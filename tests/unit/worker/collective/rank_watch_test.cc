// Waiting for other ranks outside the group: the watch reports lost ranks, and only those.
#include "worker/collective/rank_watch.h"

#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace windlass::worker {
namespace {

// Three ranks of this process.
class RankWatched : public ::testing::Test {
 protected:
  void make(RankPatience patience) {
    RankGroupSizes sizes;
    sizes.ranks = 3;
    for (int rank = 0; rank < 3; ++rank) {
      auto group =
          rank == 0 ? RankGroup::create(sizes, patience) : RankGroup::join(groups_[0]->descriptor(), rank, sizes, patience);
      ASSERT_TRUE(group.ok()) << group.error().message;
      groups_.push_back(std::move(group).value());
    }
  }
  // The watch's report about a step that does not end, within the time promised to users.
  std::string told(double limit_s, RankWatch::Fault fault = nullptr) {
    std::promise<std::string> why;
    RankWatch watch(*groups_[0], limit_s, std::move(fault), [&](const Error& error) { why.set_value(error.message); });
    const RankWatch::Step step(watch);
    auto said = why.get_future();
    if (said.wait_for(std::chrono::seconds(5)) != std::future_status::ready) return "nothing";
    return said.get();
  }

  std::vector<std::shared_ptr<RankGroup>> groups_;
};

// Given a rank that ends, or reports a failure, while a step waits for it; expects the watch to report it.
TEST_F(RankWatched, ReportsLostRanks) {
  make({});
  groups_.pop_back();
  EXPECT_EQ(told(60), "rank 2 of 3 is lost: its process has ended");
  groups_[1]->fail("rank 1 of 3: its GPU fell off the bus");
  EXPECT_EQ(told(60), "rank 1 of 3: its GPU fell off the bus");
}

// Given a rank that stops giving signs of life, a step that exceeds the limit, or another fault; expects the same.
TEST_F(RankWatched, ReportsSilentAndLateRanks) {
  make({60, 0.3});
  EXPECT_EQ(told(0.3), "the ranks do not meet: rank 0 of 3 has waited for 0.3 s");
  EXPECT_EQ(told(60, [] { return std::optional<Error>({ErrorCode::kInternal, "no way to rank 2"}); }), "no way to rank 2");
  groups_[2]->beat();
  EXPECT_EQ(told(60), "rank 2 of 3 is lost: it has given no sign of life for 0.3 s");
}

// Given steps that end, one after the other and together for longer than the limit of one, and no step while a rank is lost;
// expects no report.
TEST_F(RankWatched, DoesNotReportStepsThatEnd) {
  make({});
  std::promise<std::string> why;
  RankWatch watch(*groups_[0], 2, nullptr, [&](const Error& error) { why.set_value(error.message); });
  auto said = why.get_future();
  for (int step = 0; step < 5; ++step) {
    const RankWatch::Step running(watch);
    EXPECT_EQ(said.wait_for(std::chrono::milliseconds(500)), std::future_status::timeout);
  }
  groups_.pop_back();
  EXPECT_EQ(said.wait_for(std::chrono::milliseconds(300)), std::future_status::timeout);
}

}  // namespace
}  // namespace windlass::worker
