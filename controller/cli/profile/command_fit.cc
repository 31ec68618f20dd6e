// `windlass fit`: fits a PerformanceProfile to measurements, with its errors on held-out measurements.
#include <algorithm>
#include <filesystem>
#include <map>
#include <ostream>
#include <set>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "controller/cli/console/chain_choice.h"
#include "controller/cli/console/commands.h"
#include "controller/cli/console/percent_check.h"
#include "controller/cli/console/text_file.h"
#include "controller/cli/profile/fit_benchmarks.h"
#include "controller/cli/profile/fitted_profile.h"
#include "controller/cli/profile/profile_page.h"
#include "controller/cli/profile/profile_problem.h"
#include "metrics/host/whole_file.h"
#include "planner/catalog/accelerators_by_name.h"
#include "planner/perf/operator_csv.h"
#include "planner/perf/profile_fit.h"
#include "planner/perf/profile_operators.h"

namespace windlass::cli {
namespace {

constexpr const char* kSplitwise =
    "a CSV file with Splitwise's columns: model, hardware, tensor_parallel, prompt_size, batch_size, token_size, prompt_time, "
    "token_time in ms, and optionally e2e_time and prompt_iterations";

struct FitFlags {
  std::string file;
  std::string model;
  std::string output = "-";
  std::string target_model;
  std::string config;
  std::string accelerator;
  std::optional<int> gpus;
  int pipeline_parallel = 1;
  std::string name;
  std::string form = "best";
  std::string reading = "batchShape";
  std::optional<std::int64_t> kv_capacity_tokens;
  planner::ValidationOptions validation;
  std::string html;
  std::string max_error;  // empty: 20% for benchmark results, otherwise none
  bool output_anyway = false;
};

Error bad(std::string message) { return Error{ErrorCode::kInvalidArgument, std::move(message)}; }

// A progress line on stderr.
class Step {
 public:
  explicit Step(Console& console) : console_(console) {}
  ~Step() {
    if (console_.err_terminal) console_.err << "\r\x1b[K" << std::flush;
  }
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;

  void say(const std::string& what) {
    if (console_.err_terminal) console_.err << "\r\x1b[K" << what << std::flush;
  }

