// The chart's dashboards and alerts against a real run: a real Prometheus evaluates every panel's query and every alert's
// expression, and each returns data; promtool accepts the rules and runs their unit tests.
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/cluster/harness/process.h"
#include "tests/cluster/harness/wait.h"
#include "tests/paths.h"
#include "tests/process/prometheus/prometheus_fixture.h"

namespace windlass::testing {
namespace {

using nlohmann::json;
using std::chrono::seconds;
namespace fs = std::filesystem;

const std::string kDashboards = source_path("/charts/windlass/files/dashboards");

// Metrics that need a failure, a cluster or a longer run than this one; docs/metrics.md lists them.
const std::set<std::string> kNotInThisRun = {
    "windlass_controller_api_requests_total",      "windlass_controller_calibration_error_ratio",
    "windlass_controller_calibration_scale_ratio", "windlass_controller_reconcile_errors_total",
    "windlass_controller_scrape_errors_total",     "windlass_controller_unreadable_objects",
    "windlass_gateway_upstream_errors_total"};

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += by.size()) text.replace(at, what.size(), by);
  return text;
}

// A panel's query with the dashboard's variables filled in, like Grafana does for "All" in a young installation.
std::string filled_in(std::string query) {
  for (const char* variable : {"$namespace", "$name", "$model"}) query = replaced(query, variable, ".*");
  return replaced(replaced(query, "$__rate_interval", "5m"), "$__range", "5m");
}

// An alert's expression with its comparisons changed to "bool", so that it returns 0 or 1 instead of nothing.
std::string with_bool(std::string expression) {
  for (const char* sign : {">", "<", "=="}) {
    for (const char* end : {" ", "\n"}) {
      expression = replaced(expression, fmt::format(" {}{}", sign, end), fmt::format(" {} bool{}", sign, end));
    }
  }
  return expression;
}

struct Query {
  std::string where;  // "services.json, SLO attainment"
  std::string text;
};

std::vector<json> dashboards() {
  std::vector<json> result;
  for (const auto& entry : fs::directory_iterator(kDashboards)) {
    result.push_back(json::parse(read_text_file(entry.path().string())));
  }
  return result;
}

std::vector<Query> panel_queries() {
  std::vector<Query> result;
  for (const json& dashboard : dashboards()) {
    for (const json& panel : dashboard.at("panels")) {
      const json targets = panel.value("targets", json::array());
      for (const json& target : targets) {
        result.push_back({dashboard.value("title", "") + ", " + panel.value("title", ""), target.value("expr", "")});
      }
    }
  }
  return result;
}

// The windlass_* names in a text.
std::set<std::string> metric_names(const std::string& text) {
  std::set<std::string> names;
  for (std::size_t at = 0; (at = text.find("windlass_", at)) != std::string::npos;) {
    std::size_t end = at;
    while (end < text.size() && (std::isalnum(static_cast<unsigned char>(text[end])) != 0 || text[end] == '_')) ++end;
    names.insert(text.substr(at, end - at));
    at = end;
  }
  return names;
}

class MonitoringTest : public PrometheusTest {
 protected:
  static json rules() {
    json result = json::array();
    const json answer = api("/api/v1/rules");
    const json::json_pointer groups("/data/groups");
    if (!answer.is_object() || !answer.contains(groups)) return result;
    for (const json& group : answer.at(groups)) {
      for (const json& rule : group.at("rules")) result.push_back(rule);
    }
    return result;
  }

  // Repeats all queries until each has returned data; returns those that never did.
  static std::vector<Query> without_data(std::vector<Query> queries) {
    (void)eventually(
        seconds(60),
        [&] {
          std::erase_if(queries, [](const Query& query) {
            const json result = result_of(query.text);
            return result.is_array() && !result.empty();
          });
          return queries.empty();
        },
        seconds(1));
    return queries;
  }

  static void expect_data(std::vector<Query> queries) {
    for (const Query& query : without_data(std::move(queries))) {
      ADD_FAILURE() << query.where << " returns nothing: " << query.text << "\n" << result_of(query.text);
    }
  }
};

// Given the chart's rules; expects promtool to accept them and its unit tests of the alerts to pass.
TEST_F(MonitoringTest, PromtoolAcceptsTheRules) {
  const CommandResult checked = run_command({"promtool", "check", "rules", kRulesFile});
  EXPECT_TRUE(checked.ok()) << checked.describe();
  const CommandResult tested =
      run_command({"promtool", "test", "rules", source_path("/tests/process/prometheus/rules_test.yaml")});
  EXPECT_TRUE(tested.ok()) << tested.describe();
}

