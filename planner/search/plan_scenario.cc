// See plan_scenario.h.
#include "planner/search/plan_scenario.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "planner/base/yaml_reader.h"
#include "planner/search/drawn_requests.h"
#include "planner/sim/scenario_models.h"
#include "planner/sim/scenario_requests.h"
#include "planner/sim/scenario_yaml_service.h"

namespace windlass::search {
namespace {

constexpr std::size_t kMostDegrees = 32;
constexpr std::size_t kMostLimits = 32;

// A scenario's requests at any rate.
class ScenarioRequestsAt final : public Requests {
 public:
  explicit ScenarioRequestsAt(sim::ScenarioRequests requests) : requests_(std::move(requests)) {}

  [[nodiscard]] std::unique_ptr<workload::RequestSource> source(std::uint64_t seed, double requests_per_s,
                                                                std::int64_t count) const override {
    return std::make_unique<CountedSource>(requests_.source(seed, requests_per_s / requests_.rate_per_s()), count);
  }
  [[nodiscard]] double mean_input_tokens() const override { return requests_.mean_input_tokens(); }
  [[nodiscard]] double mean_output_tokens() const override { return requests_.mean_output_tokens(); }

 private:
  sim::ScenarioRequests requests_;
};

class Parser {
 public:
  explicit Parser(const std::string& source) { plan_.scenario.source = source; }

