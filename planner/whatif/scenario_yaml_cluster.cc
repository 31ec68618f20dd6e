// A service's workers: pools, the link between them, what a start takes, and the reference of slowdowns. See
// scenario_yaml_service.h.
#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "planner/base/foreign_text.h"
#include "planner/catalog/accelerators_by_name.h"
#include "planner/whatif/scenario_yaml_service.h"

namespace windlass::sim {
namespace {

constexpr int kMaxPools = 1000;
constexpr std::size_t kMaxChoices = 32;  // of accelerators

}  // namespace

std::optional<planner::AcceleratorSpec> read_accelerator(YamlReader& reader, YamlMistake& mistake) {
  const YamlValue* value = reader.require("accelerator", "a name of the catalog");
  if (value == nullptr) return std::nullopt;
  const std::string name = reader.text("accelerator", "a name of the catalog");
  auto spec = planner::accelerator_by_name(name);
  if (spec.ok()) return std::move(spec).value();
  mistake.keep(value->line, fmt::format("{}: found '{}', allowed is {}", reader.path_of("accelerator"), shown_text(name),
                                        fmt::join(planner::accelerator_names(), ", ")));
  return std::nullopt;
}

int ServiceReader::read_gpus(YamlReader& reader) {
  const int stages = service_.latency.pipeline_parallel;
  const auto gpus = static_cast<int>(noted_whole(reader, "gpusPerWorker", 1, 1024, tensor_parallel_.value_or(1) * stages));
  if (!mistake_.what.empty()) return gpus;
  if (tensor_parallel_ && gpus != *tensor_parallel_ * stages) {
    mistake_.keep(
        reader.line(),
        stages == 1
            ? fmt::format("{}: found {} beside latency.tensorParallel {}, allowed are equal numbers",
                          reader.path_of("gpusPerWorker"), gpus, *tensor_parallel_)
            : fmt::format("{}: found {} beside latency.tensorParallel {} and pipelineParallel {}, allowed is their product",
                          reader.path_of("gpusPerWorker"), gpus, *tensor_parallel_, stages));
  } else if (gpus % stages != 0) {
    mistake_.keep(reader.line(), fmt::format("{}: found {} beside latency.pipelineParallel {}, allowed is a multiple of it",
                                             reader.path_of("gpusPerWorker"), gpus, stages));
  }
  return gpus;
}

void ServiceReader::read_pools(YamlReader& reader) {
  static constexpr std::array kRoles = {"unified", "prefill", "decode"};
  const std::string allowed = fmt::format("a list of 1 to {} pools", kMaxPools);
  const YamlValue* pools = reader.require("pools", allowed);
  if (pools == nullptr) return;
  if (pools->kind != YamlValue::Kind::kList || pools->items.empty() || pools->items.size() > kMaxPools) {
    reader.refuse("pools", *pools, allowed);
    return;
  }
  int workers = 0;
  bool prefill = false, decode = false, unified = false;
  for (std::size_t i = 0; i < pools->items.size() && mistake_.what.empty(); ++i) {
    YamlReader fields(pools->items[i], fmt::format("{}[{}]", reader.path_of("pools"), i), mistake_);
    ScenarioPool pool;
    pool.line = pools->items[i].line;
    pool.role = static_cast<dispatch::Role>(noted_choice(fields, "role", kRoles, 0));
    if (auto spec = read_accelerator(fields, mistake_)) pool.accelerator = std::move(*spec);
    pool.gpus_per_worker = read_gpus(fields);
    pool.workers = static_cast<int>(noted_whole(fields, "workers", needs_.autoscaled ? 0 : 1, kMaxWorkers, 1));
    pool.price_per_gpu_hour = fields.number("pricePerGpuHour", {0, 1e6}, pool.accelerator.price_per_hour);
    pool.dispatch_weight = fields.number("dispatchWeight", {0, 1e6}, 0);
    fields.finish();
    workers += pool.workers;
    if (workers > kMaxWorkers) {
      mistake_.keep(pool.line, fmt::format("{}: found {} workers, allowed are {} together", reader.path_of("pools"), workers,
                                           kMaxWorkers));
    }
    unified = unified || pool.role == dispatch::Role::kUnified;
    prefill = prefill || pool.role == dispatch::Role::kPrefill;
    decode = decode || pool.role == dispatch::Role::kDecode;
    service_.pools.push_back(std::move(pool));
  }
  if (!(unified ? !prefill && !decode : prefill && decode)) {
    const char* found = unified ? "unified pools beside others" : prefill ? "no decode pool" : "no prefill pool";
    mistake_.keep(pools->line, fmt::format("{}: found {}, allowed are pools that are all unified, or prefill and decode pools",
                                           reader.path_of("pools"), found));
  }
}

void ServiceReader::read_choices(YamlReader& reader) {
  const std::string allowed = fmt::format("a list of 1 to {} maps with accelerator", kMaxChoices);
  const YamlValue* choices = reader.require("accelerators", allowed);
  if (choices == nullptr) return;
  if (choices->kind != YamlValue::Kind::kList || choices->items.empty() || choices->items.size() > kMaxChoices) {
    reader.refuse("accelerators", *choices, allowed);
    return;
  }
  for (std::size_t i = 0; i < choices->items.size() && mistake_.what.empty(); ++i) {
    YamlReader fields(choices->items[i], fmt::format("{}[{}]", reader.path_of("accelerators"), i), mistake_);
    ScenarioPool pool;
    pool.line = choices->items[i].line;
    if (auto spec = read_accelerator(fields, mistake_)) pool.accelerator = std::move(*spec);
    note(fields, "gpus", "as many as are asked for");
    pool.workers = static_cast<int>(fields.whole("gpus", 1, kMaxWorkers, kMaxWorkers));
    pool.price_per_gpu_hour = fields.number("pricePerGpuHour", {0, 1e6}, pool.accelerator.price_per_hour);
    fields.finish();
    for (std::size_t j = 0; j < i && mistake_.what.empty(); ++j) {
      if (service_.pools[j].accelerator.name != pool.accelerator.name) continue;
      mistake_.keep(pool.line, fmt::format("{}[{}].accelerator: found {} a second time, allowed are different ones",
                                           reader.path_of("accelerators"), i, pool.accelerator.name));
    }
    service_.pools.push_back(std::move(pool));
  }
}

void ServiceReader::read_cluster(const YamlValue& value, const std::function<RunNeeds(YamlReader& cluster)>& read_run) {
  YamlReader reader(value, at("cluster"), mistake_);
  needs_ = read_run(reader);
  read_pools(reader);
  if (const auto* link = reader.find("link")) {
    if (two_roles()) {
      read_link(*link);
    } else {
      mistake_.keep(link->line,
                    fmt::format("{}: belongs to prefill and decode pools; found unified ones", reader.path_of("link")));
    }
  }
  read_start(reader);
  reader.finish();
}

void ServiceReader::read_link(const YamlValue& value) {
  static constexpr std::array kTransfers = {"serialised", "layerwise"};
  YamlReader reader(value, at("cluster.link"), mistake_);
  if (reader.find("bandwidthGBps") != nullptr) {
    service_.link.bandwidth_bytes_per_s = 1e9 * reader.number("bandwidthGBps", {1e-6, 1e6});
  }
  if (reader.find("latency") != nullptr) service_.link.latency_s = reader.duration_s("latency", {0, 60});
  service_.link.layer_wise = noted_choice(reader, "transfer", kTransfers, 0) == 1;
  reader.finish();
}

// How long a start takes, where workers start during the run.
void ServiceReader::read_start(YamlReader& reader) {
  const bool needed = needs_.workers_start;
  static const YamlValue kNothing = [] {
    YamlValue map;
    map.kind = YamlValue::Kind::kMap;
    return map;
  }();
  const auto* value = reader.find("start");
  if (value != nullptr && !needed) {
    mistake_.keep(value->line,
                  fmt::format("{}: belongs to cluster.autoscaling and to failures with restart: no worker starts otherwise",
                              reader.path_of("start")));
  }
  if (!needed) return;
  YamlReader fields(value != nullptr ? *value : kNothing, reader.path_of("start"), mistake_);
  ScenarioStart& start = service_.start;
  start.image_pull_s = noted_duration_s(fields, "imagePull", {0, kYear_s}, start.image_pull_s);
  start.weights_bytes_per_s = 1e9 * noted_number(fields, "weightsGBps", {1e-3, 1e6}, start.weights_bytes_per_s / 1e9);
  start.engine_s = noted_duration_s(fields, "engine", {0, kYear_s}, start.engine_s);
  fields.finish();
}

void ServiceReader::read_reference(const YamlValue& value) {
  YamlReader reader(value, at("slowdownReference"), mistake_);
  ScenarioReference reference;
  reference.line = value.line;
  if (auto spec = read_accelerator(reader, mistake_)) reference.accelerator = std::move(*spec);
  reference.gpus_per_worker = read_gpus(reader);
  reader.finish();
  service_.slowdown_reference = std::move(reference);
}

// What fields say of each other.
void ServiceReader::check_together() {
  if (needs_.autoscaled) {
    if (two_roles()) {
      mistake_.keep(service_.pools.front().line,
                    fmt::format("{}: found prefill and decode pools beside autoscaling, allowed are unified ones: the policy "
                                "plans no others",
                                at("cluster.pools")));
    }
    if (!service_.slo || !service_.slo->ttft_s || !service_.slo->tpot_s) {
      mistake_.keep(
          service_.pools.front().line,
          fmt::format("{}: found {}, allowed are timeToFirstToken and timePerOutputToken, which autoscaling plans for",
                      at("slo"), service_.slo ? "one objective" : "none"));
    }
    if (service_.latency.pipeline_parallel > 1) {
      mistake_.keep(service_.latency.line,
                    fmt::format("{}: found {} beside autoscaling, allowed is 1: the policy plans no pipeline stages",
                                at("latency.pipelineParallel"), service_.latency.pipeline_parallel));
    }
  }
  const planner::Batching batching = service_.engine.batching;
  if (two_roles() && (batching == planner::Batching::kStatic || batching == planner::Batching::kOrca)) {
    mistake_.keep(service_.pools.front().line,
                  fmt::format("{}: found '{}' with prefill and decode pools, allowed is vllm, vllm-v1, mixed or sarathi",
                              at("scheduling.batching"), to_string(batching)));
  }
  const ScenarioLatency& latency = service_.latency;
  const bool needs_file = latency.source == LatencySource::kProfile || latency.source == LatencySource::kDistServe ||
                          latency.source == LatencySource::kOperators;
  // These files name no accelerator.
  const bool of_one = latency.source == LatencySource::kDistServe || latency.source == LatencySource::kOperators;
  const std::string& first = service_.pools.front().accelerator.name;
  const auto check = [&](const planner::AcceleratorSpec& spec, int line, const std::string& field) {
    if (latency.files.contains(spec.name)) return;
    if (needs_file && latency.file.empty()) {
      mistake_.keep(line, fmt::format("{}.accelerator: found {}, for which latency.files has no file; allowed are those that "
                                      "it lists",
                                      field, spec.name));
    } else if (of_one && (spec.name != first || latency.files.contains(first))) {
      if (spec.name == first) return;
      mistake_.keep(line, fmt::format("{}.accelerator: found {} beside {}, allowed is one accelerator: latency.file holds one; "
                                      "latency.files names one for each",
                                      field, spec.name, first));
    }
  };
  for (std::size_t i = 0; i < service_.pools.size(); ++i) {
    check(service_.pools[i].accelerator, service_.pools[i].line, fmt::format("{}[{}]", at(pools_field_.c_str()), i));
  }
  if (service_.slowdown_reference) {
    check(service_.slowdown_reference->accelerator, service_.slowdown_reference->line, at("slowdownReference"));
  }
}

}  // namespace windlass::sim
