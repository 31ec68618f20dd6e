// Tests of deriving observations of iterations from engine counters: what each engine's metrics page can show, and what is
// ignored.
#include "planner/perf/iteration_windows.h"

#include <gtest/gtest.h>

namespace windlass::planner {
namespace {

constexpr double kContext = 600, kPrompt = 500;

void add(std::optional<CountedTime>& to, double seconds, double count) {
  if (!to) to = CountedTime{};
  to->sum_s += seconds;
  to->count += count;
}

// A worker that decodes a batch of eight in 20 ms per iteration, with a prompt of 500 tokens in every tenth, 50 ms more.
WorkerCounters page_of_all() {
  WorkerCounters page;
  page.running = 8;
  page.waiting = 0;
  page.prompt_tokens = page.generated_tokens = 0;
  return page;
}

// One more second of it: 40 iterations.
void second(WorkerCounters& page) {
  page.at_s += 1;
  add(page.iterations, 40 * 0.025, 40);
  add(page.token_gaps, 40 * 8 * 0.025, 40 * 8);
  add(page.first_tokens, 4 * 0.08, 4);
  add(page.queueing, 4 * 0.01, 4);
  add(page.prefills, 4 * 0.07, 4);
  page.prompt_seconds = page.prompt_seconds.value_or(0) + 4 * 0.07;
  *page.prompt_tokens += 4 * kPrompt;
  *page.generated_tokens += 40 * 8 + 4;
}

// What the first seconds of a worker teach if its page hides some counters.
template <class Hide>
std::vector<IterationObservation> taught(int seconds, Hide hide) {
  IterationWindows windows;
  WorkerCounters all = page_of_all();
  std::vector<IterationObservation> out;
  for (int i = 0; i <= seconds; ++i) {
    WorkerCounters shown = all;
    hide(shown);
    for (const IterationObservation& one : windows.take(shown, kContext, kPrompt)) out.push_back(one);
    second(all);
  }
  return out;
}

// Given a page with iterations; expects one observation per window from its sixteenth second on, with mean time and content.
TEST(IterationWindows, IterationCountersTeachAll) {
  const auto taught_by = taught(30, [](WorkerCounters&) {});
  ASSERT_EQ(taught_by.size(), 3U);
  const IterationObservation& one = taught_by.front();
  EXPECT_TRUE(one.decodes);
  EXPECT_DOUBLE_EQ(one.seconds, 0.025);
  EXPECT_DOUBLE_EQ(one.count, 200);
  EXPECT_DOUBLE_EQ(one.content.iterations, 1);
  EXPECT_DOUBLE_EQ(one.content.batch, 8);
  EXPECT_DOUBLE_EQ(one.content.context_tokens, kContext);
  EXPECT_DOUBLE_EQ(one.content.prompts, 0.1);
  EXPECT_DOUBLE_EQ(one.content.prompt_tokens, 50);
}

// Given a page like vLLM's; expects a gap that includes other prompts, at the batch that ran, and a prefill next to seven
// others.
TEST(IterationWindows, GapsAndPrefills) {
  const auto taught_by = taught(20, [](WorkerCounters& page) {
    page.iterations.reset();
    page.prompt_seconds.reset();
  });
  ASSERT_EQ(taught_by.size(), 2U);
  EXPECT_TRUE(taught_by[0].decodes);
  EXPECT_DOUBLE_EQ(taught_by[0].seconds, 0.025);
  EXPECT_DOUBLE_EQ(taught_by[0].content.batch, 8);
  EXPECT_NEAR(taught_by[0].content.prompts, 7 * 20.0 / 1600, 1e-9);
  EXPECT_FALSE(taught_by[1].decodes);
  EXPECT_DOUBLE_EQ(taught_by[1].seconds, 0.07);
  EXPECT_DOUBLE_EQ(taught_by[1].content.batch, 7);
  EXPECT_DOUBLE_EQ(taught_by[1].content.prompt_tokens, kPrompt);
  EXPECT_DOUBLE_EQ(taught_by[1].content.iterations, 1);
}

// Given a page without prefill times; expects first-token times minus queueing. Without queueing; expects half a current
// iteration in addition. If requests waited inside the worker; expects less weight.
TEST(IterationWindows, FirstTokensStandInForPrefills) {
  const auto bare = [](WorkerCounters& page) {
    page.iterations.reset();
    page.prompt_seconds.reset();
    page.prefills.reset();
  };
  EXPECT_NEAR(taught(20, bare).back().seconds, 0.07, 1e-9);
  const auto without_queueing = [&](WorkerCounters& page) {
    bare(page);
    page.queueing.reset();
  };
  const IterationObservation first = taught(20, without_queueing).back();
  EXPECT_NEAR(first.seconds, 0.08, 1e-9);
  EXPECT_DOUBLE_EQ(first.content.iterations, 1.5);
  EXPECT_TRUE(taught(20,
                     [&](WorkerCounters& page) {
                       without_queueing(page);
                       page.waiting = 2;
                     })
                  .back()
                  .decodes)
      << "first tokens that waited say nothing of prefills";
  const auto crowded = taught(20, [&](WorkerCounters& page) {
    bare(page);
    page.waiting = 2;
  });
  EXPECT_GT(crowded.back().noise_deviation, taught(20, bare).back().noise_deviation);
}

// Given a page like llama.cpp's, which counts at the end of a request and does not count requests; expects windows of fifteen
// seconds, prompts by their mean length, and changes of the batch as noise.
TEST(IterationWindows, TimesCountedAtTheEnd) {
  int second_of = 0;
  const auto hide = [&](WorkerCounters& page) {
    page.iterations.reset();
    page.first_tokens.reset();
    page.queueing.reset();
    page.prefills.reset();
    page.gaps_at_end = true;
    page.running = second_of++ % 2 == 0 ? 4 : 12;
  };
  const auto taught_by = taught(44, hide);
  ASSERT_EQ(taught_by.size(), 2U);
  EXPECT_GT(taught_by[0].noise_deviation, 0.3);
  EXPECT_NEAR(taught_by[0].content.batch, 10, 0.3);  // weighted by tokens
  EXPECT_NEAR(taught_by[1].seconds, 0.07, 1e-9);
  EXPECT_DOUBLE_EQ(taught_by[1].content.prompt_tokens, kPrompt);
}

// Given a worker's own measurements; expects them with its first page, and again after its process restarts.
TEST(IterationWindows, OwnMeasurementsComeFirst) {
  IterationWindows windows;
  WorkerCounters page = page_of_all();
  page.measured = {{256, 0, 0, 0.1}, {0, 8, 300, 0.02}};
  page.run = 1;
  auto first = windows.take(page, kContext, kPrompt);
  ASSERT_EQ(first.size(), 2U);
  EXPECT_FALSE(first[0].decodes);
  EXPECT_DOUBLE_EQ(first[0].content.prompt_tokens, 256);
  EXPECT_DOUBLE_EQ(first[0].content.prompts, 1);
  EXPECT_TRUE(first[1].decodes);
  EXPECT_DOUBLE_EQ(first[1].content.batch, 8);
  EXPECT_DOUBLE_EQ(first[1].content.context_tokens, 300);
  second(page);
  EXPECT_TRUE(windows.take(page, kContext, kPrompt).empty());
  page.run = 2;
  page.at_s += 1;
  EXPECT_EQ(windows.take(page, kContext, kPrompt).size(), 2U);
}

// Given a page that does not change, one that goes back in time, an empty one, and an idle worker; expects nothing.
TEST(IterationWindows, NothingTeachesNothing) {
  IterationWindows windows;
  WorkerCounters page = page_of_all();
  for (int i = 0; i < 100; ++i) {
    page.at_s = i % 7 == 0 ? 0 : i;
    EXPECT_TRUE(windows.take(page, kContext, kPrompt).empty());
  }
  EXPECT_TRUE(taught(60, [](WorkerCounters& shown) {
                const double at_s = shown.at_s;
                shown = {};
                shown.at_s = at_s;
              }).empty());
}

}  // namespace
}  // namespace windlass::planner
