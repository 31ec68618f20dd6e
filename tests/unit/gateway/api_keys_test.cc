// API keys: the file format, and limits compared with a reference that recounts from the full history.
#include "gateway/api_keys.h"

#include <cmath>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "metrics/security/secrets.h"
#include "planner/base/rng.h"
#include "tests/effort.h"

namespace windlass::gateway {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const std::string kKey = "wl-0123456789abcdef";

// Given a file with one key as a digest and one in plain text, with and without limits; expects both to be found by digest.
TEST(ApiKeys, File) {
  const std::string digest = security::sha256_hex("another key of team a");
  const auto file =
      key_file_from_json(R"({"keys": [{"id": "team-a", "sha256": ")" + digest +
                         R"(", "models": ["tiny", "big", "team-a/*"], "requestsPerMinute": 60, "concurrentRequests": 2,
                                            "tokensPerMinute": 1000},
                                           {"id": "ops", "key": ")" +
                         kKey + R"(", "models": ["*"]}]})");
  ASSERT_TRUE(file.ok()) << file.error().message;
  const ApiKey& a = file->by_digest.at(digest);
  EXPECT_EQ(a, (ApiKey{"team-a", false, {"big", "tiny"}, 60, 2, 1000, {"team-a/"}}));
  EXPECT_TRUE(a.may_use("tiny"));
  EXPECT_TRUE(a.may_use("team-a/huge"));
  EXPECT_FALSE(a.may_use("huge"));
  EXPECT_FALSE(a.may_use("team-ab/huge"));
  const ApiKey& ops = file->by_digest.at(security::sha256_hex(kKey));
  EXPECT_TRUE(ops.may_use("huge"));
  EXPECT_FALSE(ops.requests_per_minute.has_value());
  EXPECT_TRUE(key_file_from_json(R"({"keys": []})").ok());  // nobody may do anything
}

// Given one mistake each; expects the path, the rule and the value found, and never the key.
TEST(ApiKeys, Mistakes) {
  const auto with = [](const std::string& rest) { return R"({"keys":[{"id":"a","key":")" + kKey + "\"" + rest + "}]}"; };
  const std::string good = with(R"(,"models":["*"])");
  const std::pair<std::string, std::string> cases[] = {
      {"keys:\n- id: a\n  key: " + kKey, "not JSON"},
      {"[]", "API keys"},
      {"{}", "keys: missing"},
      {with(""), "keys[0].models: must be a list of served names, or [\"*\"] for all (got nothing for key 'a')"},
      {with(R"(,"models":[])"), "keys[0].models: must be a list of served names, or [\"*\"] for all (got [] for key 'a')"},
      {with(R"(,"models":"*")"), "keys[0].models"},
      {with(R"(,"models":[3])"), "keys[0].models[0]: must be the served name of a model (got 3)"},
      {with(R"(,"models":["*"],"requestPerMinute":5)"), "requestPerMinute: unknown field"},
      {with(R"(,"models":["*"],"requestsPerMinute":0)"), "requestsPerMinute: must be an integer"},
      {with(R"(,"models":["*"],"concurrentRequests":"2")"), "concurrentRequests: must be an integer"},
      {with(R"(,"models":["*"],"sha256":"00")"), "must have either 'sha256' or 'key' (got both 'sha256' and 'key')"},
      {R"({"keys":[{"id":"a","models":["*"]}]})", "must have either 'sha256' or 'key' (got neither)"},
      {R"({"keys":[{"id":"a","models":["*"],"key":["x"]}]})", "keys[0].key: must be a string (got array)"},
      {R"({"keys":[{"id":"a","models":["*"],"key":"short"}]})", "must be 16 to 512 visible ASCII characters (got 5 characters"},
      {R"({"keys":[{"id":"a","models":["*"],"sha256":"xyz"}]})", "must be 64 hexadecimal digits (got 3 characters)"},
      {R"({"keys":[{"id":"a b","models":["*"],"key":"0123456789abcdef"}]})",
       "keys[0].id: must be 1 to 64 letters, digits, '-', '_' or '.' (got 'a b')"},
      {R"({"keys":[{"id":"a","models":["*"],"key":"0123456789abcdef"},{"id":"a","models":["*"],"key":"0123456789abcdeg"}]})",
       "must be unique (got 'a' twice)"},
      {R"({"keys":[{"id":"a","models":["*"],"key":"0123456789abcdef"},{"id":"b","models":["*"],"key":"0123456789abcdef"}]})",
       "got the key of another entry for key 'b'"},
  };
  ASSERT_TRUE(key_file_from_json(good).ok());
  for (const auto& [text, message] : cases) {
    const auto file = key_file_from_json(text);
    ASSERT_FALSE(file.ok()) << text;
    EXPECT_THAT(file.error().message, HasSubstr(message));
    EXPECT_THAT(file.error().message, Not(HasSubstr("0123456789")));
  }
}

