// Whether a request attains its objective: every row of the rule in design.md.
#include "gateway/attainment.h"

#include <gtest/gtest.h>

namespace windlass::gateway {
namespace {

constexpr Objective kObjective{0.5, 0.05};

RequestRecord streamed(double ttft_s, int tokens, double last_s) {
  RequestRecord record;
  record.code = 200;
  record.streamed = true;
  record.arrived_s = 100;
  record.first_token_s = 100 + ttft_s;
  record.last_token_s = 100 + last_s;
  record.finished_s = 100 + last_s;
  record.generation_tokens = tokens;
  return record;
}

RequestRecord ended(int code, double after_s, bool stream = true) {
  RequestRecord record;
  record.code = code;
  record.streamed = stream;
  record.arrived_s = 100;
  record.finished_s = 100 + after_s;
  return record;
}

// Given streamed answers; expects both TTFT and TPOT to be within their limits, exactly at the limit to pass, and one token to
// need no TPOT.
TEST(Attainment, Streamed) {
  EXPECT_EQ(judge(streamed(0.25, 5, 0.44), kObjective), Verdict::kAttained);
  EXPECT_EQ(judge(streamed(0.5, 5, 0.6), kObjective), Verdict::kAttained);
  EXPECT_EQ(judge(streamed(0.51, 5, 0.6), kObjective), Verdict::kMissed);
  EXPECT_EQ(judge(streamed(0.25, 5, 0.5), kObjective), Verdict::kMissed);
  EXPECT_EQ(judge(streamed(0.25, 1, 0.25), kObjective), Verdict::kAttained);
  EXPECT_EQ(judge(streamed(0.6, 1, 0.6), kObjective), Verdict::kMissed);
}

// Given a stream that ends well without a token; expects it to be judged by its end.
TEST(Attainment, StreamedWithoutTokens) {
  EXPECT_EQ(judge(ended(200, 0.4), kObjective), Verdict::kAttained);
  EXPECT_EQ(judge(ended(200, 0.6), kObjective), Verdict::kMissed);
}

// Given answers that are not streamed; expects the whole latency to be compared with TTFT + (n - 1) * TPOT.
TEST(Attainment, NotStreamed) {
  auto record = ended(200, 0.89, false);
  record.generation_tokens = 9;
  EXPECT_EQ(judge(record, kObjective), Verdict::kAttained);
  record.generation_tokens = 8;
  EXPECT_EQ(judge(record, kObjective), Verdict::kMissed);
  record = ended(200, 0.4, false);
  EXPECT_EQ(judge(record, kObjective), Verdict::kAttained);
  record.generation_tokens = 0;
  EXPECT_EQ(judge(record, kObjective), Verdict::kAttained);
}

// Given errors; expects 429, 5xx and timeouts to be misses, however fast, and other 4xx not to count.
TEST(Attainment, Errors) {
  for (int code : {429, 500, 502, 503, 504}) EXPECT_EQ(judge(ended(code, 0.001), kObjective), Verdict::kMissed) << code;
  for (int code : {400, 401, 404, 413, 422}) EXPECT_EQ(judge(ended(code, 9), kObjective), Verdict::kNotCounted) << code;
  auto broken = streamed(0.1, 4, 0.2);
  broken.code = 502;
  EXPECT_EQ(judge(broken, kObjective), Verdict::kMissed);
}

// Given clients that leave; expects those before the TTFT limit not to count, and later ones to be judged by what they were
// sent.
TEST(Attainment, ClientsThatLeave) {
  EXPECT_EQ(judge(ended(kClientGone, 0.49), kObjective), Verdict::kNotCounted);
  EXPECT_EQ(judge(ended(kClientGone, 0.5), kObjective), Verdict::kMissed);
  EXPECT_EQ(judge(ended(kClientGone, 3, false), kObjective), Verdict::kMissed);
  auto early = streamed(0.1, 3, 0.2);
  early.code = kClientGone;
  EXPECT_EQ(judge(early, kObjective), Verdict::kNotCounted);
  auto late_good = streamed(0.1, 20, 1.0);
  late_good.code = kClientGone;
  EXPECT_EQ(judge(late_good, kObjective), Verdict::kAttained);
  auto late_slow = streamed(0.1, 3, 1.0);
  late_slow.code = kClientGone;
  EXPECT_EQ(judge(late_slow, kObjective), Verdict::kMissed);
}

// Given a service without objectives; expects only errors to miss.
TEST(Attainment, WithoutObjectives) {
  EXPECT_EQ(judge(streamed(9, 2, 99), Objective{}), Verdict::kAttained);
  EXPECT_EQ(judge(ended(200, 99, false), Objective{}), Verdict::kAttained);
  EXPECT_EQ(judge(ended(500, 1), Objective{}), Verdict::kMissed);
  EXPECT_EQ(judge(ended(kClientGone, 9), Objective{}), Verdict::kNotCounted);
}

// Given n tokens; expects TPOT to be the mean of the n - 1 gaps, and none with fewer than two visible tokens.
TEST(Attainment, TimePerOutputToken) {
  EXPECT_NEAR(*time_per_output_token_s(streamed(0.1, 5, 0.5)), 0.1, 1e-9);
  EXPECT_EQ(time_per_output_token_s(streamed(0.1, 1, 0.1)), std::nullopt);
  EXPECT_EQ(time_per_output_token_s(ended(200, 1)), std::nullopt);
}

}  // namespace
}  // namespace windlass::gateway
