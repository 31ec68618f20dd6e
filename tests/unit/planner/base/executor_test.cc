// Tests that parallel work gives the same results in any order.
#include "planner/base/executor.h"

#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "planner/base/rng.h"

namespace windlass {
namespace {

// Runs the tasks in random order, to imitate the worst behaviour of threads.
class ShuffledExecutor final : public Executor {
 public:
  explicit ShuffledExecutor(std::uint64_t seed) : rng_(seed, "order") {}

  [[nodiscard]] int concurrency() const override { return 3; }
  void run(std::size_t count, const std::function<void(std::size_t)>& task) override {
    std::vector<std::size_t> order(count);
    for (std::size_t i = 0; i < count; ++i) order[i] = i;
    for (std::size_t i = count; i > 1; --i) {
      std::swap(order[i - 1], order[static_cast<std::size_t>(rng_.integer(0, static_cast<std::int64_t>(i) - 1))]);
    }
    for (std::size_t index : order) task(index);
  }

 private:
  Rng rng_;
};

// Given tasks that draw from a stream named by their index; expects the same results in the same places for any order.
TEST(Executor, ResultsComeInTheOrderOfTheIndices) {
  const auto task = [](std::size_t index) { return Rng(index, "task").uniform(); };
  for (std::size_t count = 0; count < 40; ++count) {
    SerialExecutor serial;
    ShuffledExecutor shuffled(count);
    const auto one = parallel_map<double>(serial, count, task);
    const auto other = parallel_map<double>(shuffled, count, task);
    ASSERT_TRUE(one.ok() && other.ok());
    ASSERT_EQ(one->size(), count);
    EXPECT_EQ(*one, *other);
  }
}

// Given results without a default constructor or copy, and bools; expects them unchanged.
TEST(Executor, TakesAnyResult) {
  SerialExecutor serial;
  const auto owned = parallel_map<std::unique_ptr<std::string>>(
      serial, 3, [](std::size_t index) { return std::make_unique<std::string>(std::to_string(index)); });
  ASSERT_TRUE(owned.ok());
  EXPECT_EQ(*(*owned)[2], "2");
  const auto bits = parallel_map<bool>(serial, 4, [](std::size_t index) { return index % 2 == 1; });
  EXPECT_EQ(bits.value(), (std::vector<bool>{false, true, false, true}));
}

// Given a stop before, during and after the work; expects Cancelled unless every task had started, and no task started after
// it.
TEST(Executor, StopsBetweenTasks) {
  for (int allowed = 0; allowed <= 6; ++allowed) {
    int begun = 0;
    SerialExecutor serial;
    const auto result = parallel_map<int>(
        serial, 5, [&](std::size_t) { return ++begun; }, [&] { return begun >= allowed; });
    EXPECT_EQ(begun, std::min(allowed, 5));
    EXPECT_EQ(result.ok(), allowed >= 5);
    EXPECT_EQ(result.ok() ? ErrorCode::kCancelled : result.error().code, ErrorCode::kCancelled);
  }
}

// Given no stop check; expects that nothing stops.
TEST(Executor, AnEmptyStopCheckNeverStops) { EXPECT_FALSE(stop_requested({})); }

}  // namespace
}  // namespace windlass
