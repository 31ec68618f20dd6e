// Tests Aladdin's scheduler: re-balancing against the true minimum, placement against the mixed-integer program and that
// against all placements, heartbeats and groups.
#include "planner/strategies/aladdin/aladdin_scheduler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include <gtest/gtest.h>

#include "controller/cli/console/thread_executor.h"
#include "planner/base/rng.h"
#include "planner/strategies/aladdin/aladdin_mip.h"
#include "tests/effort.h"

namespace windlass::search {
namespace {

constexpr dispatch::PackingModel kModel = {1e-4, 5e-3, 1e-6, 2e-4, 1e-2, 6000, 16, 24};
constexpr dispatch::PackingRules kRules = {0.5, 0.025, 0.5, 0.9, dispatch::PackingPhase::kBoth};

// Enumerates all assignments of `requests` to `workers` until the callback stops it.
template <class Told>
void for_each_placement(std::size_t requests, std::size_t workers, const Told& told) {
  std::vector<std::size_t> at(requests, 0);
  while (true) {
    told(at);
    std::size_t r = 0;
    while (r < requests && ++at[r] == workers) at[r++] = 0;
    if (r == requests) return;
  }
}

// Given 500 random cases of up to five new requests on up to four workers with errors; expects re-balancing never to raise the
// sum of distances, its figures to match its placement, and the sum to be near the minimum over all placements on average.
TEST(Rebalance, LowersTheSumOfDistances) {
  const ErrorLine line{1e-6, 2e-4};
  Rng rng(1, "rebalance");
  double before_sum = 0, after_sum = 0, least_sum = 0;
  int moves = 0;
  for (int round = 0; round < 500; ++round) {
    const auto workers = static_cast<std::size_t>(rng.integer(2, 4)), requests = static_cast<std::size_t>(rng.integer(1, 5));
    std::vector<PackingError> errors(workers);
    for (PackingError& error : errors) {
      for (int i = 0; i < rng.integer(0, 3); ++i) error.went_on(static_cast<int>(rng.integer(50, 600)));
      for (int i = 0; i < rng.integer(0, 3); ++i) error.ended_early(20, static_cast<int>(rng.integer(50, 600)));
    }
    std::vector<Movable> movable;
    for (std::size_t r = 0; r < requests; ++r) {
      movable.push_back({static_cast<std::size_t>(rng.integer(0, static_cast<std::int64_t>(workers) - 1)),
                         static_cast<int>(rng.integer(10, 500))});
    }
    const auto moved_to = [&](const std::vector<std::size_t>& at) {
      std::vector<PackingError> moved = errors;
      for (std::size_t r = 0; r < requests; ++r) {
        if (at[r] == movable[r].worker) continue;
        moved[movable[r].worker].tokens -= movable[r].predicted_tokens;
        moved[movable[r].worker].requests -= 1;
        moved[at[r]].tokens += movable[r].predicted_tokens;
        moved[at[r]].requests += 1;
      }
      return moved;
    };
    const auto balanced = rebalance(
        line, errors, movable, [](std::size_t, std::size_t) { return true; }, [](std::size_t, std::size_t) {});
    const double before = error_distance(line, errors), after = error_distance(line, balanced.errors);
    ASSERT_LE(after, before * (1 + 1e-12));
    ASSERT_NEAR(after, error_distance(line, moved_to(balanced.workers)), 1e-9 * (1 + before));
    double least = before;
    for_each_placement(requests, workers, [&](const std::vector<std::size_t>& at) {
      least = std::min(least, error_distance(line, moved_to(at)));
    });
    ASSERT_GE(after, least - 1e-9);
    before_sum += before;
    after_sum += after;
    least_sum += least;
    moves += balanced.moves;
  }
  EXPECT_GT(moves, 200);
  EXPECT_LT(least_sum, 0.95 * before_sum);
  EXPECT_LT(after_sum - least_sum, 0.1 * (before_sum - least_sum)) << "nine tenths of what can be gained";
}

// Given a worker that may take nothing; expects no request to move there.
TEST(Rebalance, KeepsConstraints) {
  std::vector<PackingError> errors(3);
  errors[0].went_on(1000);
  errors[1].ended_early(10, 1000);
  errors[2].ended_early(10, 900);
  const std::vector<Movable> movable = {{0, 500}};
  const auto to = [&](std::size_t closed) {
    return rebalance(
               {1e-6, 2e-4}, errors, movable, [&](std::size_t, std::size_t worker) { return worker != closed; },
               [](std::size_t, std::size_t) {})
        .workers.front();
  };
  EXPECT_NE(to(1), 1U);
  EXPECT_NE(to(2), 2U);
  EXPECT_NE(to(1), 0U);
}

struct SmallCase {
  std::vector<dispatch::PackedWorker> workers;
  std::vector<NewRequest> requests;
};

// Up to two workers that run something and some empty ones; each request fits on an empty worker.
SmallCase small_case(std::uint64_t seed, std::int64_t max_requests) {
  Rng rng(seed, "small case");
  SmallCase made;
  dispatch::PackedWorker::Handle handle = 0;
  const auto busy = rng.integer(0, 2), count = rng.integer(1, max_requests);
  for (int w = 0; w < busy; ++w) {
    dispatch::PackedWorker worker(kModel, kRules);
    for (int i = 0; i < rng.integer(1, 5); ++i) {
      const auto input = static_cast<int>(rng.integer(50, 1500)), output = static_cast<int>(rng.integer(10, 800));
      if (!worker.fits(input, output, 0)) continue;
      worker.add(handle, input, output);
      if (rng.integer(0, 3) > 0) worker.begin_decode(handle, 0);
      ++handle;
    }
    for (int i = 0; i < rng.integer(0, 40); ++i) worker.iterated();
    made.workers.push_back(worker);
  }
  for (int i = 0; i < count; ++i) made.workers.emplace_back(kModel, kRules);
  for (int i = 0; i < count; ++i) {
    made.requests.push_back(
        {static_cast<std::uint64_t>(i), static_cast<int>(rng.integer(50, 2500)), static_cast<int>(rng.integer(10, 1500))});
  }
  return made;
}

// At this time, the running workers have a reserve.
constexpr double kNowS = 0.3;

// Workers in use after this placement; none if a constraint is violated.
std::optional<int> used_by(SmallCase at, const std::vector<std::size_t>& workers) {
  for (std::size_t j = 0; j < at.requests.size(); ++j) {
    dispatch::PackedWorker& worker = at.workers[workers[j]];
    if (!worker.fits(at.requests[j].input_tokens, at.requests[j].predicted_tokens, kNowS)) return std::nullopt;
    worker.add(1000 + static_cast<dispatch::PackedWorker::Handle>(j), at.requests[j].input_tokens,
               at.requests[j].predicted_tokens);
  }
  return static_cast<int>(
      std::count_if(at.workers.begin(), at.workers.end(), [](const auto& worker) { return worker.requests() > 0; }));
}

// Given random cases of up to four requests on up to six workers; expects the program's placement to satisfy the constraints
// and to use as few workers as the best of all placements.
TEST(ExactPlacement, IsTheBestOfAllPlacements) {
  int busy = 0;
  for (std::uint64_t seed = 1; seed <= effort(25U, 150U); ++seed) {
    const SmallCase at = small_case(seed, 4);
    std::optional<int> fewest;
    for_each_placement(at.requests.size(), at.workers.size(), [&](const std::vector<std::size_t>& workers) {
      const auto used = used_by(at, workers);
      if (used && (!fewest || *used < *fewest)) fewest = used;
    });
    ASSERT_TRUE(fewest) << seed;
    const auto exact = place_exactly(at.workers, kRules, at.requests, kNowS);
    ASSERT_TRUE(exact.ok()) << seed << ": " << exact.error().message;
    ASSERT_TRUE(exact->proven);
    ASSERT_EQ(exact->workers.size(), at.requests.size());
    EXPECT_EQ(used_by(at, exact->workers), fewest) << seed;
    EXPECT_EQ(exact->used, *fewest) << seed;
    busy += at.workers.size() > at.requests.size() ? 1 : 0;
  }
  EXPECT_GT(busy, effort(5, 50)) << "cases with requests under way";
}

// Given 60 random cases of up to eight requests; expects best fit to use no fewer workers than the program, and on average at
// most a twentieth more.
TEST(ExactPlacement, IsNearlyReachedByBestFit) {
  double best_fit_sum = 0, exact_sum = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    const SmallCase at = small_case(1000 + seed, 8);
    const auto exact = place_exactly(at.workers, kRules, at.requests, kNowS);
    ASSERT_TRUE(exact.ok()) << seed << ": " << exact.error().message;
    dispatch::BestFit fit(kRules);
    for (const dispatch::PackedWorker& worker : at.workers) fit.add_worker(worker);
    std::vector<std::size_t> chosen;
    for (std::size_t j = 0; j < at.requests.size(); ++j) {
      const auto worker = fit.find(at.requests[j].input_tokens, at.requests[j].predicted_tokens, kNowS);
      ASSERT_TRUE(worker);
      fit.add(*worker, 1000 + static_cast<dispatch::BestFit::Handle>(j), at.requests[j].input_tokens,
              at.requests[j].predicted_tokens);
      chosen.push_back(*worker);
    }
    const auto used = used_by(at, chosen);
    ASSERT_TRUE(used);
    ASSERT_GE(*used, exact->used) << seed;
    best_fit_sum += *used;
    exact_sum += exact->used;
  }
  EXPECT_LE(best_fit_sum, 1.05 * exact_sum);
}

// Given no worker that can take a request; expects an error.
TEST(ExactPlacement, MayBeNone) {
  const std::vector<dispatch::PackedWorker> workers(1, dispatch::PackedWorker(kModel, kRules));
  const std::vector<NewRequest> requests = {{1, 5900, 400}};
  const auto exact = place_exactly(workers, kRules, requests, 0);
  ASSERT_FALSE(exact.ok());
  EXPECT_EQ(exact.error().code, ErrorCode::kNotFound);
}

struct Lived {
  std::vector<std::size_t> workers;  // of all requests
  std::size_t max_busy = 0;
  int moves = 0;
};

// 40 heartbeats of requests whose outputs differ from what was predicted.
Lived live(std::size_t groups, Executor& executor) {
  AladdinScheduler scheduler(kModel, kRules, groups, groups);
  Rng rng(4, "lives");
  struct Running {
    std::uint64_t id;
    std::size_t worker;
    int left, predicted, made;
  };
  std::vector<Running> running;
  Lived lived;
  std::uint64_t id = 0;
  double now_s = 0;
  for (int beat = 0; beat < 40; ++beat) {
    std::vector<NewRequest> requests;
    std::vector<int> outputs;
    for (int i = 0; i < 20; ++i) {
      requests.push_back({id++, static_cast<int>(rng.integer(20, 600)), static_cast<int>(rng.integer(20, 200))});
      outputs.push_back(std::max(1, static_cast<int>(requests.back().predicted_tokens * rng.uniform(0.3, 1.7))));
    }
    const auto workers = scheduler.heartbeat(requests, now_s, executor);
    for (std::size_t i = 0; i < workers.size(); ++i) {
      scheduler.first_token(requests[i].id, now_s + 0.05);
      running.push_back({requests[i].id, workers[i], outputs[i] - 1, requests[i].predicted_tokens, 1});
      lived.workers.push_back(workers[i]);
    }
    lived.max_busy = std::max(lived.max_busy, scheduler.busy_workers());
    for (int iteration = 0; iteration < 50; ++iteration) {
      now_s += 0.02;
      for (Running& request : running) {
        --request.left;
        ++request.made;
      }
      for (const Running& request : running) {
        if (request.left <= 0) scheduler.ended(request.id, request.made);
      }
      std::erase_if(running, [](const Running& request) { return request.left <= 0; });
      for (std::size_t worker = 0; worker < scheduler.workers(); ++worker) {
        const bool busy = std::any_of(running.begin(), running.end(), [&](const Running& r) { return r.worker == worker; });
        if (busy) scheduler.iterated(worker);
      }
      for (Running& request : running) {
        if (request.made != request.predicted) continue;
        request.predicted += 40;
        scheduler.predict_again(request.id, request.predicted);
      }
    }
  }
  lived.moves = scheduler.moves();
  return lived;
}

// Given 800 requests with prediction errors; expects one scheduler to move some of them, and to place all.
TEST(AladdinScheduler, HandlesPredictionErrors) {
  SerialExecutor serial;
  const Lived lived = live(1, serial);
  EXPECT_EQ(lived.workers.size(), 800U);
  EXPECT_GT(lived.moves, 0);
  EXPECT_GT(lived.max_busy, 1U);
}

// Given four groups; expects the same placements on one thread and on three, requests in every group, and at most one worker
// per group and a quarter more than one scheduler needs.
TEST(AladdinScheduler, GroupsAreTheSameOnAnyNumberOfCores) {
  cli::ThreadExecutor one(1), three(3);
  const Lived a = live(4, one), b = live(4, three), alone = live(1, one);
  EXPECT_EQ(a.workers, b.workers);
  EXPECT_EQ(a.moves, b.moves);
  std::vector<int> in_group(4, 0);
  for (const std::size_t worker : a.workers) ++in_group[worker % 4];
  EXPECT_EQ(in_group, (std::vector<int>{200, 200, 200, 200}));
  EXPECT_LE(static_cast<double>(a.max_busy), 1.25 * static_cast<double>(alone.max_busy) + 4);
}

}  // namespace
}  // namespace windlass::search