// Given a Prometheus with the rules loaded; expects each to be evaluated without error, recorded series to have data, and every
// alert's expression to have data when changed to return 0 instead of nothing.
TEST_F(MonitoringTest, EveryRuleHasData) {
  ASSERT_TRUE(eventually(seconds(30), [] {
    const json all = rules();
    return !all.empty() && std::all_of(all.begin(), all.end(), [](const json& rule) { return rule["health"] != "unknown"; });
  }));
  std::vector<Query> queries;
  int alerts = 0;
  for (const json& rule : rules()) {
    EXPECT_EQ(rule["health"], "ok") << rule.dump(1);
    const bool alert = rule["type"] == "alerting";
    alerts += alert ? 1 : 0;
    queries.push_back({rule.value("name", ""), alert ? with_bool(rule.value("query", "")) : rule.value("query", "")});
  }
  EXPECT_GE(alerts, 9);
  expect_data(std::move(queries));
}

// Given a service that wants more accelerators than exist, one whose worker does not start, and one with an unreachable
// objective; expects pending alerts that name them, and none for the healthy service, except that a burst may want more workers
// than its maxWorkers.
TEST_F(MonitoringTest, AlertsNameTheService) {
  EXPECT_TRUE(eventually(seconds(60), [] { return ask("count(ALERTS{alertname='WindlassGPUStarved',name='zealous'})").found; }))
      << result_of("windlass_controller_denied_workers");
  EXPECT_TRUE(
      eventually(seconds(60), [] { return ask("count(ALERTS{alertname='WindlassWorkersFailing',name='broken'})").found; }));
  EXPECT_TRUE(
      eventually(seconds(60), [] { return ask("count(ALERTS{alertname='WindlassInfeasible',name='hopeless'})").found; }));
  EXPECT_EQ(result_of("ALERTS{name='tiny',reason!='MaxWorkers'}"), json::array());
}

// Given the dashboards; expects every panel's query to return data.
TEST_F(MonitoringTest, EveryPanelHasData) {
  std::vector<Query> queries = panel_queries();
  EXPECT_GE(queries.size(), 40U);
  for (Query& query : queries) query.text = filled_in(query.text);
  // The latency model's correction is learned only after minutes of steady load.
  const std::size_t learnt = std::erase_if(
      queries, [](const Query& query) { return query.text.find("windlass_controller_calibration_") != std::string::npos; });
  EXPECT_EQ(learnt, 2U);
  expect_data(std::move(queries));
}

// Given the dashboards' variables; expects each to list values, so its metric has the label.
TEST_F(MonitoringTest, EveryVariableHasValues) {
  int variables = 0;
  for (const json& dashboard : dashboards()) {
    for (const json& variable : dashboard.at("templating").at("list")) {
      if (variable.value("type", "") != "query") continue;
      ++variables;
      const std::string query = variable.at("query").value("query", "");
      const std::size_t comma = query.rfind(", ");
      ASSERT_EQ(query.rfind("label_values(", 0), 0U) << query;
      ASSERT_NE(comma, std::string::npos) << query;
      const std::string series = filled_in(query.substr(13, comma - 13));
      const std::string label = query.substr(comma + 2, query.size() - comma - 3);
      EXPECT_TRUE(eventually(seconds(30), [&] { return ask(fmt::format("count by ({}) ({})", label, series)).found; }))
          << query;
    }
  }
  EXPECT_EQ(variables, 3);
}

// Given every metric named by rules and dashboards; expects Prometheus to have series of it. The exceptions, which need other
// failures, are listed in docs/metrics.md.
TEST_F(MonitoringTest, EveryNameExists) {
  std::string text = read_text_file(kRulesFile);
  for (const Query& query : panel_queries()) text += "\n" + query.text;
  const std::string docs = read_text_file(source_path("/docs/metrics.md"));
  std::vector<Query> queries;
  for (const std::string& name : metric_names(text)) {
    if (kNotInThisRun.contains(name)) {
      EXPECT_NE(docs.find("`" + name + "`"), std::string::npos) << name;
    } else {
      queries.push_back({name, fmt::format("count({})", name)});
    }
  }
  EXPECT_GE(queries.size(), 30U);
  expect_data(std::move(queries));
}

}  // namespace
}  // namespace windlass::testing
