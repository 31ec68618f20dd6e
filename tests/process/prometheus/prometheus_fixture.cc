// Implements prometheus_fixture.h.
#include "tests/process/prometheus/prometheus_fixture.h"

#include <filesystem>

#include <fmt/format.h>

#include "tests/cluster/harness/load.h"
#include "tests/cluster/harness/process.h"
#include "tests/cluster/harness/wait.h"
#include "tests/free_port.h"
#include "tests/paths.h"

namespace windlass::testing {
namespace {

using nlohmann::json;
using std::chrono::seconds;

constexpr int kGpus = 5;

bool installed(const std::string& program) { return run_command({program, "--version"}).ok(); }

// Shared by all cases; `error` says why it cannot be used.
struct Shared {
  std::unique_ptr<LocalSystem> system;
  std::string error;
  std::string worker;
  std::string prometheus_url;
  bool absent = false;         // Prometheus is not installed
  std::unique_ptr<Load> load;  // a few requests per second to "zealous" during the test cases
};

void write_object(const LocalSystem& system, const std::string& name, const json& object) {
  write_text_file(system.file(name + ".new"), object.dump(2));
  std::filesystem::rename(system.file(name + ".new"), system.file("store/objects/" + name + ".yaml"));
}

json service_named(const LocalSystem& system, const std::string& name, int workers) {
  json object = system.model_service(workers, workers);
  object["metadata"]["name"] = name;
  object["spec"]["model"]["servedName"] = name;
  return object;
}

// Starts everything in `shared` step by step; returns an error message if that fails.
std::string bring_up(Shared& shared) {
  auto made = LocalSystem::make(build_path());
  if (!made.ok()) return made.error().message;
  shared.system = std::move(made).value();
  LocalSystem& system = *shared.system;
  system.write_service(system.model_service(1, 1));
  const auto started = system.start(kGpus);
  if (!started.ok()) return started.error().message;
  if (!eventually(seconds(60), [&] { return system.serving().size() == 1; })) {
    return "the routing table has no worker" + system.logs();
  }
  shared.worker = system.serving()[0];
  json broken = service_named(system, "broken", 1);
  broken["spec"]["engine"] = {{"args", json::array({"--no-such-flag"})}};
  write_object(system, "broken", broken);
  json hopeless = service_named(system, "hopeless", 1);
  hopeless["spec"]["slo"] = {{"timeToFirstToken", "0.01ms"}, {"timePerOutputToken", "0.01ms"}};
  write_object(system, "hopeless", hopeless);
  write_object(system, "zealous", service_named(system, "zealous", 1));
  const auto desired = [&] {
    return sample(http_get("http://" + system.controller() + "/metrics").body, "windlass_controller_desired_workers",
                  {{"name", "zealous"}})
        .value;
  };
  if (!eventually(seconds(60), [&] { return desired() == 1; })) return "zealous is not planned" + system.logs();
  // From one worker to more than this machine has accelerators for: one change of plan, one refusal.
  write_object(system, "zealous", service_named(system, "zealous", kGpus));
  if (!eventually(seconds(60), [&] { return desired() >= 2; })) return "zealous does not grow" + system.logs();

  const std::string address = fmt::format("127.0.0.1:{}", free_port());
  shared.prometheus_url = "http://" + address;
  write_text_file(system.file("prometheus.yml"),
                  fmt::format(R"yaml(
global: {{scrape_interval: 500ms, scrape_timeout: 500ms, evaluation_interval: 1s}}
rule_files: ["{}"]
scrape_configs:
- job_name: controller
  honor_labels: true
  static_configs: [{{targets: ["{}"]}}]
- job_name: gateway
  static_configs: [{{targets: ["{}"]}}]
- job_name: worker
  static_configs: [{{targets: ["{}"]}}]
)yaml",
                              kRulesFile, system.controller(), system.gateway_admin(), shared.worker));
  const auto prometheus = system.start_program(
      "prometheus", {"prometheus", "--config.file=" + system.file("prometheus.yml"),
                     "--storage.tsdb.path=" + system.file("tsdb"), "--web.listen-address=" + address, "--log.level=warn"});
  const auto all_up = [&] {
    const json answer = http_get(shared.prometheus_url + "/api/v1/query?query=" + url_escape("count(up == 1)")).json();
    const json::json_pointer value("/data/result/0/value/1");
    return answer.is_object() && answer.contains(value) && answer.at(value) == "3";
  };
  // A scrape before the requests, so that rate() sees them arrive.
  if (!prometheus.ok() || !eventually(seconds(60), all_up)) {
    return "Prometheus does not see all three programs up" + system.logs();
  }
  LoadOptions load;
  load.url = "http://" + system.gateway();
  load.model = "tiny";
  load.threads = 2;
  load.max_requests = kRequests;
  load.max_tokens = kTokens;
  load.stream = true;
  Load requests(load);
  if (!eventually(seconds(60), [&] { return requests.finished(); })) return "the requests do not end" + system.logs();
  const LoadReport report = requests.stop();
  if (report.answered != kRequests) return report.describe() + system.logs();
  load.model = "zealous";
  load.threads = 1;
  load.max_requests = 0;
  load.pause_s = 0.3;
  shared.load = std::make_unique<Load>(load);
  return "";
}

std::unique_ptr<Shared>& shared() {
  static std::unique_ptr<Shared> instance;
  return instance;
}

// Ends the shared programs before static objects are destroyed.
class SharedPrograms : public ::testing::Environment {
 public:
  void TearDown() override { shared().reset(); }
};
const auto* const kSharedPrograms = ::testing::AddGlobalTestEnvironment(new SharedPrograms);

}  // namespace

void PrometheusTest::SetUp() {
  if (!shared()) {
    shared() = std::make_unique<Shared>();
    shared()->absent = !installed("prometheus") || !installed("promtool");
    if (!shared()->absent) shared()->error = bring_up(*shared());
  }
  if (shared()->absent) GTEST_SKIP() << "prometheus is not installed (scripts/setup installs it)";
  ASSERT_EQ(shared()->error, "");
}

json PrometheusTest::api(const std::string& path) { return http_get(shared()->prometheus_url + path).json(); }

json PrometheusTest::result_of(const std::string& query) {
  const json answer = api("/api/v1/query?query=" + url_escape(query));
  const json::json_pointer result("/data/result");
  if (answer.is_object() && answer.contains(result)) return answer.at(result);
  return answer.is_object() ? answer.value("error", "no answer") : "no answer";
}

Sample PrometheusTest::ask(const std::string& query) {
  const json result = result_of(query);
  const json::json_pointer value("/0/value/1");
  if (!result.is_array() || !result.contains(value)) return {};
  return {true, std::stod(result.at(value).get<std::string>())};
}

bool PrometheusTest::becomes(const std::string& query, double wanted) {
  return eventually(seconds(30), [&] {
    const Sample answer = ask(query);
    return answer.found && answer.value == wanted;
  });
}

const LocalSystem& PrometheusTest::system() { return *shared()->system; }
const std::string& PrometheusTest::worker() { return shared()->worker; }

}  // namespace windlass::testing
