// The team that computes products: each part is done once, by all who are free, on the processors that are asked for.
#include "worker/backend/cpu/thread_team.h"

#include <algorithm>
#include <atomic>
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

// Whether the calling thread may run on this processor alone.
bool stays_on(int processor) {
  cpu_set_t mask;
  if (::sched_getaffinity(0, sizeof(mask), &mask) != 0) return false;
  return CPU_COUNT(&mask) == 1 && CPU_ISSET(static_cast<std::size_t>(processor), &mask);
}

// Given pieces of any number of parts, one after the other, each part is done once, what the parts wrote is there when run()
// returns, and members have numbers below the team's size.
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

// Given parts that wait for each other, as many as there are members, all members take part: none sleeps while there is work.
TEST(ThreadTeam, AllMembersWorkAtOnce) {
  ThreadTeam team(3);
  std::atomic<int> here = 0;
  team.run(3, [&](std::int64_t /*part*/, int /*member*/) {
    here.fetch_add(1);
    here.notify_all();
    for (int seen = here.load(); seen < 3; seen = here.load()) here.wait(seen);
  });
  EXPECT_EQ(here.load(), 3);
}

// Given a processor for each member, all members compute on theirs, and so does whoever brings work next; the thread that made
// the team goes where it likes.
TEST(ThreadTeam, MembersStayOnTheirProcessors) {
  const auto allowed = cpu::allowed_processors();
  ASSERT_TRUE(allowed.ok()) << allowed.error().message;
  ASSERT_FALSE(allowed->empty());
  const std::vector<int> processors = {allowed->back(), allowed->front(), allowed->back()};
  ThreadTeam team(3, processors);
  for (int bringer = 0; bringer < 2; ++bringer) {
    std::vector<std::optional<bool>> stay(3);
    std::jthread brings([&] {
      team.enter();
      std::atomic<int> here = 0;
      team.run(3, [&](std::int64_t /*part*/, int member) {
        const auto at = static_cast<std::size_t>(member);
        stay[at] = stays_on(processors[at]);
        here.fetch_add(1);
        here.notify_all();
        for (int seen = here.load(); seen < 3; seen = here.load()) here.wait(seen);
      });
    });
    brings.join();
    EXPECT_THAT(stay, Each(std::optional(true)));
  }
  EXPECT_EQ(*cpu::allowed_processors(), *allowed);
}

// Given no processors, nobody's thread is put anywhere.
TEST(ThreadTeam, NobodyIsMovedUnasked) {
  const std::vector<int> before = *cpu::allowed_processors();
  ThreadTeam team(2);
  team.enter();
  EXPECT_EQ(*cpu::allowed_processors(), before);
}

// Given ranks, each has processors that no other has; too few are an error that says how many there are.
TEST(Processors, RanksShareNone) {
  const std::vector<int> allowed = {0, 2, 3, 5, 8};
  EXPECT_THAT(*cpu::processors_of_rank(allowed, 2, 0, 2), ElementsAre(0, 2));
  EXPECT_THAT(*cpu::processors_of_rank(allowed, 2, 1, 2), ElementsAre(3, 5));
  EXPECT_THAT(*cpu::processors_of_rank(allowed, 5, 0, 1), ElementsAre(0, 2, 3, 5, 8));
  const auto refused = cpu::processors_of_rank(allowed, 2, 2, 3);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("found 6 threads that compute, allowed is at most 5"));
}

// Given a processor that there is not, the thread goes on where it may.
TEST(Processors, RefusedOnesChangeNothing) {
  const std::vector<int> before = *cpu::allowed_processors();
  EXPECT_FALSE(cpu::stay_on(1 << 15));
  EXPECT_EQ(*cpu::allowed_processors(), before);
}

}  // namespace
}  // namespace windlass::worker
