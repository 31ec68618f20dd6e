// See plan_scenario_yaml.h.
#include "planner/whatif/plan_scenario_yaml.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <utility>

#include <fmt/format.h>

#include "planner/whatif/scenario_yaml_service.h"

namespace windlass::search {
namespace {

constexpr std::size_t kMaxDegrees = 32;
constexpr std::size_t kMaxLimits = 32;

class Parser {
 public:
  explicit Parser(const std::string& source) { plan_.scenario.source = source; }

  Result<PlanScenario> parse(const YamlValue& root, const AcceleratorsElsewhere* elsewhere) {
    YamlReader reader(root, "", mistake_);
    sim::Scenario& scenario = plan_.scenario;
    if (reader.find("seed") == nullptr) scenario.defaults.emplace_back("seed: 0");
    scenario.seed = static_cast<std::uint64_t>(reader.whole("seed", 0, std::int64_t{1} << 53, 0));
    sim::ScenarioService& service = scenario.services.emplace_back();
    service.line = reader.line();
    sim::ServiceReader parts(service, scenario.defaults, mistake_);
    if (elsewhere == nullptr) {
      refuse(reader, "nothing: a plan is of one model, and chooses the cluster among `accelerators`", {"services", "cluster"});
      parts.read_for_plan(reader);
    } else {
      refuse(reader, fmt::format("nothing: a plan is of one model, and `{}` says what it may use", elsewhere->field),
             {"services", "accelerators", "network"});
      plan_.accelerators_field = elsewhere->field;
      parts.read_for_plan(reader, elsewhere->field, [&] {
        AcceleratorsElsewhere::Found found = elsewhere->read(reader, scenario.defaults, mistake_);
        plan_.network = found.network;
        return std::move(found.accelerators);
      });
    }
    if (const auto* search = reader.find("search")) read_search(*search);
    if (const auto* network = reader.find("network"); network != nullptr && elsewhere == nullptr) read_network(*network);
    if (const auto* limits = reader.find("limits")) read_limits(reader, *limits);
    reader.finish();
    if (mistake_.what.empty() && !service.slo && plan_.limits.empty()) {
      mistake_.keep(reader.line(),
                    "slo: missing, allowed is a map with timeToFirstToken, timePerOutputToken or both, or `limits`");
    }
    if (!mistake_.what.empty()) return mistake_.error(scenario.source);
    return std::move(plan_);
  }

 private:
  static void refuse(YamlReader& reader, const std::string& allowed, std::initializer_list<const char*> keys) {
    for (const char* key : keys) {
      if (const auto* found = reader.find(key)) reader.refuse(key, *found, allowed);
    }
  }

  std::vector<int> read_degrees(YamlReader& reader, const char* key, std::vector<int> otherwise) {
    const YamlValue* list = reader.find(key);
    if (list == nullptr) return otherwise;
    const std::string allowed = fmt::format("a list of 1 to {} whole numbers from 1 to 1024", kMaxDegrees);
    if (list->kind != YamlValue::Kind::kList || list->items.empty() || list->items.size() > kMaxDegrees) {
      reader.refuse(key, *list, allowed);
      return otherwise;
    }
    std::vector<int> degrees;
    for (const YamlValue& item : list->items) {
      const auto number = plain_number(item);
      if (!number || *number < 1 || *number > 1024 || *number != static_cast<int>(*number)) {
        reader.refuse(key, item, allowed);
        return otherwise;
      }
      degrees.push_back(static_cast<int>(*number));
    }
    std::sort(degrees.begin(), degrees.end());
    degrees.erase(std::unique(degrees.begin(), degrees.end()), degrees.end());
    return degrees;
  }

