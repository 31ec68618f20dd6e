// See scenario.h.
#include "planner/whatif/scenario.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "planner/base/yaml_reader.h"
#include "planner/deployment/pool_name.h"
#include "planner/perf/transfer_times.h"
#include "planner/whatif/scenario_models.h"
#include "planner/whatif/scenario_requests.h"
#include "planner/workload/composed_source.h"

namespace windlass::sim {

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
  for (const ScenarioService& service : scenario.services) {
    const ScenarioLatency& latency = service.latency;
    const auto add = [&](const std::string& path, const std::string& field, int line, const char* what) {
      if (path.empty()) return;
      for (const ScenarioFile& file : files) {
        if (file.path == path) return;
      }
      files.push_back({path, service.prefix + field, line, what});
    };
    const auto add_latency = [&](const std::string& path, const std::string& field) {
      // Operators come from a folder of tables or a PerformanceProfile.
      const bool folder = latency.source == LatencySource::kOperators && !path.ends_with(".yaml") && !path.ends_with(".yml") &&
                          !path.ends_with(".json");
      if (!folder) {
        add(path, field, latency.line,
            latency.source == LatencySource::kDistServe ? "a profiler-*.json file of DistServe"
                                                        : "a PerformanceProfile, or a CSV file with Splitwise's columns");
        return;
      }
      for (const char* name : planner::kOperatorFiles) {
        if (path.empty()) continue;
        add(path + "/" + name, field, latency.line,
            "a folder with the operator tables of one accelerator, each a CSV file, gzipped or not");
      }
    };
    add(service.model.config_file, "model.config", service.model.line, "a Hugging Face config.json");
    add_latency(latency.file, "latency.file");
    for (const auto& [accelerator, path] : latency.files) add_latency(path, "latency.files." + accelerator);
    add(latency.capacities_file, "latency.capacities", latency.line, "a CSV file with model,tp,pp,max_num_tokens");
    add(service.workload.trace_file, "workload.trace", service.workload.line,
        "a CSV file with TIMESTAMP,ContextTokens,GeneratedTokens");
    add(service.workload.lengths_file, "workload.lengths", service.workload.line,
        "a CSV file with num_prefill_tokens and num_decode_tokens");
  }
  return files;
}

namespace {

// One service with the content of its files.
struct PreparedService {
  planner::ModelShape shape;
  std::optional<ScenarioRequests> requests;
  std::vector<WorkerModel> models;  // one per pool
  WorkerModel reference;            // none: no model
  KvLink link;

