// The real Prometheus scrapes a controller, a gateway and a worker that serve requests, and is asked what it saw.
//
// All cases share one set of programs: the controller in its local form starts the worker, the gateway sends it a known number
// of requests, Prometheus reads all three.
#include <cmath>
#include <memory>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/cluster/harness/http.h"
#include "tests/cluster/harness/load.h"
#include "tests/cluster/harness/local_system.h"
#include "tests/cluster/harness/process.h"
#include "tests/cluster/harness/wait.h"

namespace windlass::testing {
namespace {

using nlohmann::json;
using std::chrono::seconds;

constexpr int kRequests = 20;
constexpr int kTokens = 8;

bool installed(const std::string& program) { return run_command({program, "--version"}).ok(); }

class PrometheusTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite();
  static void TearDownTestSuite() { shared_.reset(); }

  void SetUp() override {
    if (!installed("prometheus") || !installed("promtool"))
      GTEST_SKIP() << "prometheus is not installed (scripts/setup installs it)";
    ASSERT_EQ(shared_->error, "");
  }

  // The first value of an instant query; nothing where the answer is empty.
  static Sample ask(const std::string& query) {
    const json body = http_get(shared_->prometheus_url + "/api/v1/query?query=" + url_escape(query)).json();
    const json::json_pointer value("/data/result/0/value/1");
    if (!body.is_object() || !body.contains(value)) return {};
    return {true, std::stod(body.at(value).get<std::string>())};
  }
  // Waits until a query answers `wanted`: what was counted before is there with the next scrape.
  static bool becomes(const std::string& query, double wanted) {
    return eventually(seconds(30), [&] {
      const Sample answer = ask(query);
      return answer.found && answer.value == wanted;
    });
  }

  static void bring_up();

  // What the cases share; `error` says why it is of no use.
  struct Shared {
    std::unique_ptr<LocalSystem> system;
    std::string error;
    std::string worker;  // host:port
    std::string prometheus_url;
  };
  static std::unique_ptr<Shared> shared_;
};

std::unique_ptr<PrometheusTest::Shared> PrometheusTest::shared_;

void PrometheusTest::SetUpTestSuite() {
  shared_ = std::make_unique<Shared>();
  if (installed("prometheus") && installed("promtool")) bring_up();
}

void PrometheusTest::bring_up() {
  auto made = LocalSystem::make(WINDLASS_BINARY_DIR);
  if (!made.ok()) {
    shared_->error = made.error().message;
    return;
  }
  shared_->system = std::move(made).value();
  LocalSystem& system = *shared_->system;
  system.write_service(system.model_service(1, 1));
  const auto started = system.start(1);
  if (!started.ok()) {
    shared_->error = started.error().message;
    return;
  }
  if (!eventually(seconds(60), [&] { return system.serving().size() == 1; })) {
    shared_->error = "the routing table has no worker" + system.logs();
    return;
  }
  shared_->worker = system.serving()[0];

  const std::string address = fmt::format("127.0.0.1:{}", free_port());
  shared_->prometheus_url = "http://" + address;
  write_text_file(system.file("prometheus.yml"), fmt::format(R"yaml(
global: {{scrape_interval: 500ms, scrape_timeout: 500ms}}
scrape_configs:
- job_name: controller
  static_configs: [{{targets: ["{}"]}}]
- job_name: gateway
  static_configs: [{{targets: ["{}"]}}]
- job_name: worker
  static_configs: [{{targets: ["{}"]}}]
)yaml",
                                                             system.controller(), system.gateway_admin(), shared_->worker));
  const auto prometheus = system.start_program(
      "prometheus", {"prometheus", "--config.file=" + system.file("prometheus.yml"),
                     "--storage.tsdb.path=" + system.file("tsdb"), "--web.listen-address=" + address, "--log.level=warn"});
  // A scrape before the requests, so that rate() sees them arrive.
  if (!prometheus.ok() || !eventually(seconds(60), [] { return ask("count(up == 1)").value == 3; })) {
    shared_->error = "Prometheus does not see all three programs up" + system.logs();
    return;
  }
  LoadOptions load;
  load.url = "http://" + system.gateway();
  load.model = "tiny";
  load.threads = 2;
  load.max_requests = kRequests;
  load.max_tokens = kTokens;
  load.stream = true;
  Load requests(load);
  if (!eventually(seconds(60), [&] { return requests.finished(); })) shared_->error = "the requests do not end" + system.logs();
  const LoadReport report = requests.stop();
  if (report.answered != kRequests) shared_->error = report.describe() + system.logs();
}

