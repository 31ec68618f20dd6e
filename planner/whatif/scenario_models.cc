// See scenario_models.h.
#include "planner/whatif/scenario_models.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "planner/catalog/catalog_yaml.h"
#include "planner/perf/data_sheet_model.h"
#include "planner/perf/distserve_model.h"
#include "planner/perf/linear_model.h"
#include "planner/perf/operator_model.h"
#include "planner/perf/profile_estimate.h"
#include "planner/perf/profile_fit.h"
#include "planner/perf/profile_operators.h"
#include "planner/perf/profile_parallelism.h"
#include "planner/perf/profile_yaml.h"
#include "planner/perf/scaled_model.h"

namespace windlass::sim {
namespace {

using planner::IterationModel;
using planner::LinearIterationModel;

struct Asked {
  const ScenarioService& service;
  const planner::ModelShape& shape;
  const std::string& file;  // latency.file, or the accelerator's own file; empty: none
  const std::string& text;  // its content
  const planner::AcceleratorSpec& accelerator;
  int gpus;  // tensor parallel x pipeline parallel

  [[nodiscard]] int tensor_parallel() const { return gpus / service.latency.pipeline_parallel; }

  double kv_capacity_tokens;
};

using Built = Result<std::shared_ptr<const IterationModel>>;

planner::ProfileKey profile_key(const Asked& asked) {
  return {asked.service.latency.model, asked.accelerator.name, asked.tensor_parallel()};
}

Built from_profile(const Asked& asked) {
  WINDLASS_ASSIGN_OR_RETURN(const auto rows, planner::parse_profile_csv(asked.text));
  return planner::profile_model(rows, profile_key(asked), asked.service.latency.reading, asked.kv_capacity_tokens);
}

Built from_linear_fit(const Asked& asked) {
  WINDLASS_ASSIGN_OR_RETURN(const auto rows, planner::parse_profile_csv(asked.text));
  const planner::ProfileKey key = profile_key(asked);
  // If no rows match, the error lists what the file has.
  WINDLASS_RETURN_IF_ERROR([&]() -> Result<void> {
    const auto table = planner::ProfileTable::make(rows, key, planner::ProfileReading::kBatchTokens, 1);
    if (!table.ok()) return table.error();
    return {};
  }());
  WINDLASS_ASSIGN_OR_RETURN(auto fit, planner::fit_linear_iteration(planner::samples_of(rows, key), asked.service.latency.form,
                                                                    asked.kv_capacity_tokens));
  return std::shared_ptr<const IterationModel>(std::make_shared<LinearIterationModel>(std::move(fit.model)));
}

Built from_data_sheet(const Asked& asked) {
  return std::shared_ptr<const IterationModel>(std::make_shared<LinearIterationModel>(planner::data_sheet_model(
      planner::linear_coefficients(asked.shape, asked.accelerator, asked.gpus, asked.service.latency.engine),
      asked.kv_capacity_tokens)));
}

Built from_distserve(const Asked& asked, const std::string* capacities_text) {
  const ScenarioLatency& latency = asked.service.latency;
  WINDLASS_ASSIGN_OR_RETURN(const auto profile, planner::parse_distserve_profile(asked.text));
  planner::DistServeCapacities capacities;
  const planner::DistServeParallelism parallelism{asked.tensor_parallel(), latency.pipeline_parallel};
  if (capacities_text != nullptr && !latency.kv_capacity_tokens) {
    auto parsed = planner::parse_distserve_capacities(*capacities_text);
    if (!parsed.ok()) return parsed.error().within(latency.capacities_file);
    capacities = std::move(parsed).value();
  } else {
    capacities[latency.model][parallelism] = asked.kv_capacity_tokens;
  }
  WINDLASS_ASSIGN_OR_RETURN(auto model, planner::DistServeModel::make(profile, capacities, latency.model, parallelism));
  return std::shared_ptr<const IterationModel>(std::make_shared<planner::DistServeModel>(std::move(model)));
}

// Measured operators, or, without tables, data sheets with efficiencies fitted on measurements; and the engine's CPU time.
Built from_operators(const Asked& asked, const ScenarioTexts& texts, ScenarioOperators& operators) {
  const ScenarioLatency& latency = asked.service.latency;
  planner::OperatorModelOptions options;
  options.tensor_parallel = asked.tensor_parallel();
  options.pipeline_parallel = latency.pipeline_parallel;
  options.overhead = latency.cpu.value_or(planner::overhead_of(latency.engine).value_or(planner::EngineOverhead{}));
  const auto weights = planner::gemm_kind(asked.shape);
  if (!weights.ok()) return weights.error().within(fmt::format("latency.source {}", to_string(latency.source)));
  options.weights = *weights;
  const std::string folder = latency.source == LatencySource::kOperators ? asked.file : "";
  WINDLASS_ASSIGN_OR_RETURN(auto* models, operators.models(folder, texts, asked.accelerator));
  WINDLASS_ASSIGN_OR_RETURN(auto model, models->make(asked.shape, options));
  return std::shared_ptr<const IterationModel>(std::move(model));
}

Built build(const Asked& asked, const ScenarioTexts& texts, ScenarioOperators& operators) {
  const ScenarioLatency& latency = asked.service.latency;
  switch (latency.source) {
    case LatencySource::kProfile: return from_profile(asked);
    case LatencySource::kLinear: return asked.file.empty() ? from_data_sheet(asked) : from_linear_fit(asked);
    case LatencySource::kDistServe: {
      const auto capacities = texts.find(latency.capacities_file);
      return from_distserve(asked, capacities == texts.end() ? nullptr : &capacities->second);
    }
    case LatencySource::kOperators:
    case LatencySource::kRoofline: return from_operators(asked, texts, operators);
  }
  return Error{ErrorCode::kInternal, "latency.source"};
}

// The fit that a source requires if its file is a PerformanceProfile; DistServe's formulas have none.
const char* fit_of(LatencySource source) {
  switch (source) {
    case LatencySource::kProfile: return "Profile";
    case LatencySource::kLinear: return "Linear";
    case LatencySource::kOperators: return "Operators";
    case LatencySource::kDistServe:
    case LatencySource::kRoofline: return "";
  }
  return "";
}

// Checks that latency.file was fitted for what the scenario states.
Result<void> check_agrees(const std::string& source_file, const ScenarioService& service, const std::string& file,
                          const planner::PerformanceProfile& profile) {
  const ScenarioLatency& latency = service.latency;
  const auto refused = [&](const char* field, const std::string& found, const std::string& allowed) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{}:{}: {}latency.{}: must be {}, as {} was fitted (got {})", source_file, latency.line,
                             service.prefix, field, allowed, file, found)};
  };
  const std::string type = planner::fit_type(profile);
  if (fit_of(latency.source) != type) {
    for (const LatencySource source : {LatencySource::kProfile, LatencySource::kLinear, LatencySource::kOperators}) {
      if (fit_of(source) == type) return refused("source", to_string(latency.source), to_string(source));
    }
  }
  const std::string& model = latency.model.empty() ? service.model.name : latency.model;
  if (!model.empty() && model != profile.model) return refused("model", model, profile.model);
  if (profile.pipeline_parallel != latency.pipeline_parallel) {
    return refused("pipelineParallel", std::to_string(latency.pipeline_parallel), std::to_string(profile.pipeline_parallel));
  }
  if (latency.cpu) return refused("cpu", "times", "none");
  return {};
}