  [[nodiscard]] ServingPool pool(const ScenarioService& service, const ScenarioPool& from, const WorkerModel& model,
                                 planner::End end) const;
  [[nodiscard]] ServingService options(const ScenarioService& from, planner::End end) const;
};

// The network between prefill and decode workers by their data sheets: the slower side's. Bandwidth 0: one side is unknown.
planner::KvTransferPath network_of(const ScenarioService& service) {
  planner::KvTransferPath network{std::numeric_limits<double>::infinity(), 0};
  for (const ScenarioPool& pool : service.pools) {
    network.bandwidth_bytes_per_s =
        std::min(network.bandwidth_bytes_per_s, pool.gpus_per_worker * pool.accelerator.inter_link_bandwidth_bytes_per_s);
    network.latency_s = std::max(network.latency_s, pool.accelerator.inter_link_latency_s);
  }
  return network;
}

// Bandwidth and latency of the link between prefill and decode workers. Defaults: as measured for the decode workers, otherwise
// the network.
Result<KvLink> kv_link(Scenario& scenario, ScenarioService& service, const planner::ModelShape& shape,
                       const std::vector<WorkerModel>& models) {
  KvLink link;
  if (service.pools.front().role == dispatch::Role::kUnified) return link;
  link.kv_bytes_per_token = planner::kv_bytes_per_token(shape);
  const planner::KvTransferPath network = network_of(service);
  std::optional<planner::KvTransferPath> measured;
  bool all_measured = true;
  for (std::size_t i = 0; i < service.pools.size(); ++i) {
    if (service.pools[i].role != dispatch::Role::kDecode) continue;
    all_measured = all_measured && models[i].transfer;
    if (!models[i].transfer) continue;
    const planner::KvTransferPath path = planner::path_of(*models[i].transfer, link.kv_bytes_per_token);
    measured = measured ? planner::slower_of(*measured, path) : path;
  }
  if (!service.link.bandwidth_bytes_per_s && !all_measured && !(network.bandwidth_bytes_per_s > 0)) {
    return Error{
        ErrorCode::kInvalidArgument,
        fmt::format("{}:{}: {}cluster.link.bandwidthGBps: must be set, because no network is known for these accelerators",
                    scenario.source, service.pools.front().line, service.prefix)};
  }
  planner::KvTransferPath path = measured.value_or(network);
  if (measured && !all_measured) path = planner::slower_of(*measured, network);
  const char* origin = !measured      ? "the slower side's network"
                       : all_measured ? "measured"
                                      : "the slower of measurement and network";
  if (!service.link.bandwidth_bytes_per_s) {
    service.link.bandwidth_bytes_per_s = path.bandwidth_bytes_per_s;
    scenario.defaults.push_back(
        fmt::format("{}cluster.link.bandwidthGBps: {:.6g} ({})", service.prefix, path.bandwidth_bytes_per_s / 1e9, origin));
  }
  if (!service.link.latency_s) {
    service.link.latency_s = path.latency_s;
    scenario.defaults.push_back(fmt::format("{}cluster.link.latency: {}{}", service.prefix, duration_text(path.latency_s),
                                            measured ? fmt::format(" ({})", origin) : ""));
  }
  link.path.bandwidth_bytes_per_s = *service.link.bandwidth_bytes_per_s;
  link.path.latency_s = *service.link.latency_s;
  link.path.layers = service.link.layer_wise ? shape.layers : 0;
  return link;
}

Result<PreparedService> prepare(Scenario& scenario, ScenarioService& service, const ScenarioTexts& texts,
                                ScenarioOperators& operators) {
  PreparedService made;
  const auto text_of = [&](const std::string& path) {
    const auto text = texts.find(path);
    return text == texts.end() ? std::string_view() : std::string_view(text->second);
  };
  if (service.model.shape) {
    made.shape = *service.model.shape;
  } else {
    auto shape = planner::model_shape_from_config_json(text_of(service.model.config_file));
    if (!shape.ok()) return shape.error().within(service.model.config_file);
    made.shape = std::move(shape).value();
  }
  const ScenarioWorkload& workload = service.workload;
  const std::string_view lengths = text_of(workload.trace_file.empty() ? workload.lengths_file : workload.trace_file);
  WINDLASS_ASSIGN_OR_RETURN(made.requests,
                            ScenarioRequests::make(scenario, service, lengths, context_limit(service.model, made.shape)));

  for (std::size_t i = 0; i < service.pools.size(); ++i) {
    const ScenarioPool& pool = service.pools[i];
    for (std::size_t j = 0; j < i; ++j) {
      if (service.pools[j].accelerator == pool.accelerator && service.pools[j].gpus_per_worker == pool.gpus_per_worker) {
        made.models.push_back(made.models[j]);
        break;
      }
    }
    if (made.models.size() > i) continue;
    WINDLASS_ASSIGN_OR_RETURN(auto model, worker_model(scenario.source, service, made.shape, texts, operators, pool.accelerator,
                                                       pool.gpus_per_worker, fmt::format("cluster.pools[{}]", i), pool.line));
    if (model.fitted) {  // the file decides these
      std::erase_if(scenario.defaults, [&](const std::string& told) {
        return told.starts_with(service.prefix + "latency.reading:") || told.starts_with(service.prefix + "latency.form:");
      });
    }
    made.models.push_back(std::move(model));
  }
  if (const auto& reference = service.slowdown_reference) {
    WINDLASS_ASSIGN_OR_RETURN(made.reference,
                              worker_model(scenario.source, service, made.shape, texts, operators, reference->accelerator,
                                           reference->gpus_per_worker, "slowdownReference", reference->line));
  }
  WINDLASS_ASSIGN_OR_RETURN(made.link, kv_link(scenario, service, made.shape, made.models));
  return made;
}

// The planner's name: "h100-80gb-8"; with two roles "prefill h100-80gb-8".
std::string pool_name(const ScenarioPool& pool) {
  const std::string kind = planner::pool_name(pool.accelerator.name, pool.gpus_per_worker);
  return pool.role == dispatch::Role::kUnified ? kind : fmt::format("{} {}", to_string(pool.role), kind);
}

ServingPool PreparedService::pool(const ScenarioService& service, const ScenarioPool& from, const WorkerModel& model,
                                  planner::End end) const {
  ServingPool pool;
  pool.name = pool_name(from);
  pool.spec.accelerator = from.accelerator.name;
  pool.role = from.role;
  pool.workers = from.workers;
  pool.model = at_end(model, end);
  pool.spec.engine = service.engine;
  pool.spec.engine.kv_blocks = static_cast<std::int64_t>(model.kv_capacity_tokens) / pool.spec.engine.block_tokens;
  // Splitwise's mixed pool batches prompts and decodes together; other workers have only one of the two.
  if (service.dispatch.mixed_pool_threshold_tokens && pool.spec.engine.batching == planner::Batching::kVllm)
    pool.spec.engine.batching = planner::Batching::kMixed;
  const double kv_bytes = planner::kv_bytes_per_token(shape);
  if (service.swap) {
    pool.spec.engine.host_blocks = static_cast<std::int64_t>(service.swap->bytes_per_gpu * from.gpus_per_worker /
                                                             (kv_bytes * pool.spec.engine.block_tokens));
    pool.swap_s_per_token = kv_bytes / (service.swap->bytes_per_s_per_gpu * from.gpus_per_worker);
  }
  pool.spec.pipeline_stages = service.latency.pipeline_parallel;
  pool.spec.tensor_parallel = from.gpus_per_worker / pool.spec.pipeline_stages;
  pool.price_per_gpu_hour = from.price_per_gpu_hour;
  pool.dispatch_weight = from.dispatch_weight;
  pool.power_per_gpu_watts = from.accelerator.power_watts;
  const planner::WeightsPath weights{service.start.weights_bytes_per_s, 0, service.start.engine_s};
  pool.start_s = service.start.image_pull_s +
                 planner::load_s(weights, planner::weight_bytes(shape) / from.gpus_per_worker, from.gpus_per_worker);
  pool.flops.per_token = planner::flops_per_token(shape);
  pool.flops.per_attended_token = planner::attention_flops_per_token(shape, 1);
  pool.flops.peak_per_s = from.gpus_per_worker * planner::peak_flops_for(from.accelerator, planner::compute_dtype(shape));
  return pool;
}

ServingService PreparedService::options(const ScenarioService& from, planner::End end) const {
  ServingService service;
  service.name = from.name;
  for (std::size_t i = 0; i < from.pools.size(); ++i) service.pools.push_back(pool(from, from.pools[i], models[i], end));
  service.link = link;
  service.dispatch = from.dispatch;
  if (from.slo) {
    constexpr double kAny_s = std::numeric_limits<double>::infinity();
    service.objectives = ServingObjectives{from.slo->ttft_s.value_or(kAny_s), from.slo->tpot_s.value_or(kAny_s)};
  }
  service.slowdown_reference = reference.model.get();
  return service;
}

// Whether the outcome of given requests depends on the seed.
bool draws(const ScenarioService& service) {
  const auto& dispatch = service.dispatch.policy;
  return service.dispatch.decode_choice == dispatch::DecodeChoice::kTwoChoice ||
         (service.dispatch.prediction && service.dispatch.prediction->accuracy < 1) ||
         (dispatch && (*dispatch == dispatch::PolicyKind::kRandom || *dispatch == dispatch::PolicyKind::kJiq));
}

}  // namespace

