// Demand through the real Prometheus: it scrapes a real gateway; a controller with --prometheus-url decides by it, and the
// test's own reader sends the same queries.
//
// All cases share one set of programs.
#include <chrono>
#include <cmath>
#include <csignal>
#include <memory>
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "controller/kube/curl_transport.h"
#include "controller/reconcile/promql_demand.h"
#include "metrics/exposition_parser.h"
#include "tests/cluster/harness/http.h"
#include "tests/cluster/harness/load.h"
#include "tests/cluster/harness/local_system.h"
#include "tests/cluster/harness/process.h"
#include "tests/cluster/harness/wait.h"
#include "tests/free_port.h"
#include "tests/paths.h"

namespace windlass::testing {
namespace {

using std::chrono::seconds;

constexpr int kRequests = 20;
constexpr int kTokens = 8;
constexpr double kRateWindowS = 60;

double monotonic_s() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

bool installed(const std::string& program) { return run_command({program, "--version"}).ok(); }

class PromqlTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite();
  static void TearDownTestSuite() { shared_.reset(); }

  void SetUp() override {
    if (!installed("prometheus")) GTEST_SKIP() << "prometheus is not installed (scripts/setup installs it)";
    ASSERT_EQ(shared_->error, "");
  }

  static controller::PromqlOptions options() {
    controller::PromqlOptions options;
    options.server = shared_->prometheus;
    options.period_s = 0.1;
    options.rate_window_s = kRateWindowS;
    return options;
  }
  // A metric of the controller; NaN if it does not exist.
  static double controller_says(const std::string& name, const std::map<std::string, std::string>& labels) {
    const auto page = metrics::parse_exposition(http_get("http://" + shared_->system->controller() + "/metrics").body);
    if (!page.ok()) return std::nan("");
    const auto found = page->find(name, labels);
    return found.size() == 1 ? found[0]->value : std::nan("");
  }

  struct Shared {
    std::unique_ptr<LocalSystem> system;
    std::string prometheus;
    std::string error;
  };
  static void bring_up();
  static std::unique_ptr<Shared> shared_;

  kube::CurlTransport transport_{kube::CurlOptions{}};
  metrics::Registry registry_;
  metrics::ControllerMetrics metrics_{registry_};
};

std::unique_ptr<PromqlTest::Shared> PromqlTest::shared_;

void PromqlTest::SetUpTestSuite() {
  shared_ = std::make_unique<Shared>();
  if (installed("prometheus")) bring_up();
}

void PromqlTest::bring_up() {
  auto made = LocalSystem::make(build_path());
  if (!made.ok()) {
    shared_->error = made.error().message;
    return;
  }
  shared_->system = std::move(made).value();
  LocalSystem& system = *shared_->system;
  system.write_service(system.model_service(1, 1));
  const std::string address = fmt::format("127.0.0.1:{}", free_port());
  shared_->prometheus = "http://" + address;
  const auto started = system.start(
      1, {"--prometheus-url=" + shared_->prometheus, "--prometheus-period=500ms", "--prometheus-selector=job=\"gateway\""});
  if (!started.ok()) {
    shared_->error = started.error().message;
    return;
  }
  write_text_file(system.file("prometheus.yml"), fmt::format(R"yaml(
global: {{scrape_interval: 500ms, scrape_timeout: 500ms}}
scrape_configs:
- job_name: gateway
  static_configs: [{{targets: ["{}"]}}]
)yaml",
                                                             system.gateway_admin()));
  const auto prometheus = system.start_program(
      "prometheus", {"prometheus", "--config.file=" + system.file("prometheus.yml"),
                     "--storage.tsdb.path=" + system.file("tsdb"), "--web.listen-address=" + address, "--log.level=warn"});
  if (!prometheus.ok() || !eventually(seconds(60), [&] { return system.serving().size() == 1; }))
    shared_->error = "the routing table has no worker" + system.logs();
}

// Given a controller that knows its demand only from Prometheus; expects fresh arrivals and queue.
TEST_F(PromqlTest, ControllerReadsItsDemandFromPrometheus) {
  const std::map<std::string, std::string> arrivals = {{"name", "tiny"}, {"signal", "arrivals"}, {"state", "fresh"}};
  const std::map<std::string, std::string> queued = {{"name", "tiny"}, {"signal", "queued"}, {"state", "fresh"}};
  EXPECT_TRUE(eventually(seconds(30), [&] {
    return controller_says("windlass_controller_signal_state", arrivals) == 1 &&
           controller_says("windlass_controller_signal_state", queued) == 1;
  })) << shared_->system->logs();
}