// How its points are read; the profile decides this, not the scenario.
std::string reading_of(const std::optional<planner::PerformanceProfile>& profile) {
  const auto* cells = profile ? std::get_if<planner::MeasuredCells>(&profile->fit) : nullptr;
  if (cells == nullptr) return "";
  return cells->reading == planner::ProfileReading::kBatchShape ? ", read by batchShape" : ", read by batchTokens";
}

// Location of a worker in the scenario.
struct Place {
  const std::string& source;
  const ScenarioService& service;
  const std::string& field;
  int line;

  [[nodiscard]] Error error(const std::string& what) const {
    return {ErrorCode::kInvalidArgument, fmt::format("{}:{}: {}{}: {}", source, line, service.prefix, field, what)};
  }
};

// latency.file's profile, if it is one; null text: no file.
Result<std::optional<planner::PerformanceProfile>> profile_of(const Place& at, const std::string& file, const std::string* text,
                                                              const planner::AcceleratorSpec& accelerator, int gpus) {
  std::optional<planner::PerformanceProfile> profile;
  if (text == nullptr) return profile;
  if (!planner::is_performance_profile(*text)) {
    if (at.service.latency.source != LatencySource::kOperators) return profile;
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{}: must be a PerformanceProfile, or a folder of operator tables", file)};
  }
  WINDLASS_ASSIGN_OR_RETURN(profile, planner::parse_performance_profile(*text, file));
  WINDLASS_RETURN_IF_ERROR(check_agrees(at.source, at.service, file, *profile));
  if (profile->accelerator != accelerator.name || profile->gpus_per_worker != gpus) {
    return at.error(fmt::format("must be {} x {}, on which {} was fitted (got {} x {})", profile->gpus_per_worker,
                                profile->accelerator, file, gpus, accelerator.name));
  }
  return profile;
}