struct PreparedScenario::Parts {
  Scenario scenario;
  std::vector<PreparedService> services;
  ScenarioTexts texts;  // kept for an autoscaler, which may choose workers that the scenario does not begin with
};

namespace {

// The service as the controller would derive it from a ModelService.
planner::Service policy_service(const ScenarioService& from, const PreparedService& made) {
  planner::Service service;
  const std::string name = from.name.empty() ? "service" : from.name;
  service.id = {"default", name, name};
  service.served_name = name;
  service.shape = made.shape;
  service.engine = from.latency.engine;
  service.max_context_tokens = from.model.max_context_tokens.value_or(0);
  service.slo.ttft_s = *from.slo->ttft_s;
  service.slo.tpot_s = *from.slo->tpot_s;
  service.slo.percentile = from.slo->percentile;
  const ScenarioScaling& scaling = from.scaling;
  service.workload.requests_per_s = scaling.assumed_requests_per_s.value_or(made.requests->rate_per_s());
  service.workload.input_tokens = scaling.assumed_input_tokens.value_or(made.requests->mean_input_tokens());
  service.workload.output_tokens = scaling.assumed_output_tokens.value_or(made.requests->mean_output_tokens());
  for (const ScenarioPool& pool : from.pools) {
    const bool there = std::any_of(service.accelerators.begin(), service.accelerators.end(),
                                   [&](const auto& allowed) { return allowed.accelerator == pool.accelerator.name; });
    if (!there) service.accelerators.push_back({pool.accelerator.name, {}});
  }
  service.scaling.min_workers = scaling.min_workers;
  service.scaling.max_workers = scaling.max_workers;
  service.scaling.max_cost_per_hour = scaling.max_cost_per_hour;
  service.scaling.idle_to_zero_after_s = scaling.idle_to_zero_after_s;
  service.scaling.scale_up_stabilization_s = scaling.scale_up_stabilization_s;
  service.scaling.scale_down_stabilization_s = scaling.scale_down_stabilization_s;
  service.priority = scaling.priority;
  return service;
}

}  // namespace

