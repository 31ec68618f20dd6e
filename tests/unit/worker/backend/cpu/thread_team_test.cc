// The thread team: each part is done once, by all free threads, on the processors requested.
#include "worker/backend/cpu/thread_team.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include "planner/base/rng.h"
#include "worker/backend/cpu/processors.h"

namespace windlass::worker {
namespace {

using cpu::ThreadTeam;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Processors that the calling thread may run on.
std::vector<int> mask_of_this_thread() {
  std::vector<int> processors;
  cpu_set_t mask;
  if (::sched_getaffinity(0, sizeof(mask), &mask) != 0) return processors;
  for (int each = 0; each < CPU_SETSIZE; ++each) {
    if (CPU_ISSET(static_cast<std::size_t>(each), &mask)) processors.push_back(each);
  }
  return processors;
}
std::vector<int> on(int processor) { return {processor}; }

// Every member does the work once and waits for the others.
void all_at_once(ThreadTeam& team, const std::function<void(int member)>& work) {
  std::atomic<int> here = 0;
  team.run(team.size(), [&](std::int64_t /*part*/, int member) {
    work(member);
    here.fetch_add(1);
    here.notify_all();
    for (int seen = here.load(); seen < team.size(); seen = here.load()) here.wait(seen);
  });
}

// Given calls with any number of parts, one after the other; expects each part to be done once, its writes to be visible when
// run() returns, and member numbers below the team's size.
TEST(ThreadTeam, DoesEachPartOnce) {
  Rng rng(5, "pieces");
  for (const int size : {1, 2, 5}) {
    ThreadTeam team(size);
    ASSERT_EQ(team.size(), size);
    for (int piece = 0; piece < 500; ++piece) {
      std::vector<int> done(static_cast<std::size_t>(rng.integer(0, 40)));
      std::atomic<bool> known_members = true;
      team.run(static_cast<std::int64_t>(done.size()), [&](std::int64_t part, int member) {
        ++done[static_cast<std::size_t>(part)];
        if (member < 0 || member >= size) known_members = false;
      });
      ASSERT_EQ(std::count(done.begin(), done.end(), 1), static_cast<std::ptrdiff_t>(done.size()));
      ASSERT_TRUE(known_members);
    }
  }
}

// Given parts that wait for each other, as many as there are members; expects all members to take part.
TEST(ThreadTeam, AllMembersWorkAtOnce) {
  ThreadTeam team(3);
  std::atomic<int> here = 0;
  all_at_once(team, [&](int /*member*/) { here.fetch_add(1); });
  EXPECT_EQ(here.load(), 3);
}

// Given a processor per member; expects all members to run on theirs, and the caller too while it is in the team.
TEST(ThreadTeam, MembersStayOnTheirProcessors) {
  const auto allowed = cpu::allowed_processors();
  ASSERT_TRUE(allowed.ok()) << allowed.error().message;
  ASSERT_FALSE(allowed->empty());
  const std::vector<int> processors = {allowed->back(), allowed->front(), allowed->back()};
  ThreadTeam team(3, processors);
  std::vector<std::optional<bool>> stay(3);
  {
    const cpu::StaysOn here = team.enter();
    EXPECT_TRUE(here.stays());
    all_at_once(team, [&](int member) {
      stay[static_cast<std::size_t>(member)] = mask_of_this_thread() == on(processors[static_cast<std::size_t>(member)]);
    });
  }
  EXPECT_THAT(stay, Each(std::optional(true)));
  EXPECT_EQ(mask_of_this_thread(), *allowed);
}

// Given no processors; expects no thread to be pinned.
TEST(ThreadTeam, PinsNothingByDefault) {
  const std::vector<int> before = mask_of_this_thread();
  ThreadTeam team(2);
  std::vector<std::vector<int>> found(2);
  const cpu::StaysOn here = team.enter();
  EXPECT_FALSE(here.stays());
  all_at_once(team, [&](int member) { found[static_cast<std::size_t>(member)] = mask_of_this_thread(); });
  EXPECT_THAT(found, Each(before));
}

// Given cores with two hardware threads each, numbered in any way; expects one of each core before the second of any. The
// system knows the core of an existing processor.
TEST(Processors, CoresComeFirst) {
  EXPECT_THAT(cpu::cores_first({0, 1, 2, 3, 5}, [](int processor) { return processor / 2 * 2; }), ElementsAre(0, 2, 5, 1, 3));
  EXPECT_THAT(cpu::cores_first({0, 1, 2, 3}, [](int processor) { return processor % 2; }), ElementsAre(0, 1, 2, 3));
  const int processor = cpu::allowed_processors()->back();
  EXPECT_LE(cpu::core_of(processor), processor);
  EXPECT_EQ(cpu::core_of(1 << 20), 1 << 20);
}

// Given ranks; expects different processors for each, and an error with their number if there are too few.
TEST(Processors, RanksShareNone) {
  const std::vector<int> allowed = {0, 2, 3, 5, 8};
  EXPECT_THAT(*cpu::processors_of_rank(allowed, 2, 0, 2), ElementsAre(0, 2));
  EXPECT_THAT(*cpu::processors_of_rank(allowed, 2, 1, 2), ElementsAre(3, 5));
  EXPECT_THAT(*cpu::processors_of_rank(allowed, 5, 0, 1), ElementsAre(0, 2, 3, 5, 8));
  const auto refused = cpu::processors_of_rank(allowed, 2, 2, 3);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message,
              HasSubstr("threads: must be at most 5, the number of processors that this process may run on (got 6)"));
}

// Given a processor that does not exist; expects the thread to run unpinned.
TEST(Processors, RefusedOnesChangeNothing) {
  const std::vector<int> before = mask_of_this_thread();
  const cpu::StaysOn nowhere(1 << 15);
  EXPECT_FALSE(nowhere.stays());
  EXPECT_EQ(mask_of_this_thread(), before);
}

}  // namespace
}  // namespace windlass::worker