  void read_search(const YamlValue& value) {
    YamlReader reader(value, "search", mistake_);
    plan_.space.tensor_parallel = read_degrees(reader, "tensorParallel", {});
    plan_.space.pipeline_stages = read_degrees(reader, "pipelineStages", {1});
    if (reader.find("maxGpusPerWorker") != nullptr) {
      plan_.space.most_gpus = static_cast<int>(reader.whole("maxGpusPerWorker", 1, 1024));
    }
    if (reader.find("maxGpus") != nullptr) plan_.max_gpus = static_cast<int>(reader.whole("maxGpus", 1, sim::kMaxWorkers));
    if (reader.find("maxCostPerHour") != nullptr) plan_.max_cost_per_hour = reader.number("maxCostPerHour", {1e-6, 1e9});
    if (reader.find("requestsPerTrial") != nullptr) {
      plan_.requests_per_trial = reader.whole("requestsPerTrial", 100, 10'000'000);
    }
    reader.finish();
  }

  void read_network(const YamlValue& value) {
    static constexpr std::array kTransfers = {"serialised", "layerwise"};
    YamlReader reader(value, "network", mistake_);
    PlanNetwork& network = plan_.network;
    const auto gbps = [&](const char* key, std::optional<double>& out) {
      if (reader.find(key) != nullptr) out = 1e9 * reader.number(key, {1e-6, 1e6});
    };
    const auto latency = [&](const char* key, std::optional<double>& out) {
      if (reader.find(key) != nullptr) out = reader.duration_s(key, {0, 60});
    };
    gbps("withinNodeGBps", network.within_node_bytes_per_s);
    gbps("betweenNodesGBps", network.between_nodes_bytes_per_s);
    latency("withinNodeLatency", network.within_node_latency_s);
    latency("betweenNodesLatency", network.between_nodes_latency_s);
    network.layer_wise = reader.choice("transfer", kTransfers, 0) == 1;
    reader.finish();
  }

  void read_limits(YamlReader& parent, const YamlValue& value) {
    static constexpr std::array kMetrics = {"ttft",         "tpot",        "e2e",        "schedulingDelay",
                                            "ttftSlowdown", "tbtSlowdown", "e2eSlowdown"};
    static constexpr std::array kPercentiles = {"50", "90", "95", "99"};
    static constexpr std::array kNumbers = {50.0, 90.0, 95.0, 99.0};
    if (value.kind != YamlValue::Kind::kList || value.items.empty() || value.items.size() > kMaxLimits) {
      parent.refuse("limits", value, fmt::format("a list of 1 to {} maps with metric, percentile and most", kMaxLimits));
      return;
    }
    const bool reference = plan_.scenario.services.front().slowdown_reference.has_value();
    for (std::size_t i = 0; i < value.items.size() && mistake_.what.empty(); ++i) {
      YamlReader reader(value.items[i], fmt::format("limits[{}]", i), mistake_);
      Limit limit;
      limit.metric = static_cast<Metric>(reader.choice("metric", kMetrics));
      limit.percentile = kNumbers[reader.choice("percentile", kPercentiles, 2)];
      if (is_slowdown(limit.metric)) {
        limit.most = reader.number("most", {1, 1e6});
        if (!reference) {
          mistake_.keep(reader.line(), fmt::format("limits[{}].metric: found {} without slowdownReference, allowed is with one",
                                                   i, to_string(limit.metric)));
        }
      } else {
        limit.most = reader.duration_s("most", {1e-6, sim::kYear_s});
      }
      reader.finish();
      plan_.limits.push_back(limit);
    }
  }

  PlanScenario plan_;
  YamlMistake mistake_;
};

}  // namespace

Result<PlanScenario> read_plan_scenario(const YamlValue& root, const std::string& source,
                                        const AcceleratorsElsewhere* elsewhere) {
  return Parser(source).parse(root, elsewhere);
}

Result<PlanScenario> parse_plan_scenario(std::string_view yaml, const std::string& source) {
  WINDLASS_ASSIGN_OR_RETURN(const YamlValue root, parse_yaml_tree(yaml, source));
  return read_plan_scenario(root, source, nullptr);
}

}  // namespace windlass::search