// KV cache tokens that the data sheet's memory leaves.
Result<double> sheet_kv_tokens(const Place& at, const planner::ModelShape& shape, const planner::AcceleratorSpec& accelerator,
                               int gpus) {
  if (!(accelerator.memory_bytes > 0)) {
    return at.error(
        fmt::format("must have memoryGB, because {} is neither an AcceleratorClass of the files nor in the catalog; or state "
                    "latency.kvCapacityTokens",
                    accelerator.name));
  }
  const double tokens = planner::linear_coefficients(shape, accelerator, gpus, planner::Efficiency{}).kv_capacity_tokens;
  if (tokens >= at.service.engine.block_tokens) return tokens;
  return at.error(
      fmt::format("must have memory for {}, whose weights take {:.0f} GB besides activations and KV cache (got {} x {} "
                  "with {:.0f} GB); use more GPUs per worker, or larger ones",
                  at.service.model.title(), planner::weight_bytes(shape) / 1e9, gpus, accelerator.name,
                  gpus * accelerator.memory_bytes / 1e9));
}

// The source of a worker's times and memory, for people.
std::string basis_of(const Asked& asked, const std::optional<planner::PerformanceProfile>& profile, double kv_capacity_tokens) {
  const ScenarioLatency& latency = asked.service.latency;
  const std::string origin = asked.file.empty()
                                 ? fmt::format("{} model from data sheets, without measurements", to_string(latency.source))
                                 : fmt::format("{} {}: {}", to_string(latency.source), asked.file,
                                               latency.model.empty() ? asked.service.model.title() : latency.model) +
                                       reading_of(profile);
  return fmt::format("{}, {}, TP {}{}; KV cache of {:.0f} tokens", origin, asked.accelerator.name, asked.tensor_parallel(),
                     latency.pipeline_parallel > 1 ? fmt::format(" x PP {}", latency.pipeline_parallel) : "",
                     kv_capacity_tokens);
}

// Errors of fits to measured runs of which none has a worker's whole configuration: docs/algorithms/latency.md, "configuration
// left out".
planner::TimeErrors errors_of_rows(const ScenarioLatency& latency) {
  if (latency.source == LatencySource::kDistServe) return planner::errors_of_fit({}, {});
  if (latency.source == LatencySource::kLinear) return planner::errors_of_fit(0.028, 0.163);
  return latency.reading == planner::ProfileReading::kBatchShape ? planner::errors_of_fit(0.028, 0.076)
                                                                 : planner::errors_of_fit(0.080, 0.084);
}

// Measured operators with the engine's CPU time, each TP degree left out: docs/algorithms/latency-end-to-end.md.
constexpr planner::TimeErrors kOfOperators{1.15, 1.67, planner::Provenance::kInterpolated};

planner::TimeErrors errors_of(const Asked& asked, const std::optional<planner::PerformanceProfile>& profile) {
  const ScenarioLatency& latency = asked.service.latency;
  if (profile && !std::holds_alternative<planner::MeasuredOperators>(profile->fit)) return planner::errors_of(*profile);
  if (!profile && !asked.file.empty() && latency.source != LatencySource::kOperators) return errors_of_rows(latency);
  const bool knows_cpu = profile || latency.cpu || planner::overhead_of(latency.engine);
  if (latency.source == LatencySource::kOperators && knows_cpu) return kOfOperators;
  return planner::sheet_errors(asked.shape, asked.accelerator, latency.engine);
}

// The fit, or, if it knows one context only, the line that the controller believes: times grow with the context as by the data
// sheet.
std::shared_ptr<const IterationModel> believed_model(const Asked& asked, const planner::PerformanceProfile& profile,
                                                     std::shared_ptr<const IterationModel> fit) {
  const auto* lines = std::get_if<planner::FittedLines>(&profile.fit);
  const planner::AcceleratorSpec& spec = asked.accelerator;
  if (lines == nullptr || !planner::knows_one_context(*fit) || !planner::has_data_sheet(spec) ||
      !(planner::peak_flops_for(spec, asked.shape.dtype) > 0)) {
    return fit;
  }
  const planner::LinearCoefficients sheet =
      planner::linear_coefficients(asked.shape, spec, asked.gpus, asked.service.latency.engine);
  const planner::IterationEstimate estimate = planner::estimate_of(profile, *fit, sheet);
  if (!estimate.knows()) return fit;
  const planner::LinearCoefficients line = planner::estimated(sheet, estimate);
  const planner::LinearPhase decode{{line.k2, line.c2, 0, line.c3}, lines->decode.range};
  return std::make_shared<LinearIterationModel>(lines->prefill, decode, fit->kv_capacity_tokens());
}

}  // namespace

