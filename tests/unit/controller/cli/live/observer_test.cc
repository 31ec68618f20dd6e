// Tests what `windlass top` and `windlass up` read, over a fake transport: the controller's decision and both pages of every
// gateway.
#include "controller/cli/live/observer.h"

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "metrics/bundles.h"
#include "metrics/latency_bins.h"
#include "planner/policy/json.h"

namespace windlass::cli {
namespace {

using testing::HasSubstr;

// Answers by URL; 404 for any other.
class Answers final : public kube::HttpTransport {
 public:
  explicit Answers(const std::map<std::string, std::string>& by_url) : by_url_(by_url) {}

  Result<kube::HttpResponse> send(const kube::HttpRequest& request) override {
    const auto found = by_url_.find(request.url);
    return found == by_url_.end() ? kube::HttpResponse{404, {}, ""} : kube::HttpResponse{200, {}, found->second};
  }
  Result<std::unique_ptr<kube::HttpStream>> stream(const kube::HttpRequest&) override {
    return Error{ErrorCode::kUnavailable, "no streams here"};
  }

 private:
  const std::map<std::string, std::string>& by_url_;
};

// Given a gateway with a TPOT of 1.7 ms, with its page of fine bins and without it (an older version); expects a value within
// 2 %, and a bound of 2 ms.
TEST(Observer, ReadsTheFineBinsWhereThereAreSome) {
  planner::Snapshot snapshot;
  snapshot.now_s = 100;
  snapshot.services.resize(1);
  snapshot.services[0].id = {"default", "tiny", "uid"};
  snapshot.services[0].served_name = "tiny-model";
  snapshot.services[0].slo = {2, 0.1, 95, 60};
  for (const bool fine : {true, false}) {
    std::map<std::string, std::string> pages = {{"http://c/v1/snapshot", planner::to_json(snapshot)},
                                                {"http://c/v1/plan", planner::to_json(planner::Plan{})}};
    Observer observer(Endpoints{"http://c", "", {"http://g"}}, std::make_unique<Answers>(pages));
    metrics::Registry registry;
    metrics::GatewayMetrics gateway(registry);
    metrics::LatencyBins bins;
    const auto histogram = gateway.time_per_output_token.with({{"model", "tiny-model"}});
    LiveView view;
    for (int look = 0; look < 2; ++look) {
      for (int i = 0; i < 20 * look; ++i) {
        histogram.observe(0.0017);
        bins.observe(0.0017);
      }
      pages["http://g/metrics"] = registry.exposition();
      std::string latencies;
      bins.write(latencies, metrics::kGatewayTpot, "tiny-model");
      if (fine) pages["http://g/latencies"] = latencies;
      const auto seen = observer.observe(10 * look, view);
      ASSERT_TRUE(seen.ok()) << seen.error().message;
    }
    EXPECT_THAT(table_text(view.rows()), HasSubstr(fine ? " 1.71ms/100ms" : " <2ms/100ms"));
  }
}

}  // namespace
}  // namespace windlass::cli
