// Reads the sections that only plans have: search, network and limits. See scenario_sections.h.
#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "planner/whatif/scenario_sections.h"

namespace windlass::sim {
namespace {

using Plan = search::PlanScenario;
using Network = search::PlanNetwork;
using search::KindSpace;
using search::Limit;

constexpr std::size_t kMaxDegrees = 32;
constexpr int kMaxDegree = 1024;
constexpr std::size_t kMaxLimits = 32;
constexpr std::array kMetrics = {"ttft", "tpot", "e2e", "schedulingDelay", "ttftSlowdown", "tbtSlowdown", "e2eSlowdown"};
constexpr std::array kPercentiles = {"50", "90", "95", "99"};
constexpr std::array kPercents = {50.0, 90.0, 95.0, 99.0};

// Degrees of parallelism, ascending and without duplicates.
struct Degrees {
  [[nodiscard]] std::vector<int> read(YamlReader& reader, const char* key) const {
    const std::string of = fmt::format("whole numbers from 1 to {}", kMaxDegree);
    std::vector<int> degrees;
    const YamlValue* list = reader.list(key, 1, kMaxDegrees, of, true);
    for (std::size_t i = 0; list != nullptr && i < list->items.size(); ++i) {
      const YamlValue& item = list->items[i];
      const double number = plain_number(item).value_or(0);
      if (!(1 <= number && number <= kMaxDegree && number == static_cast<int>(number))) {
        reader.refuse(key, item, fmt::format("a list of 1 to {} {}", kMaxDegrees, of));
        return degrees;
      }
      degrees.push_back(static_cast<int>(number));
    }
    std::sort(degrees.begin(), degrees.end());
    degrees.erase(std::unique(degrees.begin(), degrees.end()), degrees.end());
    return degrees;
  }
};

auto degrees(const char* key, std::vector<int> KindSpace::*member) {
  return yaml::Field<KindSpace, std::vector<int>, Degrees>{key, member, {}};
}

void read_percentile(YamlReader& reader, Limit& limit) {
  limit.percentile = kPercents[reader.choice("percentile", kPercentiles, 2)];
}

void read_most(YamlReader& reader, Limit& limit, Reading& reading) {
  if (!is_slowdown(limit.metric)) {
    return duration("most", &Limit::most, {1e-6, kYear_s}).required().read(reader, limit, reading);
  }
  number("most", &Limit::most, {1, 1e6}).required().read(reader, limit, reading);
  if (reading.service->slowdown_reference) return;
  reader.wrong("metric", fmt::format("must not be a slowdown without slowdownReference (got {})", to_string(limit.metric)));
}

}  // namespace

void read_search(YamlReader& parent, Reading& reading) {
  static const auto kSearch = section("search", map(part(&Plan::space, degrees("tensorParallel", &KindSpace::tensor_parallel),
                                                         degrees("pipelineStages", &KindSpace::pipeline_stages),
                                                         whole("maxGpusPerWorker", &KindSpace::max_gpus, 1, 1024)),
                                                    whole("maxGpus", &Plan::max_gpus, 1, kMaxWorkers),
                                                    number("maxCostPerHour", &Plan::max_cost_per_hour, kBudget),
                                                    whole("requestsPerTrial", &Plan::requests_per_trial, 100, 10'000'000)));
  kSearch.read(parent, reading.plan(), reading);
}

void read_network(YamlReader& parent, Reading& reading) {
  static const auto kNetwork = section("network", &Plan::network,
                                       map(number("withinNodeGBps", &Network::within_node_bytes_per_s, kGBps, kGiga),
                                           number("betweenNodesGBps", &Network::between_nodes_bytes_per_s, kGBps, kGiga),
                                           duration("withinNodeLatency", &Network::within_node_latency_s, kLatency_s),
                                           duration("betweenNodesLatency", &Network::between_nodes_latency_s, kLatency_s),
                                           choice("transfer", &Network::layer_wise, kTransfers)));
  kNetwork.read(parent, reading.plan(), reading);
}

void read_limits(YamlReader& parent, Reading& reading) {
  static const auto kLimits =
      list("limits", &Plan::limits, kMaxLimits, "maps with metric, percentile and most",
           map(choice("metric", &Limit::metric, kMetrics).required(), hook(read_percentile), hook(read_most)));
  kLimits.read(parent, reading.plan(), reading);
}

}  // namespace windlass::sim
