// The collectives of one worker's ranks: threads of this process with a mapping each, and processes that die.
#include "worker/collective/rank_group.h"

#include <chrono>
#include <csignal>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "planner/base/rng.h"

namespace windlass::worker {
namespace {

using ::testing::HasSubstr;

constexpr double kSoonS = 5;  // the promise to users

RankGroupSizes sizes_of(int ranks, std::int64_t floats) {
  RankGroupSizes sizes;
  sizes.ranks = ranks;
  sizes.message_bytes = 64;
  sizes.sum_floats = floats;
  sizes.gather_floats = 5;
  sizes.own_floats = 3;
  return sizes;
}

// Runs `work` for each rank on its own thread, rank 0's on this one.
void with_ranks(const RankGroupSizes& sizes, const std::function<void(RankGroup&)>& work, RankPatience patience = {}) {
  std::vector<std::shared_ptr<RankGroup>> groups;  // keep all alive until the last is done: a rank that leaves counts as lost
  for (int rank = 0; rank < sizes.ranks; ++rank) {
    auto group =
        rank == 0 ? RankGroup::create(sizes, patience) : RankGroup::join(groups[0]->descriptor(), rank, sizes, patience);
    ASSERT_TRUE(group.ok()) << group.error().message;
    groups.push_back(std::move(group).value());
  }
  std::vector<std::thread> threads;
  for (int rank = 1; rank < sizes.ranks; ++rank) {
    threads.emplace_back([&, rank] { work(*groups[static_cast<std::size_t>(rank)]); });
  }
  work(*groups[0]);
  for (std::thread& each : threads) each.join();
}

double seconds_of(const std::function<void()>& work) {
  const auto began = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
}

// Given one to five ranks and consecutive sums of odd sizes; expects every rank to add exactly the sum, in the order of the
// ranks.
TEST(RankGroup, SumsInTheOrderOfTheRanks) {
  for (int ranks = 1; ranks <= 5; ++ranks) {
    with_ranks(sizes_of(ranks, 333), [&](RankGroup& group) {
      Rng sizes(7, "sizes");
      for (std::uint64_t round = 0; round < 60; ++round) {
        const std::int64_t count = round % 3 == 0 ? 333 : sizes.integer(1, 40);
        std::vector<float> expected(static_cast<std::size_t>(count), 0.25F);
        for (int rank = 0; rank < ranks; ++rank) {
          Rng values(round * 10 + static_cast<std::uint64_t>(rank), "values");
          for (std::int64_t i = 0; i < count; ++i) {
            const auto value = static_cast<float>(values.uniform(-1, 1));
            expected[static_cast<std::size_t>(i)] += value;
            if (rank == group.rank()) group.addend(count)[static_cast<std::size_t>(i)] = value;
          }
        }
        std::vector<float> found(static_cast<std::size_t>(count), 0.25F);
        ASSERT_TRUE(group.add_sum(found.data(), count).ok());
        ASSERT_EQ(found, expected) << ranks << " ranks, round " << round;
      }
    });
  }
}

// Given messages of rank 0; expects each to be received once and in order by all. What ranks write to the gather area and to
// their own floats is visible to all after a barrier.
TEST(RankGroup, MessagesAndSharedFloatsArrive) {
  with_ranks(sizes_of(4, 8), [](RankGroup& group) {
    for (std::int64_t round = 1; round <= 50; ++round) {
      if (group.rank() == 0) {
        std::memcpy(group.outbox().data(), &round, sizeof(round));
        group.send();
      } else {
        const auto message = group.receive();
        ASSERT_TRUE(message.ok());
        std::int64_t found = 0;
        std::memcpy(&found, message->data(), sizeof(found));
        ASSERT_EQ(found, round);
      }
      group.gather()[static_cast<std::size_t>(group.rank())] = static_cast<float>(round + group.rank());
      group.own(group.rank())[2] = static_cast<float>(100 * group.rank() + round);
      group.show(static_cast<std::uint64_t>(round * 7 + group.rank()));
      ASSERT_TRUE(group.barrier().ok());
      for (int rank = 0; rank < group.ranks(); ++rank) {
        EXPECT_EQ(group.gather()[static_cast<std::size_t>(rank)], static_cast<float>(round + rank));
        EXPECT_EQ(group.own(rank)[2], static_cast<float>(100 * rank + round));
        EXPECT_EQ(group.shown(rank), static_cast<std::uint64_t>(round * 7 + rank));
      }
      ASSERT_TRUE(group.barrier().ok());
    }
  });
}

// Given three ranks, one of which is killed while the others wait for it; expects both others to fail soon with an error that
// names it, as does every later call.
TEST(RankGroup, DeadRankEndsAllWaits) {
  const RankGroupSizes sizes = sizes_of(3, 8);
  const auto first = RankGroup::create(sizes);
  ASSERT_TRUE(first.ok()) << first.error().message;
  int joined[2];
  ASSERT_EQ(::pipe(joined), 0);
  const pid_t victim = ::fork();
  if (victim == 0) {
    const auto group = RankGroup::join((*first)->descriptor(), 1, sizes);
    const char yes = group.ok() ? 'y' : 'n';
    if (::write(joined[1], &yes, 1) == 1) ::pause();
    ::_exit(1);
  }
  char answer = 0;
  ASSERT_EQ(::read(joined[0], &answer, 1), 1);
  ASSERT_EQ(answer, 'y');
  EXPECT_FALSE((*first)->lost().has_value());
  std::thread second([&] {
    const auto group = RankGroup::join((*first)->descriptor(), 2, sizes);
    ASSERT_TRUE(group.ok());
    float sum = 0;
    const auto outcome = (*group)->add_sum(&sum, 1);
    ASSERT_FALSE(outcome.ok());
    EXPECT_THAT(outcome.error().message, HasSubstr("rank 1 of 3 is lost"));
  });
  std::thread killer([&] {
    EXPECT_EQ(::kill(victim, SIGKILL), 0);
    EXPECT_EQ(::waitpid(victim, nullptr, 0), victim);
  });
  Result<void> outcome;
  EXPECT_LT(seconds_of([&] { outcome = (*first)->barrier(RankGroup::kNoLimit); }), kSoonS);
  ASSERT_FALSE(outcome.ok());
  EXPECT_EQ(outcome.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(outcome.error().message, HasSubstr("rank 1 of 3 is lost: its process has ended"));
  killer.join();
  second.join();
  EXPECT_TRUE((*first)->lost().has_value());
  EXPECT_FALSE((*first)->barrier().ok());
  ::close(joined[0]);
  ::close(joined[1]);
}

// Given rank 0 killed while another waits for its next message; expects that one to end, too.
TEST(RankGroup, RanksDoNotOutliveTheFirst) {
  const RankGroupSizes sizes = sizes_of(2, 8);
  int handed[2];
  ASSERT_EQ(::pipe(handed), 0);
  const pid_t victim = ::fork();
  if (victim == 0) {
    const auto group = RankGroup::create(sizes);
    const int descriptor = group.ok() ? (*group)->descriptor() : -1;
    if (::write(handed[1], &descriptor, sizeof(descriptor)) == sizeof(descriptor)) ::pause();
    ::_exit(1);
  }
  int descriptor = -1;
  ASSERT_EQ(::read(handed[0], &descriptor, sizeof(descriptor)), static_cast<ssize_t>(sizeof(descriptor)));
  const std::string path = "/proc/" + std::to_string(victim) + "/fd/" + std::to_string(descriptor);
  const int here = ::open(path.c_str(), O_RDWR);
  ASSERT_GE(here, 0);
  const auto group = RankGroup::join(here, 1, sizes);
  ASSERT_TRUE(group.ok()) << group.error().message;
  std::thread killer([&] {
    EXPECT_EQ(::kill(victim, SIGKILL), 0);
    EXPECT_EQ(::waitpid(victim, nullptr, 0), victim);
  });
  bool received = true;
  EXPECT_LT(seconds_of([&] { received = (*group)->receive().ok(); }), kSoonS);
  EXPECT_FALSE(received);
  killer.join();
  ::close(here);
  ::close(handed[0]);
  ::close(handed[1]);
}

// Given a rank that lives but does not come; expects the others to stop waiting after the limit and to name it. Given one that
// reports why it cannot go on; expects all to report its reason.
TEST(RankGroup, LateAndFailedRanksAreNamed) {
  with_ranks(sizes_of(2, 8),
             [](RankGroup& group) {
               if (group.rank() == 1) {
                 ASSERT_FALSE(group.receive().ok());  // until rank 0 has given up
                 return;
               }
               const auto outcome = group.barrier();
               ASSERT_FALSE(outcome.ok());
               EXPECT_THAT(outcome.error().message, HasSubstr("rank 1 of 2 does not answer: it is 0.3 s later than rank 0"));
               group.fail(outcome.error().message);
             },
             {0.3, 60});
  // The same for one that gave signs of life and stops: a frozen process.
  with_ranks(sizes_of(2, 8),
             [](RankGroup& group) {
               if (group.rank() == 1) {
                 group.beat();
                 ASSERT_FALSE(group.receive().ok());
                 return;
               }
               const auto outcome = group.barrier();
               ASSERT_FALSE(outcome.ok());
               EXPECT_EQ(outcome.error().message, "rank 1 of 2 is lost: it has given no sign of life for 0.3 s");
               group.fail(outcome.error().message);
             },
             {60, 0.3});
  with_ranks(sizes_of(3, 8), [](RankGroup& group) {
    if (group.rank() == 2) group.fail("tensor 'x' is missing");
    const auto outcome = group.barrier();
    // Rank 2 came to the barrier, too; only ranks that have to wait get the error.
    if (!outcome.ok()) {
      EXPECT_EQ(outcome.error().message, "tensor 'x' is missing");
    }
    ASSERT_TRUE(group.lost().has_value());
    EXPECT_EQ(group.failure(), "tensor 'x' is missing");
  });
}

// Given errands next to the steps of three ranks; expects each to be done once and in order by all others, with rank 0's data
// for each. What they write to their own floats is visible once rank 0 has waited.
TEST(RankGroup, ErrandsRunNextToSteps) {
  RankGroupSizes sizes = sizes_of(3, 40);
  sizes.errand_bytes = sizeof(std::int32_t);
  constexpr std::int32_t kErrands = 200;
  with_ranks(sizes, [](RankGroup& group) {
    std::thread errands([&] {
      for (std::int32_t i = 1; i <= kErrands; ++i) {
        std::int32_t number = i;
        if (group.rank() > 0) {
          ASSERT_TRUE(group.take_errand().ok());
          std::memcpy(&number, group.errand().data(), sizeof(number));
          ASSERT_EQ(number, i);
          EXPECT_EQ(group.own(group.rank())[1], static_cast<float>(i + group.rank()));
          group.own(group.rank())[2] = static_cast<float>(1000 * group.rank() + i);
          group.errand_done();
          continue;
        }
        std::memcpy(group.errand().data(), &number, sizeof(number));
        for (const int rank : {1, 2}) group.own(rank)[1] = static_cast<float>(i + rank);
        group.give_errand();
        ASSERT_TRUE(group.wait_for_errand().ok());
        for (const int rank : {1, 2}) EXPECT_EQ(group.own(rank)[2], static_cast<float>(1000 * rank + i));
      }
    });
    for (int round = 0; round < 200; ++round) {
      group.addend(40)[7] = static_cast<float>(round + group.rank());
      std::vector<float> sum(40);
      ASSERT_TRUE(group.add_sum(sum.data(), 40).ok());
      ASSERT_EQ(sum[7], static_cast<float>(3 * round + 3));
    }
    errands.join();
  });
}

// Given a rank that cannot go on; expects a wait for an errand, or for one to be done, to end with its reason.
TEST(RankGroup, ErrandsEndWithTheGroup) {
  RankGroupSizes sizes = sizes_of(3, 8);
  sizes.errand_bytes = 8;
  with_ranks(sizes, [](RankGroup& group) {
    if (group.rank() == 2) return group.fail("out of memory");
    if (group.rank() == 0) group.give_errand();
    auto outcome = group.rank() == 0 ? group.wait_for_errand() : group.take_errand();
    if (group.rank() == 1 && outcome.ok()) outcome = group.take_errand();  // the first one had been given
    ASSERT_FALSE(outcome.ok());
    EXPECT_EQ(outcome.error().message, "out of memory");
  });
}

// Given sizes that differ from rank 0's, or more memory than the machine has; expects errors with the value.
TEST(RankGroup, RefusesWhatDoesNotFit) {
  const auto first = RankGroup::create(sizes_of(2, 8));
  ASSERT_TRUE(first.ok());
  const auto larger = RankGroup::join((*first)->descriptor(), 1, sizes_of(2, 8000));
  ASSERT_FALSE(larger.ok());
  EXPECT_EQ(larger.error().code, ErrorCode::kFailedPrecondition);
  EXPECT_THAT(larger.error().message, HasSubstr("memory for the ranks: must be "));
  RankGroupSizes as_large = sizes_of(2, 8);
  --as_large.gather_floats;  // the same size in bytes
  EXPECT_FALSE(RankGroup::join((*first)->descriptor(), 1, as_large).ok());
  RankGroupSizes huge = sizes_of(2, 8);
  huge.own_floats = 1LL << 50;
  const auto none = RankGroup::create(huge);
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().code, ErrorCode::kResourceExhausted);
  EXPECT_THAT(none.error().message, HasSubstr("lower --kv-cache-tokens"));
}

}  // namespace
}  // namespace windlass::worker
