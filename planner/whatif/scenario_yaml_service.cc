// Reads the sections about a service's model and latency. See scenario_sections.h.
#include <algorithm>
#include <array>
#include <string>

#include <fmt/format.h>

#include "planner/whatif/scenario_sections.h"

namespace windlass::sim {
namespace {

using Latency = ScenarioLatency;

constexpr std::array kSources = {"profile", "linear", "distserve", "operators", "roofline"};
constexpr std::array kReadings = {"batchTokens", "batchShape"};
constexpr std::array kForms = {"aladdin", "huawei"};

void check_one_name(YamlReader& reader, ScenarioModel&) {
  const bool name = reader.find("name") != nullptr, config = reader.find("config") != nullptr;
  if (name != config) return;
  reader.wrong(fmt::format("must have either name or config (got {})", name ? "name and config" : "neither name nor config"));
}

void read_name(YamlReader& reader, ScenarioModel& model) {
  const YamlValue* name = reader.find("name");
  model.shape = planner::read_model_name(reader);
  if (model.shape) model.name = name->text;
}

// The path of a config.json, or its fields.
void read_config(YamlReader& reader, ScenarioModel& model, Reading& reading) {
  const YamlValue* config = reader.find("config");
  if (config != nullptr && config->kind == YamlValue::Kind::kMap) {
    model.shape = planner::read_inline_config(reader);
  } else {
    text("config", &ScenarioModel::config_file, "the path of a config.json, or a map with inline").read(reader, model, reading);
  }
}

template <LatencySource... sources>
bool has_source(const Latency& latency) {
  return ((latency.source == sources) || ...);
}
// Sources of kernel times only, without the engine's CPU time.
constexpr auto kKernels = has_source<LatencySource::kOperators, LatencySource::kRoofline>;
constexpr auto kKnowsStages = has_source<LatencySource::kDistServe, LatencySource::kOperators, LatencySource::kRoofline>;

bool reads_file(const Latency& latency) { return !latency.file.empty() || !latency.files.empty(); }
// Sources that are completed by what is known of the engine: its CPU time, or how times grow with the context.
constexpr auto kCompletedByEngine = has_source<LatencySource::kOperators, LatencySource::kRoofline, LatencySource::kLinear>;
bool fits_lines(const Latency& latency) { return latency.source == LatencySource::kLinear && reads_file(latency); }
bool names_model(const Latency& latency) { return latency.source != LatencySource::kOperators && reads_file(latency); }

// `file`, or one per accelerator.
void read_files(YamlReader& reader, Latency& latency, Reading& reading) {
  const bool given = reader.find("files") != nullptr;
  if (latency.source == LatencySource::kRoofline) {
    for (const char* key : {"file", "files"}) {
      reader.belongs(key, "the sources profile, distserve, operators and linear (got roofline)");
    }
    return;
  }
  const char* what = "the path of a CSV file with Splitwise's columns";
  if (latency.source == LatencySource::kDistServe) what = "the path of a profiler-*.json file of DistServe";
  if (latency.source == LatencySource::kOperators) {
    what = "the path of a folder with gemm_perf.csv.gz and the other operator tables of one accelerator";
  }
  const auto file = text("file", &Latency::file, what);
  const bool must = !given && latency.source != LatencySource::kLinear;
  (must ? file.required() : file).read(reader, latency, reading);
  by_accelerator("files", &Latency::files, yaml::Text{what}).read(reader, latency, reading);
}

// The model's name in the file.
void read_name_in_file(YamlReader& reader, Latency& latency, Reading& reading) {
  latency.model = reading.service->model.name;
  text("model", &Latency::model, "the model's name in latency.file").read(reader, latency, reading);
  if (!latency.model.empty() || !reading.service->model.name.empty()) return;
  reader.wrong("model", "must be the model's name in latency.file, because model.config has none (got nothing)");
}

void read_parallelism(YamlReader& reader, Latency& latency, Reading& reading) {
  if (reading.for_plan()) {
    for (const char* key : {"tensorParallel", "pipelineParallel"}) {
      reader.refuse(key, "left out: a plan chooses it from search.tensorParallel and search.pipelineStages");
    }
    return;
  }
  whole("pipelineParallel", &Latency::pipeline_parallel, 1, 1024).noted().read(reader, latency, reading);
  if (latency.pipeline_parallel > 1 && !kKnowsStages(latency)) {
    reader.refuse("pipelineParallel",
                  fmt::format("1 with the source {}; distserve, operators and roofline support pipeline stages",
                              to_string(latency.source)));
  }
  whole("tensorParallel", &Reading::tensor_parallel, 1, 1024)
      .noted(latency.pipeline_parallel > 1 ? "each pool's gpusPerWorker over pipelineParallel" : "each pool's gpusPerWorker")
      .read(reader, reading, reading);
}

void read_cpu(YamlReader& reader, Latency& latency, Reading& reading) {
  using Cpu = planner::EngineOverhead;
  static const auto kCpu =
      section("cpu", &Latency::cpu,
              map(duration("iteration", &Cpu::iteration_s, {0, 10}), duration("sequence", &Cpu::sequence_s, {0, 1}),
                  duration("prefill", &Cpu::prefill_s, {0, 10}), duration("eagerLayer", &Cpu::eager_layer_s, {0, 1}),
                  whole("largestGraphTokens", &Cpu::largest_graph_tokens, 0, 1'000'000)))
          .noted("that of latency.engine");
  if (kKernels(latency)) return kCpu.read(reader, latency, reading);
  const char* source = to_string(latency.source);
  reader.refuse("cpu", fmt::format("left out with the source {}, whose times include the engine's CPU", source));
}

void note_capacity(YamlReader& reader, Latency& latency, Reading& reading) {
  if (reading.for_plan() || !latency.capacities_file.empty()) return;
  reader.note("kvCapacityTokens", "what a worker's memory leaves");
}

// In the order of kAllEngineTypes, which is that of the enumeration.
const auto& engine_names() {
  static const auto kNames = [] {
    std::array<const char*, planner::kAllEngineTypes.size()> names{};
    std::transform(planner::kAllEngineTypes.begin(), planner::kAllEngineTypes.end(), names.begin(),
                   [](planner::EngineType type) { return planner::to_string(type); });
    return names;
  }();
  return kNames;
}

auto latency_fields() {
  return map(choice("source", &Latency::source, kSources).required(), hook(read_files),
             when(has_source<LatencySource::kProfile>, choice("reading", &Latency::reading, kReadings).noted()),
             when(fits_lines, choice("form", &Latency::form, kForms).noted()),
             when(has_source<LatencySource::kDistServe>,
                  text("capacities", &Latency::capacities_file, "the path of a max_num_tokens.csv of DistServe")),
             when(names_model, hook(read_name_in_file)), hook(read_parallelism),
             when(kCompletedByEngine, choice("engine", &Latency::engine, engine_names()).noted()), hook(read_cpu),
             number("kvCapacityTokens", &Latency::kv_capacity_tokens, {1, 1e12}), hook(note_capacity));
}

}  // namespace

void read_model(YamlReader& parent, Reading& reading) {
  static const auto kModel =
      section("model", &ScenarioService::model,
              map(hook(check_one_name), hook(read_name), hook(read_config),
                  whole("maxContextTokens", &ScenarioModel::max_context_tokens, 2, workload::kMaxTokens)))
          .required("a map with name or config");
  kModel.read(parent, *reading.service, reading);
}

void read_latency(YamlReader& parent, Reading& reading) {
  static const auto kLatency = section("latency", &ScenarioService::latency, latency_fields());
  if (reading.form == ScenarioForm::kCluster && parent.find("latency") == nullptr) {
    parent.note("latency", "{source: roofline}");
    reading.service->latency.source = LatencySource::kRoofline;
    return;
  }
  kLatency.required("a map with source").read(parent, *reading.service, reading);
}

}  // namespace windlass::sim
