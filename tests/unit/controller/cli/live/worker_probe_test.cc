// Tests what is read from a worker's pages, and the line fitted to transfers. Transfers between real workers are tested in
// tests/process/worker/parallel/split_test.cc.
#include "controller/cli/live/worker_probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace windlass::cli {
namespace {

using ::testing::HasSubstr;

// A worker with a single answer.
class OneAnswer final : public kube::HttpTransport {
 public:
  OneAnswer(int status, std::string body) : answer_{status, {}, std::move(body)} {}

  Result<kube::HttpResponse> send(const kube::HttpRequest& request) override {
    asked = request.url;
    return answer_;
  }
  Result<std::unique_ptr<kube::HttpStream>> stream(const kube::HttpRequest&) override { return Error{}; }

  std::string asked;

 private:
  const kube::HttpResponse answer_;
};

// Given one model; expects its name. Given none, several, an error status or no JSON; expects an error that says so.
TEST(WorkerProbe, TheOnlyModel) {
  OneAnswer one(200, R"({"object":"list","data":[{"id":"tiny","object":"model"}]})");
  EXPECT_EQ(only_model(one, "http://w:1").value(), "tiny");
  EXPECT_EQ(one.asked, "http://w:1/v1/models");
  OneAnswer two(200, R"({"data":[{"id":"a"},{"id":"b"}]})");
  EXPECT_EQ(only_model(two, "http://w:1").error().message, "--model: must be one of a, b (got none)");
  for (const char* body : {R"({"data":[]})", R"({"data":[{"id":3},7]})", R"([])", "<html>"}) {
    OneAnswer none(200, body);
    const auto found = only_model(none, "http://w:1");
    ASSERT_FALSE(found.ok()) << body;
    EXPECT_EQ(found.error().code, ErrorCode::kInvalidArgument);
  }
  OneAnswer failing(503, "");
  EXPECT_EQ(only_model(failing, "http://w:1").error().code, ErrorCode::kUnavailable);
}

// Given a worker's metrics; expects its blocks in tokens. Given pages without them, or with impossible values; expects nothing.
TEST(WorkerProbe, KvCapacity) {
  const auto tokens = [](const std::string& text) { return kv_capacity_tokens(metrics::parse_exposition(text).value()); };
  EXPECT_EQ(tokens("windlass_worker_kv_cache_blocks{model=\"tiny\"} 512\n"), 8192);
  EXPECT_EQ(tokens("other 512\n"), std::nullopt);
  EXPECT_EQ(tokens("windlass_worker_kv_cache_blocks{model=\"tiny\"} 0\n"), std::nullopt);
  EXPECT_EQ(tokens("windlass_worker_kv_cache_blocks{model=\"tiny\"} NaN\n"), std::nullopt);
  OneAnswer broken(200, "no page {");
  EXPECT_THAT(metrics_of(broken, "http://w:1").error().message, HasSubstr("http://w:1/metrics"));
}

// Given transfers on a line; expects that line. If it would cross below 0, expects a line through 0; for one size, or if larger
// transfers were no slower, the mean rate. The bytes per token come from samples with a token count.
TEST(WorkerProbe, TheLineThroughTransfers) {
  std::vector<TransferSample> samples;
  for (const double bytes : {1e6, 2e6, 2e6, 8e6}) samples.push_back({bytes, 3e-3 + bytes / 2e9, bytes / 512});
  samples.back().tokens = 0;
  const planner::MeasuredTransfer line = fit_transfers(samples);
  EXPECT_NEAR(line.bandwidth_bytes_per_s, 2e9, 1);
  EXPECT_NEAR(line.latency_s, 3e-3, 1e-12);
  EXPECT_NEAR(line.bytes_per_token, 512, 1e-9);
  EXPECT_EQ(line.samples, 4);
  EXPECT_THAT(to_text(line, samples), HasSubstr("4 of 1 to 8 MB: 2 GB/s, latency 3 ms, 512 bytes per token"));
  const planner::MeasuredTransfer steep = fit_transfers({{1e6, 1e-3}, {2e6, 4e-3}});
  EXPECT_EQ(steep.latency_s, 0);
  EXPECT_EQ(steep.bytes_per_token, 0);
  EXPECT_NEAR(steep.bandwidth_bytes_per_s, 5e12 / 9e3, 1);
  for (const auto& odd : {std::vector<TransferSample>{{1e6, 1e-3}, {1e6, 3e-3}},
                          {{1e6, 3e-3}, {1.5e6, 2e-3}},
                          {{5e6, 1e-2}},
                          {{1e6, 4e-3}, {3e6, 4e-3 + 1e-10}}}) {
    const planner::MeasuredTransfer mean = fit_transfers(odd);
    EXPECT_EQ(mean.latency_s, 0);
    EXPECT_NEAR(mean.bandwidth_bytes_per_s, 5e8, 10);
  }
}

}  // namespace
}  // namespace windlass::cli