// Recounts a bucket from everything that was ever taken from it.
double level_by_history(double per_minute, const std::vector<std::pair<double, double>>& taken, double now_s) {
  double level = per_minute, at_s = 0;
  for (const auto& [t, amount] : taken) {
    level = std::min(per_minute, level + (t - at_s) * per_minute / 60) - amount;
    at_s = t;
  }
  return std::min(per_minute, level + (now_s - at_s) * per_minute / 60);
}

// Given random histories of requests; expects admission exactly when a recount finds a whole request in the bucket, admission
// of a refused request after the reported wait and not a second earlier, and no window above the limit.
TEST(KeyLimits, RequestsPerMinuteAgainstARecount) {
  for (std::uint64_t seed = 1; seed <= effort(200U, 2000U); ++seed) {
    Rng rng(seed, "limits");
    ApiKey key{"k", true, {}, static_cast<int>(rng.integer(1, 30)), std::nullopt, std::nullopt};
    KeyLimits limits;
    std::vector<std::pair<double, double>> taken;
    double now_s = 0;
    for (int i = 0; i < 60; ++i) {
      now_s += rng.uniform() * (rng.integer(0, 4) == 0 ? 20 : 1);
      const double level = level_by_history(*key.requests_per_minute, taken, now_s);
      if (std::abs(level - 1) < 1e-6) continue;  // rounding decides
      const auto verdict = limits.admit(key, now_s);
      ASSERT_EQ(verdict.admitted, level >= 1) << "seed " << seed;
      if (verdict.admitted) {
        taken.emplace_back(now_s, 1);
        limits.finished("k", 0, now_s);
        continue;
      }
      ASSERT_EQ(verdict.limit, "requestsPerMinute");
      ASSERT_GE(level_by_history(*key.requests_per_minute, taken, now_s + verdict.retry_after_s), 1 - 1e-6);
      if (verdict.retry_after_s > 1) {
        ASSERT_LT(level_by_history(*key.requests_per_minute, taken, now_s + verdict.retry_after_s - 1), 1 + 1e-6);
      }
    }
    for (std::size_t i = 0; i < taken.size(); ++i) {
      for (std::size_t j = i; j < taken.size(); ++j) {
        const double window_s = taken[j].first - taken[i].first;
        ASSERT_LE(static_cast<double>(j - i + 1), *key.requests_per_minute * (1 + window_s / 60) + 1e-6);
      }
    }
  }
}

// Given a limit of two concurrent requests; expects the third to be refused until one ends, and a refused one to hold nothing.
TEST(KeyLimits, Concurrency) {
  ApiKey key{"k", true, {}, std::nullopt, 2, std::nullopt};
  KeyLimits limits;
  EXPECT_TRUE(limits.admit(key, 0).admitted);
  EXPECT_TRUE(limits.admit(key, 0).admitted);
  const auto third = limits.admit(key, 0);
  EXPECT_FALSE(third.admitted);
  EXPECT_EQ(third.limit, "concurrentRequests");
  EXPECT_EQ(third.retry_after_s, 1);
  EXPECT_EQ(limits.in_flight("k"), 2);
  limits.finished("k", 10, 1);
  EXPECT_TRUE(limits.admit(key, 1).admitted);
}

// Given a token limit; expects requests in flight to overdraw it, the next to be told when the debt is paid, and a raised limit
// to apply immediately.
TEST(KeyLimits, TokensAreWaitedOut) {
  ApiKey key{"k", true, {}, std::nullopt, std::nullopt, 600};
  KeyLimits limits;
  EXPECT_TRUE(limits.admit(key, 0).admitted);
  limits.finished("k", 1200, 0);  // 600 too many: 60 s, and 0.1 s for the next one's first token
  const auto refused = limits.admit(key, 0);
  EXPECT_EQ(refused.limit, "tokensPerMinute");
  EXPECT_EQ(refused.retry_after_s, 61);
  EXPECT_FALSE(limits.admit(key, 60).admitted);
  EXPECT_TRUE(limits.admit(key, 60.1).admitted);
  limits.finished("k", 600, 60.1);
  key.tokens_per_minute = 60'000;
  EXPECT_FALSE(limits.admit(key, 60.2).admitted);
  EXPECT_TRUE(limits.admit(key, 61).admitted);
  key.tokens_per_minute.reset();
  EXPECT_TRUE(limits.admit(key, 61).admitted);
}

}  // namespace
}  // namespace windlass::gateway
