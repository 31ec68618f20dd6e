// Tests Aladdin's integer program: against all placements, and best fit against it.
#include "tests/reference/papers/aladdin_mip.h"

#include <algorithm>
#include <optional>

#include <gtest/gtest.h>

#include "planner/base/rng.h"
#include "planner/dispatch/best_fit.h"
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
      worker.add(handle, input, output, 0);
      if (rng.integer(0, 3) > 0) worker.begin_decode(handle, 0);
      ++handle;
    }
    for (int i = 0; i < rng.integer(0, 40); ++i) worker.iterated();
    made.workers.push_back(worker);
  }
  for (int i = 0; i < count; ++i) made.workers.emplace_back(kModel, kRules);
  for (int i = 0; i < count; ++i) {
    made.requests.push_back({static_cast<int>(rng.integer(50, 2500)), static_cast<int>(rng.integer(10, 1500))});
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
               at.requests[j].predicted_tokens, kNowS);
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
              at.requests[j].predicted_tokens, kNowS);
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
  const std::vector<NewRequest> requests = {{5900, 400}};
  const auto exact = place_exactly(workers, kRules, requests, 0);
  ASSERT_FALSE(exact.ok());
  EXPECT_EQ(exact.error().code, ErrorCode::kNotFound);
}

}  // namespace
}  // namespace windlass::search