Result<planner::OperatorModels*> ScenarioOperators::models(const std::string& folder, const ScenarioTexts& texts,
                                                           const planner::AcceleratorSpec& spec) {
  for (Folder& known : folders_) {
    if (known.path == folder && known.models.spec() == spec) return &known.models;
  }
  planner::OperatorTables tables;
  if (!folder.empty()) {
    const auto text_of = [&](std::size_t file) -> Result<std::optional<std::string_view>> {
      const auto text = texts.find(folder + "/" + planner::kOperatorFiles[file]);
      return text == texts.end() ? std::nullopt : std::optional<std::string_view>(text->second);
    };
    WINDLASS_ASSIGN_OR_RETURN(tables, planner::parse_operator_tables(text_of, executor_));
  }
  return &folders_.emplace_back(Folder{folder, planner::OperatorModels(spec, std::move(tables), executor_)}).models;
}

Result<WorkerModel> worker_model(const std::string& source, const ScenarioService& service, const planner::ModelShape& shape,
                                 const ScenarioTexts& texts, ScenarioOperators& operators,
                                 const planner::AcceleratorSpec& accelerator, int gpus, const std::string& field, int line) {
  static const std::string kNone;
  const Place here{source, service, field, line};
  const ScenarioLatency& latency = service.latency;
  const std::string& file = latency.file_for(accelerator.name);
  const auto found = texts.find(file);
  const std::string* text = found == texts.end() ? nullptr : &found->second;
  WINDLASS_ASSIGN_OR_RETURN(const auto profile, profile_of(here, file, text, accelerator, gpus));
  const std::optional<double> fitted_capacity = profile ? profile->kv_capacity_tokens : std::nullopt;
  double kv_capacity_tokens = latency.kv_capacity_tokens.value_or(fitted_capacity.value_or(0));
  if (!latency.kv_capacity_tokens && !fitted_capacity && latency.capacities_file.empty()) {
    WINDLASS_ASSIGN_OR_RETURN(kv_capacity_tokens, sheet_kv_tokens(here, shape, accelerator, gpus));
  }
  if (latency.source == LatencySource::kLinear && file.empty() && !(planner::peak_flops_for(accelerator, shape.dtype) > 0)) {
    return here.error(fmt::format("must be able to compute in {} (got {})", planner::to_string(shape.dtype), accelerator.name));
  }
  if (latency.source == LatencySource::kOperators && !planner::has_data_sheet(accelerator)) {
    return here.error(
        fmt::format("must have a data sheet for latency.source operators: an AcceleratorClass {} with memory, "
                    "memoryBandwidthBytesPerSecond and peakFlopsPerSecond (got none)",
                    accelerator.name));
  }
  const Asked asked{service, shape, file, text == nullptr ? kNone : *text, accelerator, gpus, kv_capacity_tokens};
  auto built =
      profile ? planner::iteration_model(*profile, shape, accelerator, kv_capacity_tokens) : build(asked, texts, operators);
  if (!built.ok()) {
    // Report a gap in the file with the field that needs it.
    const Error error = file.empty() ? built.error() : built.error().within(file);
    if (error.code == ErrorCode::kNotFound || file.empty()) return here.error(error.message);
    return error;
  }
  WorkerModel worker;
  worker.fitted = profile.has_value();
  if (profile) worker.transfer = profile->transfer;
  worker.model = profile ? believed_model(asked, *profile, std::move(built).value()) : std::move(built).value();
  // The model's own values override the catalog's, unless the scenario sets them.
  worker.kv_capacity_tokens = latency.kv_capacity_tokens.value_or(fitted_capacity.value_or(worker.model->kv_capacity_tokens()));
  if (!(worker.kv_capacity_tokens >= service.engine.block_tokens)) {
    return here.error(fmt::format("must have a KV cache of at least scheduling.blockTokens, {} tokens (got {:.0f})",
                                  service.engine.block_tokens, worker.kv_capacity_tokens));
  }
  worker.errors = errors_of(asked, profile);
  worker.shorter = planner::at_end(worker.model, worker.errors, planner::End::kShort);
  worker.longer = planner::at_end(worker.model, worker.errors, planner::End::kLong);
  worker.basis = basis_of(asked, profile, worker.kv_capacity_tokens);
  return worker;
}

}  // namespace windlass::sim
