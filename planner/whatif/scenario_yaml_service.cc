// A service's parts together, and its model and latency. See scenario_yaml_service.h.
#include "planner/whatif/scenario_yaml_service.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "planner/base/foreign_text.h"
#include "planner/catalog/accelerators_by_name.h"

namespace windlass::sim {

void ServiceReader::read(YamlReader& reader, const std::function<RunNeeds(YamlReader& cluster)>& read_run) {
  read_parts(reader, [&] {
    if (const auto* cluster = reader.require("cluster", "a map with pools")) read_cluster(*cluster, read_run);
  });
}

void ServiceReader::read_for_plan(YamlReader& reader) {
  pools_field_ = "accelerators";
  read_parts_for_plan(reader, [&] { this->read_choices(reader); });
}

void ServiceReader::read_for_plan(YamlReader& reader, const std::string& field,
                                  const std::function<std::vector<ScenarioPool>()>& read_choices) {
  pools_field_ = field;
  latency_may_miss_ = true;
  read_parts_for_plan(reader, [&] { service_.pools = read_choices(); });
}

void ServiceReader::read_parts_for_plan(YamlReader& reader, const std::function<void()>& read_choices) {
  for_plan_ = true;
  read_parts(reader, read_choices);
  // The search chooses what these would be noted for.
  std::erase_if(defaults_, [](const std::string& told) {
    return told.starts_with("latency.tensorParallel:") || told.starts_with("latency.pipelineParallel:") ||
           told.starts_with("latency.kvCapacityTokens:");
  });
}

void ServiceReader::read_parts(YamlReader& reader, const std::function<void()>& read_workers) {
  if (const auto* model = reader.require("model", "a map with name or config")) read_model(*model);
  if (latency_may_miss_ && reader.find("latency") == nullptr) {
    note(reader, "latency", "{source: roofline}");
    service_.latency.source = LatencySource::kRoofline;
  } else if (const auto* latency = reader.require("latency", "a map with source")) {
    read_latency(*latency);
  }
  if (const auto* workload = reader.require("workload", "a map with trace, lengths or inputTokens and outputTokens")) {
    read_workload(*workload);
  }
  read_workers();
  static const YamlValue kNothing = [] {
    YamlValue map;
    map.kind = YamlValue::Kind::kMap;
    return map;
  }();
  const auto* scheduling = reader.find("scheduling");
  read_scheduling(scheduling != nullptr ? *scheduling : kNothing);
  if (const auto* slo = reader.find("slo")) read_slo(*slo);
  if (const auto* reference = reader.find("slowdownReference")) read_reference(*reference);
  const auto* scaling = reader.find("scaling");
  if (needs_.autoscaled) {
    read_scaling(scaling != nullptr ? *scaling : kNothing);
  } else if (scaling != nullptr) {
    mistake_.keep(scaling->line, fmt::format("{}: belongs to cluster.autoscaling", at("scaling")));
  }
  if (mistake_.what.empty()) check_together();
}

std::int64_t ServiceReader::noted_whole(YamlReader& reader, const char* key, std::int64_t low, std::int64_t high,
                                        std::int64_t otherwise) {
  note(reader, key, fmt::format("{}", otherwise));
  return reader.whole(key, low, high, otherwise);
}

double ServiceReader::noted_number(YamlReader& reader, const char* key, NumberRange range, double otherwise) {
  note(reader, key, fmt::format("{:g}", otherwise));
  return reader.number(key, range, otherwise);
}

double ServiceReader::noted_duration_s(YamlReader& reader, const char* key, NumberRange range_s, double otherwise_s) {
  note(reader, key, duration_text(otherwise_s));
  return reader.duration_s(key, range_s, otherwise_s);
}

std::size_t ServiceReader::noted_choice(YamlReader& reader, const char* key, std::span<const char* const> allowed,
                                        std::size_t otherwise) {
  note(reader, key, allowed[otherwise]);
  return reader.choice(key, allowed, otherwise);
}

void ServiceReader::read_model(const YamlValue& value) {
  YamlReader reader(value, at("model"), mistake_);
  ScenarioModel& model = service_.model;
  model.line = value.line;
  const auto* name = reader.find("name");
  const auto* config = reader.find("config");
  if ((name == nullptr) == (config == nullptr)) {
    mistake_.keep(value.line, fmt::format("{}: found {}, allowed is either name or config", at("model"),
                                          name == nullptr ? "neither name nor config" : "name and config"));
  }
  if (name != nullptr) {
    model.name = reader.text("name", "a name of the catalog");
    if (auto shape = planner::model_shape_by_name(model.name); shape.ok()) {
      model.shape = std::move(shape).value();
    } else {
      mistake_.keep(name->line, fmt::format("{}: found '{}', allowed is {}", reader.path_of("name"), shown_text(model.name),
                                            fmt::join(planner::model_shape_names(), ", ")));
    }
  }
  if (config != nullptr) model.config_file = reader.text("config", "the path of a config.json");
  if (reader.find("maxContextTokens") != nullptr) {
    model.max_context_tokens = static_cast<int>(reader.whole("maxContextTokens", 2, workload::kMaxTokens));
  }
  reader.finish();
}

// latency.file, or one for each accelerator.
void ServiceReader::read_latency_files(YamlReader& reader) {
  ScenarioLatency& latency = service_.latency;
  const bool operators = latency.source == LatencySource::kOperators, distserve = latency.source == LatencySource::kDistServe;
  const char* what = operators   ? "the path of a folder with gemm_perf.csv.gz and the other operator tables of one accelerator"
                     : distserve ? "the path of a profiler-*.json file of DistServe"
                                 : "the path of a CSV file with Splitwise's columns";
  const auto* files = reader.find("files");
  if (latency.source == LatencySource::kRoofline) {
    for (const auto* found : {reader.find("file"), files}) {
      if (found == nullptr) continue;
      mistake_.keep(found->line, fmt::format("{}: belongs to the sources profile, distserve, operators and linear; found {}",
                                             reader.path_of(found == files ? "files" : "file"), to_string(latency.source)));
    }
    return;
  }
  if (files == nullptr && latency.source != LatencySource::kLinear) {
    latency.file = reader.text("file", what);
  } else {
    latency.file = reader.text("file", what, "");
  }
  if (files == nullptr) return;
  YamlReader by_accelerator(*files, reader.path_of("files"), mistake_);
  for (const YamlMember& member : by_accelerator.members()) {
    if (!planner::accelerator_by_name(member.key).ok()) {
      mistake_.keep(member.line, fmt::format("{}: found '{}', allowed is {}", reader.path_of("files"), shown_text(member.key),
                                             fmt::join(planner::accelerator_names(), ", ")));
      return;
    }
    latency.files[member.key] = by_accelerator.text(member.key.c_str(), what);
  }
}

void ServiceReader::read_parallelism(YamlReader& reader) {
  ScenarioLatency& latency = service_.latency;
  note(reader, "pipelineParallel", "1");
  latency.pipeline_parallel = static_cast<int>(reader.whole("pipelineParallel", 1, 1024, 1));
  if (const auto* stages = reader.find("pipelineParallel"); stages != nullptr && latency.pipeline_parallel > 1) {
    const bool splits = latency.source == LatencySource::kDistServe || latency.source == LatencySource::kOperators ||
                        latency.source == LatencySource::kRoofline;
    if (!splits) {
      reader.refuse("pipelineParallel", *stages,
                    fmt::format("1 with the source {}; distserve, operators and roofline know pipeline stages",
                                to_string(latency.source)));
    }
  }
  if (reader.find("tensorParallel") != nullptr) {
    tensor_parallel_ = static_cast<int>(reader.whole("tensorParallel", 1, 1024));
  } else {
    note(reader, "tensorParallel",
         latency.pipeline_parallel > 1 ? "each pool's gpusPerWorker over pipelineParallel" : "each pool's gpusPerWorker");
  }
}

// What the engine's CPU adds to its kernels, where a source knows kernels alone.
void ServiceReader::read_cpu(YamlReader& reader) {
  const bool kernels =
      service_.latency.source == LatencySource::kOperators || service_.latency.source == LatencySource::kRoofline;
  const auto* value = reader.find("cpu");
  if (value == nullptr) {
    if (kernels) note(reader, "cpu", "none");
    return;
  }
  if (!kernels) {
    reader.refuse("cpu", *value,
                  fmt::format("nothing with the source {}, whose times hold the engine's CPU already",
                              to_string(service_.latency.source)));
    return;
  }
  YamlReader cpu(*value, reader.path_of("cpu"), mistake_);
  planner::EngineOverhead& overhead = service_.latency.cpu.emplace();
  overhead.iteration_s = cpu.duration_s("iteration", {0, 10}, 0);
  overhead.sequence_s = cpu.duration_s("sequence", {0, 1}, 0);
  overhead.eager_layer_s = cpu.duration_s("eagerLayer", {0, 1}, 0);
  overhead.largest_graph_tokens = static_cast<double>(cpu.whole("largestGraphTokens", 0, 1'000'000, 0));
  cpu.finish();
}

void ServiceReader::read_latency(const YamlValue& value) {
  static constexpr std::array kSources = {"profile", "linear", "distserve", "operators", "roofline"};
  static constexpr std::array kReadings = {"batchTokens", "batchShape"};
  static constexpr std::array kForms = {"aladdin", "huawei"};
  YamlReader reader(value, at("latency"), mistake_);
  ScenarioLatency& latency = service_.latency;
  latency.line = value.line;
  latency.source = static_cast<LatencySource>(reader.choice("source", kSources));
  read_latency_files(reader);
  const bool reads_file = !latency.file.empty() || !latency.files.empty();
  if (latency.source == LatencySource::kProfile) {
    latency.reading = static_cast<planner::ProfileReading>(noted_choice(reader, "reading", kReadings, 0));
  }
  if (latency.source == LatencySource::kLinear && reads_file) {
    latency.form = static_cast<planner::LinearForm>(noted_choice(reader, "form", kForms, 0));
  }
  if (latency.source == LatencySource::kDistServe) {
    latency.capacities_file = reader.text("capacities", "the path of a max_num_tokens.csv of DistServe", "");
  }
  if (reads_file && latency.source != LatencySource::kOperators) {
    latency.model = reader.text("model", "the model's name in latency.file", service_.model.name);
    if (latency.model.empty() && service_.model.shape == std::nullopt) {
      mistake_.keep(value.line, fmt::format("{}: missing, allowed is the model's name in latency.file: model.config gives none",
                                            reader.path_of("model")));
    }
  }
  if (for_plan_) {
    for (const char* key : {"tensorParallel", "pipelineParallel"}) {
      if (const auto* found = reader.find(key)) {
        reader.refuse(key, *found, "nothing: a plan chooses it among search.tensorParallel and search.pipelineStages");
      }
    }
  } else {
    read_parallelism(reader);
  }
  read_cpu(reader);
  if (reader.find("kvCapacityTokens") != nullptr) {
    latency.kv_capacity_tokens = reader.number("kvCapacityTokens", {1, 1e12});
  } else if (latency.capacities_file.empty()) {
    note(reader, "kvCapacityTokens", "what a worker's memory leaves");
  }
  reader.finish();
}

}  // namespace windlass::sim
