// Chooses between fits and writes the profile as YAML with the table of its errors; see fitted_profile.h.
#include "controller/cli/profile/fitted_profile.h"

#include <algorithm>
#include <cmath>
#include <ostream>
#include <variant>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "controller/api/json.h"
#include "controller/api/validation.h"
#include "controller/api/yaml.h"
#include "controller/cli/console/text_table.h"
#include "controller/cli/profile/profile_problem.h"
#include "metrics/host/whole_file.h"
#include "planner/perf/profile_estimate.h"

namespace windlass::cli {
namespace {

double mean_error(const planner::PerformanceProfile& profile) {
  double sum = 0;
  for (const planner::FitError& error : profile.errors) sum += error.mape;
  return sum;
}

// Turns text into a valid object name: lower-case letters, digits and dashes.
std::string default_name(const planner::PerformanceProfile& profile) {
  std::string name;
  for (const char c : fmt::format("{}-{}-{}gpu", profile.model, profile.accelerator, profile.gpus_per_worker)) {
    const char lower = 'A' <= c && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    const bool fits = ('a' <= lower && lower <= 'z') || ('0' <= lower && lower <= '9');
    if (fits || (!name.empty() && name.back() != '-')) name += fits ? lower : '-';
  }
  return name.substr(0, 253);
}

// "16 to 1024 tokens".
std::string tokens_text(const planner::TokenRange& range) {
  return range.least < range.most ? fmt::format("{:.0f} to {:.0f} tokens", range.least, range.most)
                                  : fmt::format("{:.0f} tokens", range.most);
}

// Where the times were measured.
std::string range_text(const planner::PerformanceProfile& profile) {
  const auto fit = planner::iteration_model(profile, {}, {}, 1);
  if (!fit.ok()) return "";
  const planner::TokenRange contexts = (*fit)->measured_contexts();
  if (!std::isfinite(contexts.most)) return "";
  return fmt::format(
      "\nNine of ten times are expected within the factor of the last column. Measured: prompts of {}, contexts of {}, up to "
      "{} requests at once. A plan beyond that says so.\n",
      tokens_text((*fit)->measured_prompts()), tokens_text(contexts),
      planner::largest_measured_batch(**fit, (contexts.least + contexts.most) / 2));
}

}  // namespace

std::string error_text(const Fitted& fitted) {
  const planner::PerformanceProfile& profile = fitted.profile;
  const char* type = planner::fit_type(profile);
  std::string text =
      fmt::format("{} on {}, {} GPU{} per worker: {} fit of {} measurements{}\n", profile.model, profile.accelerator,
                  profile.gpus_per_worker, profile.gpus_per_worker == 1 ? "" : "s", type, profile.source.rows,
                  profile.source.left_out > 0 ? fmt::format(", {} left out", profile.source.left_out) : "");
  if (const auto* lines = std::get_if<planner::FittedLines>(&profile.fit)) {
    text += fmt::format("Form: {}\n", lines->form == planner::LinearForm::kAladdin ? "Aladdin" : "Huawei");
  }
  for (const std::string& note : fitted.notes) text += "Note: " + note + "\n";
  const bool unseen = std::any_of(profile.errors.begin(), profile.errors.end(),
                                  [](const planner::FitError& error) { return error.unseen_mape.has_value(); });
  text += fmt::format("Errors on held-out measurements, {} folds{}\n\n", profile.folds,
                      unseen ? "; new shapes: every run of one shape left out" : "");
  const bool times = !std::holds_alternative<planner::MeasuredOperators>(profile.fit);
  const planner::TimeErrors factors = planner::errors_of(profile);
  std::vector<std::string> header = {"PART", "SAMPLES", "MEAN", "MEDIAN", "LARGEST"};
  if (unseen) header.push_back("NEW SHAPES");
  if (times) header.push_back("90% INTERVAL");
  TextTable table(header);
  for (const planner::FitError& error : profile.errors) {
    std::vector<std::string> row = {error.part, std::to_string(error.samples), percent_text(error.mape),
                                    percent_text(error.median_ape), percent_text(error.max_ape)};
    if (unseen) row.push_back(percent_text(error.unseen_mape));
    if (times) row.push_back(fmt::format("x{:.2f}", error.part == "prefill" ? factors.ttft : factors.tpot));
    table.add(std::move(row));
  }
  return text + table.text() + (times ? range_text(profile) : "");
}

Result<planner::PerformanceProfile> fit_rows(const std::vector<planner::ProfileRow>& rows, const planner::ProfileKey& key,
                                             const RowFit& fit) {
  if (fit.model == "best") {
    RowFit one = fit;
    one.model = "linear";
    auto lines = fit_rows(rows, key, one);
    if (lines.ok() && worst_error(*lines) <= fit.max_error) return lines;
    one.model = "profile";
    auto medians = fit_rows(rows, key, one);
    return medians.ok() && (!lines.ok() || worst_error(*medians) < worst_error(*lines)) ? medians : lines;
  }
  if (fit.model == "profile") {
    const auto reading =
        fit.reading == "batchShape" ? planner::ProfileReading::kBatchShape : planner::ProfileReading::kBatchTokens;
    return planner::fit_cells(rows, key, reading, fit.validation);
  }
  if (fit.form == "aladdin") return planner::fit_lines(rows, key, planner::LinearForm::kAladdin, fit.validation);
  if (fit.form == "huawei") return planner::fit_lines(rows, key, planner::LinearForm::kHuawei, fit.validation);
  WINDLASS_ASSIGN_OR_RETURN(auto simple, planner::fit_lines(rows, key, planner::LinearForm::kAladdin, fit.validation));
  // The form with two more terms needs more samples. If there are too few, use the simple form.
  const auto full = planner::fit_lines(rows, key, planner::LinearForm::kHuawei, fit.validation);
  return full.ok() && mean_error(*full) < mean_error(simple) ? *full : simple;
}

void tell_refused(const std::string& command, const std::string& problem, const std::vector<std::string>& notes, bool could,
                  Console& console) {
  for (const std::string& note : notes) console.err << "Note: " << note << "\n";
  console.err << "windlass " << command << ": " << problem << "\nNothing was written"
              << (could ? "; --output-anyway writes this profile anyway.\n" : ".\n");
}

Result<void> write_profile(Fitted fitted, const ProfileOutput& output, Console& console) {
  planner::PerformanceProfile& profile = fitted.profile;
  profile.source.file = output.source;
  if (output.kv_capacity_tokens) profile.kv_capacity_tokens = static_cast<double>(*output.kv_capacity_tokens);
  api::PerformanceProfile object;
  object.metadata.name = output.name.empty() ? default_name(profile) : output.name;
  object.spec = profile;
  const nlohmann::json json = api::to_json(object);
  nlohmann::json checked = json;
  checked["metadata"]["namespace"] = "default";  // validate() needs one; kubectl apply decides
  if (const auto mistakes = api::validate(checked); !mistakes.empty()) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{}: must give a valid profile: {}", output.source, mistakes.front().text())};
  }
  const std::string yaml = api::to_yaml(json);
  if (output.file == "-") {
    console.out << yaml;
    console.err << error_text(fitted);
    return {};
  }
  WINDLASS_RETURN_IF_ERROR(write_whole_file(output.file, yaml));
  console.out << error_text(fitted) << "\nPerformanceProfile " << object.metadata.name << " written to " << output.file << "\n";
  return {};
}

}  // namespace windlass::cli
