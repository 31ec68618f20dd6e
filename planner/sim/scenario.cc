// See scenario.h.
#include "planner/sim/scenario.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "planner/base/yaml_reader.h"
#include "planner/sim/scenario_models.h"
#include "planner/sim/scenario_requests.h"

namespace windlass::sim {
namespace {

// BLOOM's ALiBi positions have no table: what the catalog gives is the length it was trained on, not a limit.
std::optional<int> context_limit(const ScenarioModel& model, const planner::ModelShape& shape) {
  if (model.max_context_tokens) return model.max_context_tokens;
  if (shape.architecture == "bloom") return std::nullopt;
  return shape.max_context_tokens;
}

}  // namespace

const char* to_string(LatencySource source) {
  switch (source) {
    case LatencySource::kProfile: return "profile";
    case LatencySource::kLinear: return "linear";
    case LatencySource::kDistServe: return "distserve";
    case LatencySource::kOperators: return "operators";
    case LatencySource::kRoofline: return "roofline";
  }
  return "";
}

std::vector<ScenarioFile> files_of(const Scenario& scenario) {
  std::vector<ScenarioFile> files;
  const auto add = [&](const std::string& path, const char* field, int line, const char* what) {
    if (path.empty()) return;
    for (const ScenarioFile& file : files) {
      if (file.path == path) return;
    }
    files.push_back({path, field, line, what});
  };
  add(scenario.model.config_file, "model.config", scenario.model.line, "a Hugging Face config.json");
  const bool distserve = scenario.latency.source == LatencySource::kDistServe;
  // Operators: a folder of tables, or a PerformanceProfile.
  const bool folder = scenario.latency.source == LatencySource::kOperators && !scenario.latency.file.ends_with(".yaml") &&
                      !scenario.latency.file.ends_with(".yml") && !scenario.latency.file.ends_with(".json");
  if (folder) {
    for (const char* name : kOperatorFiles) {
      add(scenario.latency.file + "/" + name, "latency.file", scenario.latency.line,
          "a folder with the operator tables of one accelerator, each a CSV file, gzipped or not");
    }
  } else {
    add(scenario.latency.file, "latency.file", scenario.latency.line,
        distserve ? "a profiler-*.json file of DistServe" : "a PerformanceProfile, or a CSV file with Splitwise's columns");
  }
  add(scenario.latency.capacities_file, "latency.capacities", scenario.latency.line,
      "a CSV file with model,tp,pp,max_num_tokens");
  add(scenario.workload.trace_file, "workload.trace", scenario.workload.line,
      "a CSV file with TIMESTAMP,ContextTokens,GeneratedTokens");
  add(scenario.workload.lengths_file, "workload.lengths", scenario.workload.line,
      "a CSV file with num_prefill_tokens and num_decode_tokens");
  return files;
}

struct PreparedScenario::Parts {
  Scenario scenario;
  planner::ModelShape shape;
  std::optional<ScenarioRequests> requests;
  std::vector<WorkerModel> models;  // of each pool
  WorkerModel reference;            // none: no model
  KvLink link;
};

PreparedScenario::PreparedScenario(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
PreparedScenario::PreparedScenario(PreparedScenario&&) noexcept = default;
PreparedScenario& PreparedScenario::operator=(PreparedScenario&&) noexcept = default;
PreparedScenario::~PreparedScenario() = default;

Result<PreparedScenario> PreparedScenario::make(Scenario given, const std::map<std::string, std::string>& texts) {
  auto parts = std::make_unique<Parts>();
  parts->scenario = std::move(given);
  Scenario& scenario = parts->scenario;
  const auto text_of = [&](const std::string& path) {
    const auto text = texts.find(path);
    return text == texts.end() ? std::string_view() : std::string_view(text->second);
  };
  if (scenario.model.shape) {
    parts->shape = *scenario.model.shape;
  } else {
    auto shape = planner::model_shape_from_config_json(text_of(scenario.model.config_file));
    if (!shape.ok()) return shape.error().within(scenario.model.config_file);
    parts->shape = std::move(shape).value();
  }
  const ScenarioWorkload& workload = scenario.workload;
  const std::string_view lengths = text_of(workload.trace_file.empty() ? workload.lengths_file : workload.trace_file);
  WINDLASS_ASSIGN_OR_RETURN(parts->requests,
                            ScenarioRequests::make(scenario, lengths, context_limit(scenario.model, parts->shape)));

  for (std::size_t i = 0; i < scenario.pools.size(); ++i) {
    const ScenarioPool& pool = scenario.pools[i];
    for (std::size_t j = 0; j < i; ++j) {
      if (scenario.pools[j].accelerator == pool.accelerator && scenario.pools[j].gpus_per_worker == pool.gpus_per_worker) {
        parts->models.push_back(parts->models[j]);
        break;
      }
    }
    if (parts->models.size() > i) continue;
    WINDLASS_ASSIGN_OR_RETURN(auto model, worker_model(scenario, parts->shape, texts, pool.accelerator, pool.gpus_per_worker,
                                                       fmt::format("cluster.pools[{}]", i), pool.line));
    parts->models.push_back(std::move(model));
  }
  if (const auto& reference = scenario.slowdown_reference) {
    WINDLASS_ASSIGN_OR_RETURN(parts->reference, worker_model(scenario, parts->shape, texts, reference->accelerator,
                                                             reference->gpus_per_worker, "slowdownReference", reference->line));
  }

  if (scenario.pools.front().role != WorkerRole::kUnified) {
    double bandwidth = std::numeric_limits<double>::infinity(), latency_s = 0;
    for (const ScenarioPool& pool : scenario.pools) {
      bandwidth = std::min(bandwidth, pool.gpus_per_worker * pool.accelerator.inter_link_bandwidth_bytes_per_s);
      latency_s = std::max(latency_s, pool.accelerator.inter_link_latency_s);
    }
    if (!scenario.link.bandwidth_bytes_per_s) {
      if (!(bandwidth > 0)) {
        return Error{
            ErrorCode::kInvalidArgument,
            fmt::format("{}:{}: cluster.link.bandwidthGBps: missing, and the catalog knows no network of these accelerators",
                        scenario.source, scenario.pools.front().line)};
      }
      scenario.link.bandwidth_bytes_per_s = bandwidth;
      scenario.defaults.push_back(
          fmt::format("cluster.link.bandwidthGBps: {:.6g} (the slower side's network)", bandwidth / 1e9));
    }
    if (!scenario.link.latency_s) {
      scenario.link.latency_s = latency_s;
      scenario.defaults.push_back("cluster.link.latency: " + duration_text(latency_s));
    }
    parts->link.path.bandwidth_bytes_per_s = *scenario.link.bandwidth_bytes_per_s;
    parts->link.path.latency_s = *scenario.link.latency_s;
    parts->link.kv_bytes_per_token = planner::kv_bytes_per_token(parts->shape);
    parts->link.path.layers = scenario.link.layer_wise ? parts->shape.layers : 0;
  }
  return PreparedScenario(std::move(parts));
}

const Scenario& PreparedScenario::scenario() const { return parts_->scenario; }

ServingOptions PreparedScenario::options(std::uint64_t seed) const {
  const Scenario& scenario = parts_->scenario;
  ServingOptions options;
  for (std::size_t i = 0; i < scenario.pools.size(); ++i) {
    const ScenarioPool& from = scenario.pools[i];
    ServingPool pool;
    pool.role = from.role;
    pool.workers = from.workers;
    pool.model = parts_->models[i].model.get();
    pool.engine = scenario.engine;
    pool.engine.kv_blocks = static_cast<std::int64_t>(parts_->models[i].kv_capacity_tokens) / pool.engine.block_tokens;
    // Splitwise's mixed pool batches prompts and decodes together; workers that are not in it have only one of the two.
    if (scenario.mixed_pool_threshold_tokens && pool.engine.batching == Batching::kVllm)
      pool.engine.batching = Batching::kMixed;
    pool.gpus_per_worker = from.gpus_per_worker;
    pool.price_per_gpu_hour = from.price_per_gpu_hour;
    pool.power_per_gpu_watts = from.accelerator.power_watts;
    options.pools.push_back(pool);
  }
  options.link = parts_->link;
  options.dispatch = scenario.dispatch;
  options.mixed_pool_threshold_tokens = scenario.mixed_pool_threshold_tokens;
  if (scenario.slo) {
    constexpr double kAny_s = std::numeric_limits<double>::infinity();
    options.objectives = ServingObjectives{scenario.slo->ttft_s.value_or(kAny_s), scenario.slo->tpot_s.value_or(kAny_s)};
  }
  options.slowdown_reference = parts_->reference.model.get();
  options.seed = seed;
  if (scenario.workload.duration_s) options.arrivals_end_s = *scenario.workload.duration_s;
  if (scenario.workload.requests) options.max_requests = *scenario.workload.requests;
  return options;
}

std::unique_ptr<workload::RequestSource> PreparedScenario::source(std::uint64_t seed, double rate_factor) const {
  return parts_->requests->source(seed, rate_factor);
}

double PreparedScenario::requests_per_second() const { return parts_->requests->rate_per_s(); }

double PreparedScenario::expected_requests() const {
  const ScenarioWorkload& workload = parts_->scenario.workload;
  double requests =
      workload.duration_s ? *workload.duration_s * requests_per_second() : std::numeric_limits<double>::infinity();
  if (workload.requests) requests = std::min(requests, static_cast<double>(*workload.requests));
  if (workload.arrivals == ArrivalKind::kTrace && (workload.scale_time || !std::isfinite(requests))) {
    requests = std::min(requests, static_cast<double>(parts_->requests->trace_rows()));
  }
  return requests;
}

double PreparedScenario::expected_duration_s() const {
  const double by_requests = expected_requests() / requests_per_second();
  return parts_->scenario.workload.duration_s ? std::min(*parts_->scenario.workload.duration_s, by_requests) : by_requests;
}

bool PreparedScenario::rate_is_free() const { return parts_->requests->rate_is_free(); }

bool PreparedScenario::random() const {
  const auto& dispatch = parts_->scenario.dispatch;
  return parts_->requests->random() ||
         (dispatch && (*dispatch == dispatch::PolicyKind::kRandom || *dispatch == dispatch::PolicyKind::kJiq));
}

std::vector<std::string> PreparedScenario::bases() const {
  std::vector<std::string> lines;
  const Scenario& scenario = parts_->scenario;
  for (std::size_t i = 0; i < scenario.pools.size(); ++i) {
    const ScenarioPool& pool = scenario.pools[i];
    lines.push_back(fmt::format("{} x {} worker{} of {} x {}: {}", pool.workers, to_string(pool.role),
                                pool.workers == 1 ? "" : "s", pool.gpus_per_worker, pool.accelerator.name,
                                parts_->models[i].basis));
  }
  if (scenario.slowdown_reference) {
    lines.push_back(fmt::format("slowdowns relative to a request alone on {} x {}: {}",
                                scenario.slowdown_reference->gpus_per_worker, scenario.slowdown_reference->accelerator.name,
                                parts_->reference.basis));
  }
  return lines;
}

}  // namespace windlass::sim
