// Event streams split anywhere: what passes, what is counted, what is removed.
#include "gateway/sse_filter.h"

#include <random>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/effort.h"

namespace windlass::gateway {
namespace {

const std::string kRole =
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}],\"usage\":null}\n\n";
const std::string kToken =
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a \\\"content\\\":\\\"b\"}}],\"usage\":null}\n\n";
const std::string kSpaced = "data: {\"choices\": [{\"index\": 0, \"text\": \"x\"}]}\r\n\r\n";
const std::string kEnd = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
const std::string kUsage =
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":3,\"total_tokens\":10}}\n\n";
const std::string kDone = "data: [DONE]\n\n";

// Given a chat stream split into random pieces (seeded); expects the same bytes without the usage chunk, and counts that do not
// depend on the splits.
TEST(SseFilter, AnyCutGivesTheSame) {
  const std::string all = kRole + ": a comment\n\n" + kToken + kSpaced + kToken + kEnd + kUsage + kDone;
  const std::string wanted = kRole + ": a comment\n\n" + kToken + kSpaced + kToken + kEnd + kDone;
  std::mt19937_64 rng(11);
  for (int round = 0; round < effort(200, 2000); ++round) {
    SseFilter filter(true);
    std::string out;
    int events = 0;
    for (std::size_t at = 0; at < all.size();) {
      const std::size_t n = std::min<std::size_t>(1 + rng() % (round % 2 == 0 ? 3 : 90), all.size() - at);
      const auto output = filter.feed(std::string_view(all).substr(at, n));
      out += output.forward;
      events += output.content_events;
      at += n;
    }
    ASSERT_EQ(out, wanted) << "round " << round;
    ASSERT_EQ(filter.finish().forward, "");
    ASSERT_EQ(events, 3);
    ASSERT_TRUE(filter.done());
    ASSERT_EQ(filter.usage()->prompt_tokens, 7);
    ASSERT_EQ(filter.usage()->generation_tokens, 3);
  }
}

// Given a whole event in one piece; expects it to leave immediately, not with the next one.
TEST(SseFilter, ACompleteEventIsNotHeldBack) {
  SseFilter filter(true);
  EXPECT_EQ(filter.feed(kToken).forward, kToken);
  EXPECT_EQ(filter.feed(kToken + "data: {").forward, kToken);
  EXPECT_FALSE(filter.done());
}

// Given generated text under every name that engines use (vLLM renamed its reasoning), and fields without any; expects only the
// former to count as tokens.
TEST(SseFilter, NamesOfGeneratedText) {
  for (const char* delta :
       {R"({"content":"a"})", R"({"reasoning_content":"a"})", R"({"reasoning":"a","content":null})",
        R"({"reasoning":"a","reasoning_content":"a"})", R"({"tool_calls":[{"function":{"arguments":"{"}}]})"}) {
    SseFilter filter(true);
    EXPECT_EQ(filter.feed(fmt::format("data: {{\"choices\":[{{\"delta\":{}}}]}}\n\n", delta)).content_events, 1) << delta;
  }
  for (const char* delta :
       {R"({})", R"({"content":""})", R"({"reasoning":null})", R"({"reasoning":""})", R"({"role":"assistant"})"}) {
    SseFilter filter(true);
    EXPECT_EQ(filter.feed(fmt::format("data: {{\"choices\":[{{\"delta\":{}}}]}}\n\n", delta)).content_events, 0) << delta;
  }
}

// Given a client that asked for usage; expects its chunk to pass too. One with choices and usage always passes.
TEST(SseFilter, UsageThatTheClientAskedFor) {
  SseFilter filter(false);
  EXPECT_EQ(filter.feed(kUsage).forward, kUsage);
  EXPECT_EQ(filter.usage()->generation_tokens, 3);
  SseFilter other(true);
  const std::string last = "data: {\"choices\":[{\"text\":\"z\"}],\"usage\":{\"completion_tokens\":4}}\n\n";
  EXPECT_EQ(other.feed(last).forward, last);
  EXPECT_EQ(other.usage()->generation_tokens, 4);
  EXPECT_EQ(other.usage()->prompt_tokens, -1);
}

// Given comments, which workers send as keep-alive; expects those before the first event to be dropped, and later ones to pass.
TEST(SseFilter, CommentsAreNoAnswer) {
  SseFilter filter(true);
  EXPECT_EQ(filter.feed(": still here\n\n").forward, "");
  EXPECT_EQ(filter.feed(":\r\n\r\n" + kToken).forward, kToken);
  EXPECT_EQ(filter.feed(": still here\n\n").forward, ": still here\n\n");
  EXPECT_EQ(SseFilter(true).feed("event: error\n\n").forward, "event: error\n\n");
}

// Given a stream without a final empty line; expects the rest at the end, including [DONE].
TEST(SseFilter, AnUnfinishedEventComesAtTheEnd) {
  SseFilter filter(true);
  EXPECT_EQ(filter.feed("data: [DONE]\n").forward, "");
  EXPECT_FALSE(filter.done());
  EXPECT_EQ(filter.finish().forward, "data: [DONE]\n");
  EXPECT_TRUE(filter.done());
}

// Given an event larger than any real one; expects it to pass instead of filling memory.
TEST(SseFilter, AGiantEventPasses) {
  SseFilter filter(true);
  const std::string giant = "data: " + std::string((1U << 20U) + 1, 'x');
  EXPECT_EQ(filter.feed(giant).forward, giant);
}

// Given seeded mutations of a stream; expects nothing lost or invented except whole usage chunks, and no crash. (The first byte
// stays: a colon there would make the first event a comment, which does not pass.)
TEST(SseFilter, TornStreams) {
  std::mt19937_64 rng(5);
  const std::string all = kRole + kToken + kSpaced + kEnd + kDone;
  for (int round = 0; round < effort(2000, 20'000); ++round) {
    std::string torn = all;
    for (int i = 0; i < 3; ++i) torn[1 + rng() % (torn.size() - 1)] = static_cast<char>(rng() % 256);
    SseFilter filter(true);
    std::string out = filter.feed(torn).forward;
    out += filter.finish().forward;
    if (!filter.usage().has_value()) {
      ASSERT_EQ(out, torn) << "round " << round;
    }
  }
}

// Given bodies of answers; expects the usage to be read when it is an object with valid integer counts.
TEST(UsageOf, ReadsCounts) {
  EXPECT_EQ(usage_of("{\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":2}}")->generation_tokens, 2);
  EXPECT_EQ(usage_of("{\"usage\":{\"prompt_tokens\":-1,\"completion_tokens\":1.5}}")->generation_tokens, -1);
  EXPECT_EQ(usage_of("{\"usage\":null}"), std::nullopt);
  EXPECT_EQ(usage_of("[]"), std::nullopt);
  EXPECT_EQ(usage_of("{"), std::nullopt);
}

}  // namespace
}  // namespace windlass::gateway
