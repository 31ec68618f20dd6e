// Reads the -f files, checks references between their objects, and builds a snapshot; see object_files.h.
#include "controller/cli/console/object_files.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "controller/cli/console/text_file.h"
#include "controller/reconcile/live_calibration.h"
#include "controller/reconcile/spec.h"
#include "controller/runtime/local_model.h"
#include "planner/catalog/accelerators_by_name.h"

namespace windlass::cli {
namespace {

constexpr int kManyGpus = 4096;  // if no file says how many there are

void add_line(std::string& lines, const std::string& line) { lines += (lines.empty() ? "" : "\n") + line; }

Result<void> as_result(const std::string& mistakes) {
  if (mistakes.empty()) return {};
  return Error{ErrorCode::kInvalidArgument, mistakes};
}

std::string place(const api::Object& object) { return fmt::format("{}:{}: {}", object.source, object.line, object.title()); }

// nullopt if the catalog does not know it.
std::optional<planner::AcceleratorSpec> catalog_class(const std::string& name) {
  const std::size_t vendor = name.find('-');
  auto spec = planner::accelerator_by_name(name);
  if (!spec.ok() && vendor != std::string::npos) spec = planner::accelerator_by_name(name.substr(vendor + 1));
  if (!spec.ok()) return std::nullopt;
  spec->name = name;
  return *spec;
}

}  // namespace

Result<std::vector<api::Object>> read_object_files(const std::vector<std::string>& paths) {
  std::vector<std::pair<std::string, std::string>> sources;
  std::string mistakes;
  for (const std::string& path : paths) {
    auto text = read_text_file(path, "a YAML file");
    if (text.ok()) {
      sources.emplace_back(path, std::move(text).value());
    } else {
      add_line(mistakes, text.error().message);
    }
  }
  WINDLASS_RETURN_IF_ERROR(as_result(mistakes));
  return api::load_objects(sources);
}

Result<void> check_references(const std::vector<api::Object>& objects, Classes allowed_classes) {
  const auto in_catalog = [&](const std::string& name) {
    return allowed_classes == Classes::kOfCatalogToo && catalog_class(name).has_value();
  };
  std::vector<std::string> classes;
  bool named = false;
  bool services = false;
  for (const auto& object : objects) {
    if (const auto* accelerator = std::get_if<api::AcceleratorClass>(&object.value))
      classes.push_back(accelerator->metadata.name);
    if (const auto* service = std::get_if<api::ModelService>(&object.value)) {
      services = true;
      named = named || !service->spec.accelerators.empty();
    }
  }
  const bool may_lack = allowed_classes == Classes::kOfCatalogToo && named;
  std::string mistakes;
  if (!services) add_line(mistakes, "the files must define at least one ModelService (got none)");
  if (classes.empty() && !may_lack)
    add_line(mistakes, "the files must define at least one AcceleratorClass, the hardware that workers run on (got none)");
  for (const auto& object : objects) {
    const auto* service = std::get_if<api::ModelService>(&object.value);
    if (!service || (classes.empty() && !may_lack)) continue;
    for (std::size_t i = 0; i < service->spec.accelerators.size(); ++i) {
      const std::string& name = service->spec.accelerators[i].accelerator_class;
      if (std::find(classes.begin(), classes.end(), name) != classes.end() || in_catalog(name)) continue;
      std::string allowed;
      for (const auto& known : classes) allowed += (allowed.empty() ? "" : ", ") + known;
      add_line(mistakes,
               fmt::format("{}: spec.accelerators[{}].class: must be an AcceleratorClass of the files{}{}{} (got '{}')",
                           place(object), i, allowed.empty() ? "" : ": ", allowed, may_lack ? " or one of docs/catalog.md" : "",
                           name));
    }
  }
  return as_result(mistakes);
}

Result<void> check_models(const std::vector<api::Object>& objects) {
  std::string mistakes;
  for (const auto& object : objects) {
    const auto* service = std::get_if<api::ModelService>(&object.value);
    if (!service) continue;
    const auto model = controller::local_model(service->spec.model.uri, "");
    if (!model.ok()) add_line(mistakes, fmt::format("{}: {}", place(object), model.error().message));
  }
  return as_result(mistakes);
}

planner::Snapshot quiet_snapshot(const std::vector<api::Object>& objects) {
  planner::Snapshot snapshot;
  for (const auto& object : objects) {
    if (const auto* service = std::get_if<api::ModelService>(&object.value)) {
      snapshot.services.push_back(controller::to_planner(*service, controller::model_shape_of(service->spec)));
    } else if (const auto* accelerator = std::get_if<api::AcceleratorClass>(&object.value)) {
      snapshot.accelerators.push_back(controller::to_planner(*accelerator, controller::capacity_from_spec(*accelerator)));
    }
  }
  add_profiles(snapshot, objects);
  return snapshot;
}

void add_profiles(planner::Snapshot& snapshot, const std::vector<api::Object>& objects) {
  std::vector<const api::ModelService*> services;  // in the snapshot's order
  std::vector<api::PerformanceProfile> profiles;
  for (const auto& object : objects) {
    if (const auto* service = std::get_if<api::ModelService>(&object.value)) services.push_back(service);
    if (const auto* profile = std::get_if<api::PerformanceProfile>(&object.value)) {
      profiles.push_back(*profile);
      if (profiles.back().metadata.uid.empty()) profiles.back().metadata.uid = object.title();  // files have no uid
    }
  }
  if (profiles.empty()) return;
  const std::vector<controller::Worker> none;
  std::vector<controller::LiveCalibration::ServiceView> views;
  for (std::size_t i = 0; i < services.size(); ++i) views.push_back({services[i], &snapshot.services[i], &none});
  controller::LiveCalibration calibration;
  calibration.step(views, snapshot.accelerators, profiles, nullptr);
  for (std::size_t i = 0; i < services.size(); ++i) snapshot.services[i].estimates = calibration.estimates(*services[i]);
}

std::vector<std::string> add_catalog_classes(planner::Snapshot& snapshot) {
  std::map<std::string, int> gpus;
  for (const planner::Service& service : snapshot.services) {
    for (const planner::AllowedAccelerator& allowed : service.accelerators) {
      const bool there = std::any_of(snapshot.accelerators.begin(), snapshot.accelerators.end(),
                                     [&](const auto& state) { return state.spec.name == allowed.accelerator; });
      if (!there) gpus[allowed.accelerator] += allowed.max_gpus.value_or(kManyGpus);
    }
  }
  std::vector<std::string> added;
  for (const auto& [name, most] : gpus) {
    auto spec = catalog_class(name);
    if (!spec) continue;
    planner::AcceleratorState state;
    state.spec = std::move(*spec);
    state.mode = planner::CapacityMode::kElastic;
    state.max_gpus = most;
    snapshot.accelerators.push_back(std::move(state));
    added.push_back(name);
  }
  return added;
}

}  // namespace windlass::cli