  Result<PlanScenario> parse(const YamlValue& root) {
    YamlReader reader(root, "", mistake_);
    sim::Scenario& scenario = plan_.scenario;
    if (reader.find("seed") == nullptr) scenario.defaults.emplace_back("seed: 0");
    scenario.seed = static_cast<std::uint64_t>(reader.whole("seed", 0, std::int64_t{1} << 53, 0));
    for (const char* key : {"services", "cluster"}) {
      if (const auto* found = reader.find(key)) {
        reader.refuse(key, *found, "nothing: a plan is of one model, and chooses the cluster among `accelerators`");
      }
    }
    sim::ScenarioService& service = scenario.services.emplace_back();
    service.line = reader.line();
    sim::ServiceReader(service, scenario.defaults, mistake_).read_for_plan(reader);
    if (const auto* search = reader.find("search")) read_search(*search);
    if (const auto* network = reader.find("network")) read_network(*network);
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
  std::vector<int> read_degrees(YamlReader& reader, const char* key, std::vector<int> otherwise) {
    const YamlValue* list = reader.find(key);
    if (list == nullptr) return otherwise;
    const std::string allowed = fmt::format("a list of 1 to {} whole numbers from 1 to 1024", kMostDegrees);
    if (list->kind != YamlValue::Kind::kList || list->items.empty() || list->items.size() > kMostDegrees) {
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
    if (reader.find("maxGpus") != nullptr) plan_.max_gpus = static_cast<int>(reader.whole("maxGpus", 1, sim::kMostWorkers));
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
    if (value.kind != YamlValue::Kind::kList || value.items.empty() || value.items.size() > kMostLimits) {
      parent.refuse("limits", value, fmt::format("a list of 1 to {} maps with metric, percentile and most", kMostLimits));
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

// The slowest of the accelerators' own; 0 where the catalog knows none.
template <class Of>
double slowest(const Problem& problem, const Of& of) {
  double least = std::numeric_limits<double>::infinity();
  for (const AcceleratorChoice& choice : problem.accelerators) least = std::min(least, of(choice.spec));
  return least;
}

Result<void> set_network(Problem& problem, const PlanScenario& plan, std::vector<std::string>& defaults) {
  const PlanNetwork& network = plan.network;
  const auto told = [&](const char* key, double bytes_per_s) {
    defaults.push_back(fmt::format("network.{}: {:.6g} (the slowest accelerator's)", key, bytes_per_s / 1e9));
    return bytes_per_s;
  };
  const auto highest_latency = [&](double planner::AcceleratorSpec::*member) {
    double highest = 0;
    for (const AcceleratorChoice& choice : problem.accelerators) highest = std::max(highest, choice.spec.*member);
    return highest;
  };
  using Spec = planner::AcceleratorSpec;
  const double within = slowest(problem, [](const Spec& spec) { return spec.intra_link_bandwidth_bytes_per_s; });
  const double between = slowest(problem, [](const Spec& spec) { return spec.inter_link_bandwidth_bytes_per_s; });
  const int layers = network.layer_wise ? problem.shape.layers : 0;
  problem.within_node.bandwidth_bytes_per_s =
      network.within_node_bytes_per_s ? *network.within_node_bytes_per_s : told("withinNodeGBps", within);
  problem.within_node.latency_s = network.within_node_latency_s.value_or(highest_latency(&Spec::intra_link_latency_s));
  problem.within_node.layers = layers;
  if (!network.between_nodes_bytes_per_s && !(between > 0)) {
    return Error{
        ErrorCode::kInvalidArgument,
        fmt::format("{}: network.betweenNodesGBps: missing, and the catalog knows no network of one of the accelerators",
                    plan.scenario.source)};
  }
  problem.between_nodes.bandwidth_bytes_per_s =
      network.between_nodes_bytes_per_s ? *network.between_nodes_bytes_per_s : told("betweenNodesGBps", between);
  problem.between_nodes.latency_s = network.between_nodes_latency_s.value_or(highest_latency(&Spec::inter_link_latency_s));
  problem.between_nodes.layers = layers;
  return {};
}

}  // namespace

Result<PlanScenario> parse_plan_scenario(std::string_view yaml, const std::string& source) {
  WINDLASS_ASSIGN_OR_RETURN(const YamlValue root, parse_yaml_tree(yaml, source));
  return Parser(source).parse(root);
}

Result<PreparedProblem> PreparedProblem::make(PlanScenario plan, const std::map<std::string, std::string>& texts) {
  PreparedProblem made;
  Problem& problem = made.problem_;
  const std::string source = plan.scenario.source;
  sim::ScenarioService& service = plan.scenario.services.front();
  const auto text_of = [&](const std::string& path) {
    const auto text = texts.find(path);
    return text == texts.end() ? std::string_view() : std::string_view(text->second);
  };
  problem.name = source;
  problem.seed = plan.scenario.seed;
  if (service.model.shape) {
    problem.shape = *service.model.shape;
  } else {
    auto shape = planner::model_shape_from_config_json(text_of(service.model.config_file));
    if (!shape.ok()) return shape.error().within(service.model.config_file);
    problem.shape = std::move(shape).value();
  }
  problem.requests_per_trial = plan.requests_per_trial.value_or(service.workload.requests.value_or(problem.requests_per_trial));
  // Trials end by their number of requests.
  service.workload.requests.reset();
  service.workload.duration_s.reset();
  const std::string& lengths =
      service.workload.trace_file.empty() ? service.workload.lengths_file : service.workload.trace_file;
  WINDLASS_ASSIGN_OR_RETURN(auto requests, sim::ScenarioRequests::make(plan.scenario, service, text_of(lengths),
                                                                       sim::context_limit(service.model, problem.shape)));
  if (!requests.rate_is_free()) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{}:{}: workload: found requests that all come at once, allowed are some with a rate", source,
                             service.workload.line)};
  }
  problem.requests_per_s = requests.rate_per_s();
  made.requests_ = std::make_unique<ScenarioRequestsAt>(std::move(requests));
  problem.requests = made.requests_.get();

  for (const sim::ScenarioPool& pool : service.pools) {
    AcceleratorChoice choice{pool.accelerator};
    if (pool.workers < sim::kMostWorkers) choice.gpus = pool.workers;
    choice.spec.price_per_hour = pool.price_per_gpu_hour;
    problem.accelerators.push_back(std::move(choice));
  }
  const auto model_of = [&](const planner::AcceleratorSpec& spec, int tensor_parallel, int stages) -> Result<KindModel> {
    sim::ScenarioService of = service;
    of.latency.pipeline_parallel = stages;
    const bool splits = of.latency.source != sim::LatencySource::kProfile && of.latency.source != sim::LatencySource::kLinear;
    if (stages > 1 && !splits) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("latency.source {} knows no pipeline stages", sim::to_string(of.latency.source))};
    }
    const sim::ScenarioPool* pool = nullptr;
    for (const sim::ScenarioPool& each : service.pools) {
      if (each.accelerator.name == spec.name) pool = &each;
    }
    WINDLASS_ASSIGN_OR_RETURN(auto worker, sim::worker_model(source, of, problem.shape, texts, pool->accelerator,
                                                             tensor_parallel * stages, "accelerators", pool->line));
    return KindModel{std::move(worker.model), worker.kv_capacity_tokens};
  };
  Kinds kinds = worker_kinds(problem.shape, problem.accelerators, plan.space, model_of);
  problem.kinds = std::move(kinds.kinds);
  problem.unfit = std::move(kinds.unfit);
  if (const auto& reference = service.slowdown_reference) {
    WINDLASS_ASSIGN_OR_RETURN(auto worker, sim::worker_model(source, service, problem.shape, texts, reference->accelerator,
                                                             reference->gpus_per_worker, "slowdownReference", reference->line));
    problem.slowdown_reference = std::move(worker.model);
  }
  made.defaults_ = plan.scenario.defaults;
  WINDLASS_RETURN_IF_ERROR(set_network(problem, plan, made.defaults_));
  if (service.slo) {
    constexpr double kAny_s = std::numeric_limits<double>::infinity();
    problem.objectives.both =
        sim::ServingObjectives{service.slo->ttft_s.value_or(kAny_s), service.slo->tpot_s.value_or(kAny_s)};
    problem.objectives.attainment = service.slo->percentile / 100;
  }
  problem.objectives.limits = plan.limits;
  problem.engine = service.engine;
  problem.max_gpus = plan.max_gpus.value_or(problem.max_gpus);
  problem.max_cost_per_hour = plan.max_cost_per_hour.value_or(problem.max_cost_per_hour);
  WINDLASS_RETURN_IF_ERROR(validate(problem));
  return made;
}

}  // namespace windlass::search