// Given the three programs, Prometheus scrapes each of them without an error.
TEST_F(PrometheusTest, EveryProgramIsUp) {
  for (const char* job : {"controller", "gateway", "worker"}) {
    EXPECT_EQ(ask(fmt::format("up{{job=\"{}\"}}", job)).value, 1) << job;
  }
}

// Given twenty streamed requests, the counters of the gateway and of the worker say so: arrivals, ends, tokens.
TEST_F(PrometheusTest, CountersAddUp) {
  EXPECT_TRUE(becomes("sum(windlass_gateway_requests_started_total{model=\"tiny\"})", kRequests));
  EXPECT_TRUE(becomes("sum(windlass_gateway_requests_finished_total{model=\"tiny\",code=\"200\"})", kRequests));
  EXPECT_TRUE(becomes("sum(windlass_gateway_requests_judged_total{model=\"tiny\"})", kRequests));
  EXPECT_TRUE(becomes("sum(windlass_worker_requests_finished_total{model=\"tiny\"})", kRequests));
  const Sample tokens = ask("sum(windlass_worker_generation_tokens_total{model=\"tiny\"})");
  EXPECT_GT(tokens.value, 0);
  EXPECT_LE(tokens.value, kRequests * kTokens);
  EXPECT_GT(ask("sum(windlass_worker_prompt_tokens_total{model=\"tiny\"})").value, 0);
}

// Given the same requests, the histograms give quantiles as a dashboard asks for them, and the worker's times are not above the
// gateway's, which hold them.
TEST_F(PrometheusTest, HistogramsGiveQuantiles) {
  ASSERT_TRUE(becomes("sum(windlass_worker_time_to_first_token_seconds_count{model=\"tiny\"})", kRequests));
  ASSERT_TRUE(becomes("sum(windlass_gateway_time_to_first_token_seconds_count{model=\"tiny\"})", kRequests));
  for (const char* name : {"windlass_worker_time_to_first_token_seconds", "windlass_worker_time_per_output_token_seconds",
                           "windlass_worker_e2e_request_latency_seconds", "windlass_gateway_time_to_first_token_seconds"}) {
    const Sample quantile =
        ask(fmt::format("histogram_quantile(0.95, sum by (le) (rate({}_bucket{{model=\"tiny\"}}[2m])))", name));
    EXPECT_TRUE(quantile.found) << name;
    EXPECT_TRUE(std::isfinite(quantile.value) && quantile.value > 0) << name << ": " << quantile.value;
  }
  EXPECT_LE(ask("sum(windlass_worker_time_to_first_token_seconds_sum)").value,
            ask("sum(windlass_gateway_time_to_first_token_seconds_sum)").value);
}

// Given a controller that has planned, its gauges tell how many workers it wants and has.
TEST_F(PrometheusTest, ControllerTellsItsPlan) {
  EXPECT_TRUE(becomes("sum(windlass_controller_desired_workers{namespace=\"default\",name=\"tiny\"})", 1));
  EXPECT_TRUE(becomes("sum(windlass_controller_ready_workers{namespace=\"default\",name=\"tiny\"})", 1));
  EXPECT_EQ(ask("windlass_controller_leader").value, 1);
  EXPECT_GT(ask("sum(windlass_controller_reconcile_duration_seconds_count)").value, 0);
}

// Given what each program exposes, `promtool check metrics` finds nothing to say against it.
TEST_F(PrometheusTest, PromtoolAcceptsTheExposition) {
  for (const std::string& target : {shared_->system->controller(), shared_->system->gateway_admin(), shared_->worker}) {
    const HttpAnswer exposed = http_get("http://" + target + "/metrics");
    ASSERT_EQ(exposed.status, 200) << target;
    ASSERT_NE(exposed.body.find("windlass_"), std::string::npos) << target;
    const CommandResult checked = run_command({"promtool", "check", "metrics"}, exposed.body);
    EXPECT_TRUE(checked.ok()) << target << ": " << checked.describe();
  }
}

}  // namespace
}  // namespace windlass::testing