// Given twenty streamed requests; expects the demand from Prometheus to contain them, with their lengths, TTFT and attainment,
// each dated by Prometheus' last scrape.
TEST_F(PromqlTest, DemandMatchesTheRequests) {
  controller::PromqlDemand demand(transport_, metrics_, options());
  const controller::ServiceQuery query{"tiny", 300, 95};
  const auto now = [&] {
    demand.refresh({query}, 1, monotonic_s());
    return demand.demand(query);
  };
  ASSERT_TRUE(eventually(seconds(30), [&] { return now().arrivals_total.has_value(); })) << demand.problem();
  const double before = now().arrivals_total->value;
  LoadOptions load;
  load.url = "http://" + shared_->system->gateway();
  load.model = "tiny";
  load.threads = 2;
  load.max_requests = kRequests;
  load.max_tokens = kTokens;
  load.stream = true;
  Load requests(load);
  ASSERT_TRUE(eventually(seconds(60), [&] { return requests.finished(); })) << shared_->system->logs();
  const LoadReport report = requests.stop();
  ASSERT_EQ(report.answered, kRequests) << report.describe();
  EXPECT_TRUE(eventually(seconds(30), [&] { return now().arrivals_total->value == before + kRequests; }))
      << now().arrivals_total->value << " after " << before;
  EXPECT_TRUE(eventually(seconds(30), [&] {
    const planner::Demand got = now();
    return got.arrivals_per_s && got.arrivals_per_s->value > 0 && got.ttft_s && got.ttft_s->value > 0 && got.attainment &&
           got.output_tokens && got.input_tokens;
  })) << demand.problem();
  const planner::Demand got = now();
  ASSERT_TRUE(got.output_tokens && got.attainment && got.queued && got.last_arrival_at_s);
  EXPECT_LE(got.output_tokens->value, kTokens * (1 + 1e-9));
  EXPECT_GE(got.attainment->value, 0);
  EXPECT_LE(got.attainment->value, 1);
  EXPECT_EQ(got.queued->value, 0);
  EXPECT_LE(got.queued->at_s, monotonic_s());
}

// Given a query that Prometheus rejects, and a server that does not listen; expects both errors with the original message, and
// no demand.
TEST_F(PromqlTest, FailuresKeepTheirOriginalMessage) {
  controller::PromqlOptions bad = options();
  bad.selector = "job=gateway";  // the quotes are missing
  controller::PromqlDemand refused(transport_, metrics_, bad);
  refused.refresh({{"tiny", 300, 95}}, 1, monotonic_s());
  EXPECT_THAT(refused.problem(), ::testing::HasSubstr("parse error"));
  EXPECT_FALSE(refused.demand({"tiny", 300, 95}).arrivals_per_s);
  bad = options();
  bad.server = fmt::format("http://127.0.0.1:{}", free_port());
  controller::PromqlDemand nobody(transport_, metrics_, bad);
  nobody.refresh({{"tiny", 300, 95}}, 1, monotonic_s());
  EXPECT_NE(nobody.problem(), "");
  EXPECT_FALSE(nobody.demand({"tiny", 300, 95}).queued);
}

// Given a Prometheus that ends; expects the controller's signals to age but to stay known.
TEST_F(PromqlTest, SignalsAgeWithoutPrometheus) {
  const std::map<std::string, std::string> labels = {{"name", "tiny"}, {"signal", "queued"}};
  ASSERT_TRUE(eventually(seconds(30), [&] { return controller_says("windlass_controller_signal_age_seconds", labels) >= 0; }));
  shared_->system->program("prometheus").signal(SIGKILL);
  EXPECT_TRUE(eventually(seconds(30), [&] { return controller_says("windlass_controller_signal_age_seconds", labels) > 5; }));
  EXPECT_GT(controller_says("windlass_controller_scrape_errors_total", {{"target_kind", "prometheus"}}), 0);
}

}  // namespace
}  // namespace windlass::testing
