// The streams of other engines, recorded in tests/golden/engine_streams, through the filter.
#include <fstream>
#include <random>
#include <sstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gateway/sse_filter.h"
#include "tests/effort.h"
#include "tests/paths.h"

namespace windlass::gateway {
namespace {

std::string golden(const std::string& file) {
  std::ifstream in(source_path("/tests/golden/engine_streams/" + file));
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

struct Read {
  std::string out;
  int content_events = 0;
};

// Feeds pieces of at most this many bytes.
Read read_in_pieces(SseFilter& filter, std::string_view stream, std::size_t most, std::mt19937_64& rng) {
  Read read;
  const auto take = [&read](const SseFilter::Output& output) {
    read.out += output.forward;
    read.content_events += output.content_events;
  };
  while (!stream.empty()) {
    const std::size_t n = std::min<std::size_t>(1 + rng() % most, stream.size());
    take(filter.feed(stream.substr(0, n)));
    stream.remove_prefix(n);
  }
  take(filter.finish());
  return read;
}

std::string verdict_of(const SseFilter& filter, const Read& read) {
  if (!filter.failure().has_value()) return filter.done() ? "complete" : "truncated";
  return filter.failure()->is_refusal() && read.content_events == 0 ? "refused" : "failed";
}

// Given every engine's streams, split at seeded places; expects the verdict, tokens, usage, and error code and message of the
// index, the error event kept whole for the client, and nothing after it to pass, not even [DONE].
TEST(EngineStreams, AreJudgedAsTheIndexSays) {
  const auto index = nlohmann::json::parse(golden("index.json"));
  ASSERT_GE(index.size(), 20U);
  std::mt19937_64 rng(24);
  for (const auto& wanted : index) {
    if (wanted["status"] != 200) continue;
    const std::string file = wanted["file"], stream = golden(file);
    ASSERT_FALSE(stream.empty()) << file;
    for (int round = 0; round < effort(20, 200); ++round) {
      SseFilter filter(true);
      const Read read = read_in_pieces(filter, stream, round == 0 ? stream.size() : 1 + rng() % 200, rng);
      ASSERT_EQ(verdict_of(filter, read), wanted["verdict"]) << file;
      ASSERT_EQ(read.content_events, wanted["content_events"]) << file;
      const bool failed = filter.failure().has_value();
      ASSERT_EQ(failed ? filter.failure()->code : 0, wanted["code"]) << file;
      ASSERT_EQ(failed ? filter.failure()->message : "", wanted["message"]) << file;
      if (failed) {
        ASSERT_NE(stream.find(filter.failure()->event), std::string::npos) << file;
        ASSERT_EQ(read.out.find("[DONE]"), std::string::npos) << file;
      } else {
        const Usage usage = filter.usage().value_or(Usage{});
        ASSERT_EQ(usage.prompt_tokens, wanted["prompt_tokens"]) << file;
        ASSERT_EQ(usage.generation_tokens, wanted["generation_tokens"]) << file;
      }
    }
  }
}

// Given an opening (a role and no text), a comment and the first token; expects the opening to wait for the token, and all to
// leave in order. Without a token, expects it to leave when the stream ends.
TEST(EngineStreams, AnOpeningWaitsForTheFirstToken) {
  const std::string role = "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":null}}]}\n\n";
  const std::string token = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}]}\n\n";
  SseFilter filter(true);
  EXPECT_EQ(filter.feed(role).forward, "");
  EXPECT_EQ(filter.feed(": here\n\n").forward, "");
  EXPECT_EQ(filter.feed(token).forward, role + ": here\n\n" + token);
  EXPECT_EQ(filter.feed(role).forward, role);
  SseFilter other(true);
  EXPECT_EQ(other.feed(role).forward, "");
  EXPECT_EQ(other.finish().forward, role);
}

// Given events that look like openings but contain more (progress, a finish reason, a tool's name); expects them to pass
// immediately.
TEST(EngineStreams, AnEventWithMoreThanARoleIsNoOpening) {
  for (const char* event :
       {R"({"choices":[{"index":0,"delta":{"role":"assistant","content":null}}],"prompt_progress":{"total":9}})",
        R"({"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]})", R"({"choices":[]})", R"({"choices":[7]})", R"([])",
        R"({"choices":[{"index":0,"delta":{"tool_calls":[{"function":{"name":"f","arguments":""}}]}}]})"}) {
    SseFilter filter(true);
    const std::string whole = std::string("data: ") + event + "\n\n";
    EXPECT_EQ(filter.feed(whole).forward, whole);
  }
}

// Given text about errors, a null error, and a nested error; expects none to count as an error.
TEST(EngineStreams, TextAboutErrorsIsNoError) {
  for (const char* event : {R"({"choices":[{"delta":{"content":"{\"error\":{\"code\":500}}"}}],"error":null})",
                            R"({"choices":[{"delta":{"content":"x","tool":{"error":{"code":1},"object":"error"}}}]})",
                            R"({"choices":[{"delta":{"content":"\"finish_reason\":\"abort\""},"finish_reason":"stop"}]})"}) {
    SseFilter filter(true);
    const std::string whole = std::string("data: ") + event + "\n\n";
    EXPECT_EQ(filter.feed(whole).forward, whole);
    EXPECT_FALSE(filter.failure().has_value()) << event;
  }
}

// Given unusual errors: plain text, an event's name, a code that is no status, invalid JSON; expects each to count as an error.
TEST(EngineStreams, UnusualErrorsCountAsErrors) {
  const auto failure_of = [](const std::string& text) {
    SseFilter filter(true);
    EXPECT_EQ(filter.feed(text).forward, "") << text;
    EXPECT_TRUE(filter.failure().has_value()) << text;
    return filter.failure().value_or(StreamFailure{});
  };
  EXPECT_EQ(failure_of("data: {\"error\":\"out of memory\"}\n\n").message, "out of memory");
  EXPECT_EQ(failure_of("event: error\ndata: {\"message\":\"m\",\"code\":501}\n\n").code, 501);
  EXPECT_EQ(failure_of("event: error\r\ndata: broken\r\n\r\n").message, "broken");
  EXPECT_EQ(failure_of("data: {\"error\":{\"code\":\"bad\",\"message\":7}}\n\n").code, 0);
  EXPECT_EQ(failure_of("data: {\"error\":{\"code\":99999999999}}\n\n").code, 0);
}

}  // namespace
}  // namespace windlass::gateway