PreparedScenario::PreparedScenario(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
PreparedScenario::PreparedScenario(PreparedScenario&&) noexcept = default;
PreparedScenario& PreparedScenario::operator=(PreparedScenario&&) noexcept = default;
PreparedScenario::~PreparedScenario() = default;

Result<PreparedScenario> PreparedScenario::make(Scenario given, const std::map<std::string, std::string>& texts,
                                                Executor* executor) {
  auto parts = std::make_unique<Parts>();
  parts->scenario = std::move(given);
  ScenarioOperators operators(executor);
  for (ScenarioService& service : parts->scenario.services) {
    WINDLASS_ASSIGN_OR_RETURN(auto prepared, prepare(parts->scenario, service, texts, operators));
    parts->services.push_back(std::move(prepared));
  }
  if (parts->scenario.autoscaling) parts->texts = texts;
  return PreparedScenario(std::move(parts));
}

const Scenario& PreparedScenario::scenario() const { return parts_->scenario; }

ClusterOptions PreparedScenario::options(std::uint64_t seed, planner::End end) const {
  ClusterOptions options;
  options.seed = seed;
  options.failures = parts_->scenario.failures;
  for (std::size_t s = 0; s < parts_->services.size(); ++s) {
    options.services.push_back(parts_->services[s].options(parts_->scenario.services[s], end));
  }
  return options;
}

std::unique_ptr<PolicyAutoscaler> PreparedScenario::autoscaler(planner::End end) const {
  const auto& asked = parts_->scenario.autoscaling;
  if (!asked) return nullptr;
  PolicyAutoscalerOptions options;
  options.searches = true;
  options.interval_s = asked->interval_s;
  options.metrics_age_s = asked->metrics_age_s;
  for (std::size_t s = 0; s < parts_->services.size(); ++s) {
    const ScenarioService& service = parts_->scenario.services[s];
    options.services.push_back(policy_service(service, parts_->services[s]));
    for (const ScenarioPool& pool : service.pools) {
      const bool there = std::any_of(options.accelerators.begin(), options.accelerators.end(),
                                     [&](const auto& state) { return state.spec.name == pool.accelerator.name; });
      if (there) continue;
      planner::AcceleratorState state;
      state.spec = pool.accelerator;
      state.spec.price_per_hour = pool.price_per_gpu_hour;
      const auto gpus = asked->gpus.find(pool.accelerator.name);
      state.allocatable_gpus = gpus == asked->gpus.end() ? kMaxWorkers : gpus->second;
      options.accelerators.push_back(std::move(state));
    }
  }
  // Latency models of workers that the scenario does not begin with; they live as long as the autoscaler.
  struct Made {
    ScenarioOperators operators;
    std::vector<WorkerModel> models;
  };
  auto made = std::make_shared<Made>();
  options.pool = [this, made, end](int index, const std::string& accelerator, int gpus) -> Result<ServingPool> {
    const auto s = static_cast<std::size_t>(index);
    const ScenarioService& service = parts_->scenario.services[s];
    const PreparedService& prepared = parts_->services[s];
    const ScenarioPool* like = nullptr;
    for (std::size_t i = 0; i < service.pools.size(); ++i) {
      const ScenarioPool& pool = service.pools[i];
      if (pool.accelerator.name != accelerator) continue;
      like = &pool;
      if (pool.gpus_per_worker == gpus) return prepared.pool(service, pool, prepared.models[i], end);
    }
    assert(like != nullptr);  // the policy knows no other accelerators
    ScenarioPool other = *like;
    other.gpus_per_worker = gpus;
    WINDLASS_ASSIGN_OR_RETURN(auto model,
                              worker_model(parts_->scenario.source, service, prepared.shape, parts_->texts, made->operators,
                                           other.accelerator, gpus, "cluster.autoscaling", parts_->scenario.autoscaling->line));
    made->models.push_back(std::move(model));
    return prepared.pool(service, other, made->models.back(), end);
  };
  return std::make_unique<PolicyAutoscaler>(std::move(options));
}

std::unique_ptr<workload::RequestSource> PreparedScenario::source(std::uint64_t seed, double rate_factor) const {
  std::vector<workload::MergedSource::Part> parts;
  for (std::size_t s = 0; s < parts_->services.size(); ++s) {
    parts.push_back({parts_->services[s].requests->source(seed, rate_factor), static_cast<int>(s)});
  }
  if (parts.size() == 1) return std::move(parts.front().source);
  return std::make_unique<workload::MergedSource>(std::move(parts));
}

double PreparedScenario::requests_per_second() const {
  double rate = 0;
  for (const PreparedService& service : parts_->services) rate += service.requests->rate_per_s();
  return rate;
}

double PreparedScenario::requests_per_second(std::size_t service) const {
  return parts_->services[service].requests->rate_per_s();
}

double PreparedScenario::expected_requests() const {
  double requests = 0;
  for (const PreparedService& service : parts_->services) requests += service.requests->expected_requests();
  return requests;
}

double PreparedScenario::expected_duration_s() const {
  double longest_s = 0;
  for (const PreparedService& service : parts_->services)
    longest_s = std::max(longest_s, service.requests->expected_duration_s());
  return longest_s;
}

bool PreparedScenario::ends_by_time() const {
  const auto& services = parts_->scenario.services;
  return std::all_of(services.begin(), services.end(), [](const auto& service) { return service.workload.duration_s; });
}

bool PreparedScenario::rate_is_free() const {
  const auto& services = parts_->services;
  return std::all_of(services.begin(), services.end(), [](const auto& service) { return service.requests->rate_is_free(); });
}

bool PreparedScenario::random() const {
  if (parts_->scenario.failures.mean_time_between_s > 0) return true;
  for (std::size_t s = 0; s < parts_->services.size(); ++s) {
    if (parts_->services[s].requests->random() || draws(parts_->scenario.services[s])) return true;
  }
  return false;
}

planner::Provenance PreparedScenario::provenance(std::size_t service) const {
  planner::Provenance from = planner::Provenance::kMeasured;
  for (const WorkerModel& model : parts_->services[service].models) from = std::max(from, model.errors.from);
  return from;
}

std::vector<std::string> PreparedScenario::bases() const {
  std::vector<std::string> lines;
  for (std::size_t s = 0; s < parts_->services.size(); ++s) {
    const ScenarioService& service = parts_->scenario.services[s];
    const std::string who = service.name.empty() ? "" : service.name + ": ";
    for (std::size_t i = 0; i < service.pools.size(); ++i) {
      const ScenarioPool& pool = service.pools[i];
      lines.push_back(fmt::format("{}{} x {} worker{} of {} x {}: {}", who, pool.workers, to_string(pool.role),
                                  pool.workers == 1 ? "" : "s", pool.gpus_per_worker, pool.accelerator.name,
                                  parts_->services[s].models[i].basis));
    }
    if (const auto& reference = service.slowdown_reference) {
      lines.push_back(fmt::format("{}slowdowns relative to a request alone on {} x {}: {}", who, reference->gpus_per_worker,
                                  reference->accelerator.name, parts_->services[s].reference.basis));
    }
  }
  return lines;
}

}  // namespace windlass::sim