 private:
  Console& console_;
};

// ---- Splitwise's CSV

// "llama2-70b on a100-80gb with 2, 4, 8 GPUs; ..."
std::string listed(const std::vector<planner::ProfileKey>& keys) {
  std::vector<std::pair<std::string, std::vector<int>>> groups;
  for (const planner::ProfileKey& key : keys) {
    const std::string what = fmt::format("{} on {}", key.model, key.hardware);
    auto group = std::find_if(groups.begin(), groups.end(), [&](const auto& one) { return one.first == what; });
    if (group == groups.end()) group = groups.insert(groups.end(), {what, {}});
    group->second.push_back(key.tensor_parallel);
  }
  std::string text;
  for (auto& [what, gpus] : groups) {
    std::sort(gpus.begin(), gpus.end());
    text += fmt::format("{}{} with {} GPUs", text.empty() ? "" : "; ", what, fmt::join(gpus, ", "));
  }
  return text;
}

Result<planner::ProfileKey> chosen_key(const std::vector<planner::ProfileRow>& rows, const FitFlags& flags) {
  const std::vector<planner::ProfileKey> all = planner::keys_of(rows);
  if (all.empty())
    return bad(fmt::format("{}: must have at least one row below its header (got none); expected {}", flags.file, kSplitwise));
  std::vector<planner::ProfileKey> fitting;
  for (const planner::ProfileKey& key : all) {
    if ((flags.target_model.empty() || key.model == flags.target_model) &&
        (flags.accelerator.empty() || key.hardware == flags.accelerator) &&
        (!flags.gpus || key.tensor_parallel == *flags.gpus)) {
      fitting.push_back(key);
    }
  }
  if (fitting.size() == 1) return fitting.front();
  if (fitting.empty()) {
    const std::string asked =
        fmt::format("{} on {} with {} GPUs", flags.target_model.empty() ? "any model" : flags.target_model,
                    flags.accelerator.empty() ? "any accelerator" : flags.accelerator,
                    flags.gpus ? std::to_string(*flags.gpus) : "any number of");
    return bad(fmt::format("{}: must have measurements of {} (got {})", flags.file, asked, listed(all)));
  }
  return bad(
      fmt::format("{}: must select one combination (got {}); choose with --target-model, --accelerator and --gpus from {}",
                  flags.file, fitting.size(), listed(fitting)));
}

// ---- benchmark results of other tools

Result<planner::ProfileKey> benchmark_key(const FitFlags& flags, const std::vector<planner::BenchmarkResult>& results) {
  std::set<std::string> models;
  for (const planner::BenchmarkResult& result : results) {
    if (!result.model.empty()) models.insert(result.model);
  }
  if (flags.accelerator.empty())
    return bad("--accelerator: must be given, since benchmark results do not name their accelerator");
  if (!flags.target_model.empty()) return planner::ProfileKey{flags.target_model, flags.accelerator, flags.gpus.value_or(1)};
  if (models.size() == 1) return planner::ProfileKey{*models.begin(), flags.accelerator, flags.gpus.value_or(1)};
  return bad(fmt::format("--target-model: must be given, since the results name {}",
                         models.empty() ? "no model" : fmt::format("{}", fmt::join(models, ", "))));
}

Result<Fitted> fit_benchmarks(const FitFlags& flags, const std::vector<planner::BenchmarkResult>& all) {
  if (flags.model != "linear")
    return bad(
        fmt::format("--model: must be linear for benchmark results, which do not have complete batches (got {})", flags.model));
  WINDLASS_ASSIGN_OR_RETURN(const planner::ProfileKey key, benchmark_key(flags, all));
  std::vector<planner::BenchmarkResult> results = all;
  if (!flags.target_model.empty()) {
    const auto is_other = [&](const auto& result) { return !result.model.empty() && result.model != flags.target_model; };
    const bool any = !std::all_of(results.begin(), results.end(), is_other);
    if (any) std::erase_if(results, is_other);  // if none match, the tool uses another name for the model
  }
  std::vector<planner::ProfileRow> rows = planner::rows_of(results, key);
  auto profile = fit_rows(rows, key, {flags.model, flags.form, flags.reading, flags.validation});
  if (!profile.ok()) return profile.error().within(fmt::format("{}: {} results", flags.file, results.size()));
  profile->source.format = "BenchmarkResults";
  profile->source.rows = static_cast<std::int64_t>(results.size());
  std::set<std::string> tools;
  for (const planner::BenchmarkResult& result : results) tools.insert(result.tool);
  return Fitted{std::move(profile).value(),
                {fmt::format("benchmark results of {}, measured under load", fmt::join(tools, " and "))},
                std::move(rows)};
}

// ---- SAMPLES of either kind

Result<Fitted> fit_file(const FitFlags& flags, Step& step) {
  if (!flags.config.empty() || flags.pipeline_parallel != 1) {
    return bad(fmt::format("{}: must go with --model operators (got --model {})",
                           flags.config.empty() ? "--pipeline-parallel" : "--config", flags.model));
  }
  std::error_code error;
  const bool folder = std::filesystem::is_directory(flags.file, error);
  step.say("reading " + flags.file);
  std::string text;
  if (!folder) {
    WINDLASS_ASSIGN_OR_RETURN(std::string packed, read_text_file(flags.file, kSplitwise));
    WINDLASS_ASSIGN_OR_RETURN(text, unpacked(std::move(packed), flags.file));
  }
  if (folder || text.rfind("{", 0) == 0 || text.rfind("Metric,", 0) == 0) {
    WINDLASS_ASSIGN_OR_RETURN(const auto results,
                              read_benchmarks(flags.file, [&](const std::string& what) { step.say(what); }));
    return fit_benchmarks(flags, results);
  }
  const auto rows = planner::parse_profile_csv(text);
  if (!rows.ok()) return rows.error().within(flags.file);
  WINDLASS_ASSIGN_OR_RETURN(const planner::ProfileKey key, chosen_key(*rows, flags));
  step.say("fitting, and validating on held-out measurements");
  auto profile = fit_rows(*rows, key, {flags.model, flags.form, flags.reading, flags.validation});
  if (!profile.ok()) return profile.error().within(flags.file);
  std::vector<planner::ProfileRow> own;
  for (const planner::ProfileRow& row : *rows) {
    if (planner::ProfileKey{row.model, row.hardware, row.tensor_parallel} == key && planner::is_one_batch(row))
      own.push_back(row);
  }
  return Fitted{std::move(profile).value(), {}, std::move(own)};
}

// ---- operators

bool is_table(const std::filesystem::path& path) {
  const std::string name = path.filename().string();
  return name.ends_with(".csv") || name.ends_with(".csv.gz");
}

Result<planner::OperatorMeasurements> read_operators(const FitFlags& flags, Step& step, std::vector<std::string>& notes) {
  namespace fs = std::filesystem;
  std::error_code error;
  std::vector<std::string> paths;
  const bool folder = fs::is_directory(flags.file, error);
  if (folder) {
    for (const fs::directory_entry& entry : fs::directory_iterator(flags.file, error)) {
      if (is_table(entry.path())) paths.push_back(entry.path().string());
    }
    std::sort(paths.begin(), paths.end());
  } else {
    paths.push_back(flags.file);
  }
  planner::OperatorMeasurements measurements;
  for (const std::string& path : paths) {
    step.say("reading " + path);
    WINDLASS_ASSIGN_OR_RETURN(std::string packed,
                              read_text_file(path, "a folder of operator tables, or " + planner::known_operator_tables()));
    WINDLASS_ASSIGN_OR_RETURN(const std::string text, unpacked(std::move(packed), path));
    const auto known = planner::add_operator_csv(text, measurements);
    if (!known.ok()) return known.error().within(path);
    if (*known) continue;
    if (!folder)
      return bad(fmt::format("{}: line 1: must have the columns of a known table: {}", path, planner::known_operator_tables()));
    notes.push_back(path + ": skipped, since its columns match no known table");
  }
  if (measurements.has_tables() == measurements.has_vidur()) {
    return bad(fmt::format("{}: must hold files of one origin (got {}), each {}", flags.file,
                           measurements.has_vidur() ? "tables of aiconfigurator and profiles of Vidur" : "no measured operator",
                           planner::known_operator_tables()));
  }
  return measurements;
}

Result<planner::ModelShape> target_shape(const FitFlags& flags) {
  if (!flags.config.empty()) {
    WINDLASS_ASSIGN_OR_RETURN(const std::string text, read_text_file(flags.config, "a Hugging Face config.json"));
    auto shape = planner::model_shape_from_config_json(text);
    if (!shape.ok()) return shape.error().within(flags.config);
    return shape;
  }
  if (flags.target_model.empty()) {
    return bad("--target-model: must be given for --model operators, or --config: the model to compose from the operators");
  }
  auto shape = planner::model_shape_by_name(flags.target_model);
  if (!shape.ok()) {
    return bad(fmt::format("--target-model: must be {} (got '{}'); or use --config with a Hugging Face config.json",
                           fmt::join(planner::model_shape_names(), ", "), flags.target_model));
  }
  return shape;
}

// The number of GPUs of Vidur's samples, if --gpus is not given.
Result<int> gpus_for(const FitFlags& flags, const planner::OperatorMeasurements& measurements) {
  if (!measurements.has_vidur()) return flags.gpus.value_or(1);
  const std::vector<int> measured = planner::gpus_of(measurements.vidur);
  if (!flags.gpus && measured.size() == 1) return measured.front();
  if (flags.gpus && std::find(measured.begin(), measured.end(), *flags.gpus / flags.pipeline_parallel) != measured.end()) {
    return *flags.gpus;
  }
  return bad(fmt::format("--gpus: must be a number of GPUs that {} was measured with: {} (got {})", flags.file,
                         fmt::join(measured, ", "), flags.gpus ? std::to_string(*flags.gpus) : "none"));
}

Result<Fitted> fit_measured_operators(const FitFlags& flags, Step& step) {
  WINDLASS_ASSIGN_OR_RETURN(const planner::ModelShape shape, target_shape(flags));
  const auto accelerator = planner::accelerator_by_name(flags.accelerator);
  if (!accelerator.ok()) {
    return bad(fmt::format("--accelerator: must be {} for --model operators (got {})",
                           fmt::join(planner::accelerator_names(), ", "),
                           flags.accelerator.empty() ? "none" : fmt::format("'{}'", flags.accelerator)));
  }
  Fitted fitted;
  WINDLASS_ASSIGN_OR_RETURN(planner::OperatorMeasurements measurements, read_operators(flags, step, fitted.notes));
  if (measurements.vidur_hidden && *measurements.vidur_hidden != shape.hidden) {
    return bad(fmt::format("{}: n_embd: must be the model's (got {:.0f}, the model has {}); the profiles are of another model",
                           flags.file, *measurements.vidur_hidden, shape.hidden));
  }
  WINDLASS_ASSIGN_OR_RETURN(const int gpus, gpus_for(flags, measurements));
  if (gpus % flags.pipeline_parallel != 0) {
    return bad(
        fmt::format("--pipeline-parallel: must divide the number of GPUs (got {} for {} GPUs)", flags.pipeline_parallel, gpus));
  }
  planner::OperatorFitRequest request{shape, *accelerator, {}, flags.validation};
  request.options.pipeline_parallel = flags.pipeline_parallel;
  request.options.tensor_parallel = gpus / flags.pipeline_parallel;
  const auto weights = planner::gemm_kind(shape);
  if (!weights.ok()) return weights.error().within(flags.config.empty() ? flags.target_model : flags.config);
  request.options.weights = *weights;
  const bool vidur = measurements.has_vidur();
  if (vidur) {
    auto tables = planner::tables_of(measurements.vidur, shape, request.options.tensor_parallel);
    if (!tables.ok()) return tables.error().within(flags.file);
    measurements.tables = std::move(tables->tables);
    request.options.overhead = tables->overhead;
  }
  step.say("fitting, and validating on held-out measurements");
  auto fit = planner::fit_operators(measurements.tables, request);
  if (!fit.ok()) return fit.error().within(flags.file);
  fitted.profile = std::move(fit->profile);
  fitted.notes.insert(fitted.notes.end(), fit->notes.begin(), fit->notes.end());
  if (!measurements.devices.empty()) {
    fitted.notes.push_back(fmt::format("according to the tables, measured on {}", fmt::join(measurements.devices, ", ")));
  }
  fitted.profile.source.format = vidur ? "VidurProfiles" : "OperatorTables";
  fitted.profile.model = flags.target_model.empty() ? shape.architecture : flags.target_model;
  return fitted;
}

// Returns false and prints why if the errors are beyond the bound.
Result<bool> fit(const FitFlags& flags, Console& console) {
  Result<Fitted> fitted = [&] {
    Step step(console);
    return flags.model == "operators" ? fit_measured_operators(flags, step) : fit_file(flags, step);
  }();
  if (!fitted.ok()) return fitted.error();
  if (!flags.html.empty()) {
    WINDLASS_ASSIGN_OR_RETURN(const std::string page,
                              profile_page(fitted->profile, points_of(fitted->rows), error_text(*fitted)));
    WINDLASS_RETURN_IF_ERROR(write_whole_file(flags.html, page));
  }
  const bool bounded = !flags.max_error.empty() || fitted->profile.source.format == "BenchmarkResults";
  const std::string problem =
      bounded ? phases_beyond(fitted->profile, share_of(flags.max_error).value_or(kUsualMaxError)) : std::string();
  if (!problem.empty() && !flags.output_anyway) {
    tell_refused("fit", problem, fitted->notes, true, console);
    return false;
  }
  WINDLASS_RETURN_IF_ERROR(write_profile(
      std::move(fitted).value(),
      {std::filesystem::path(flags.file).lexically_normal().string(), flags.name, flags.kv_capacity_tokens, flags.output},
      console));
  if (!problem.empty()) console.err << "windlass fit: " << problem << "\n";
  return problem.empty();
}

}  // namespace

void add_fit(CLI::App& app, CommandContext& context) {
  auto* command = app.add_subcommand("fit", "Fit a latency model to measurements and write it as a PerformanceProfile");
  auto flags = std::make_shared<FitFlags>();
  command
      ->add_option("-f,--file", flags->file,
                   "Measurements: a CSV file, or benchmark results in a file or folder; for --model operators, CSV files in a "
                   "folder, or one file")
      ->required()
      ->option_text("SAMPLES REQUIRED");
  command
      ->add_option("--model", flags->model,
                   "linear: straight lines. profile: interpolated medians. operators: composed from operator times")
      ->required()
      ->check(CLI::IsMember({"linear", "profile", "operators"}))
      ->option_text("linear|profile|operators REQUIRED");
  command
      ->add_option("-o,--output", flags->output,
                   "Write the PerformanceProfile to this file; -: to stdout, with the error table on stderr")
      ->option_text("FILE [-]");
  command->add_option("--target-model", flags->target_model, "Name of the model in SAMPLES; for operators, in the catalog")
      ->option_text("NAME");
  command->add_option("--config", flags->config, "For operators: config.json of a model that is not in the catalog")
      ->option_text("FILE");
  command->add_option("--accelerator", flags->accelerator, "Name of the accelerator in SAMPLES; for operators, in the catalog")
      ->option_text("NAME");
  command->add_option("--gpus", flags->gpus, "GPUs per worker")->check(whole_between(1, 4096))->option_text("N");
  command->add_option("--pipeline-parallel", flags->pipeline_parallel, "For operators: pipeline stages among these GPUs")
      ->check(whole_between(1, 1024))
      ->option_text("N [1]");
  command->add_option("--name", flags->name, "Name of the PerformanceProfile; default: MODEL-ACCELERATOR-Ngpu")
      ->option_text("NAME");
  command->add_option("--form", flags->form, "For linear: aladdin, huawei, or best for the one with the smaller error")
      ->check(CLI::IsMember({"aladdin", "huawei", "best"}))
      ->capture_default_str();
  command->add_option("--reading", flags->reading, "For profile: batchShape, or batchTokens as in Splitwise's simulator")
      ->check(CLI::IsMember({"batchShape", "batchTokens"}))
      ->capture_default_str();
  command
      ->add_option("--kv-capacity-tokens", flags->kv_capacity_tokens,
                   "Tokens in a worker's KV cache; default: computed from its memory")
      ->check(whole_between(1, 1'000'000'000'000))
      ->option_text("N");
  command->add_option("--html", flags->html, "Write an HTML page that plots measurements and fit; not for operators")
      ->option_text("FILE");
  command
      ->add_option("--max-error", flags->max_error,
                   "Highest median error of each part on held-out measurements; above it no profile is written")
      ->check(percent_check())
      ->option_text("PERCENT [none; 20% for benchmark results]");
  command->add_flag("--output-anyway", flags->output_anyway,
                    "Write the profile even if its error is above --max-error; the exit code stays 1");
  command->add_option("--folds", flags->validation.folds, "Folds of the cross-validation")
      ->check(whole_between(2, 1000))
      ->capture_default_str();
  command->add_option("--seed", flags->validation.seed, "Seed of the folds")
      ->check(whole_between(0, std::int64_t{1} << 53))
      ->capture_default_str();
  command->footer("SAMPLES may be gzipped. For linear and profile: " + std::string(kSplitwise) + ". For operators: each file " +
                  planner::known_operator_tables() +
                  "; all of one accelerator. For linear also: " + std::string(kBenchmarkFiles) +
                  ". docs/fit.md has examples. Exit code 1: the error is above --max-error; 2: the input is wrong, with file, "
                  "line or field.");
  command->callback([&context, flags] {
    const auto done = fit(*flags, context.console);
    if (!done.ok()) {
      context.exit_code = report_chain_error(context.console.err, done.error());
    } else if (!*done) {
      context.exit_code = kFailed;
    }
  });
}

}  // namespace windlass::cli
