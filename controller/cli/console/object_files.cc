// Reads the -f files, checks references between their objects, and builds a snapshot; see object_files.h.
#include "controller/cli/console/object_files.h"

#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "controller/cli/console/text_file.h"
#include "controller/reconcile/live_calibration.h"
#include "controller/reconcile/measured_profiles.h"
#include "controller/reconcile/spec.h"
#include "controller/runtime/local_model.h"
#include "planner/catalog/accelerators_by_name.h"
#include "planner/catalog/known_accelerators.h"

namespace windlass::cli {
namespace {

void add_line(std::string& lines, const std::string& line) { lines += (lines.empty() ? "" : "\n") + line; }

Result<void> as_result(const std::string& mistakes) {
  if (mistakes.empty()) return {};
  return Error{ErrorCode::kInvalidArgument, mistakes};
}

std::string place(const api::Object& object) { return fmt::format("{}:{}: {}", object.source, object.line, object.title()); }

std::vector<api::PerformanceProfile> profiles_of(const std::vector<api::Object>& objects) {
  std::vector<api::PerformanceProfile> profiles;
  for (const auto& object : objects) {
    const auto* profile = std::get_if<api::PerformanceProfile>(&object.value);
    if (profile == nullptr) continue;
    profiles.push_back(*profile);
    if (profiles.back().metadata.uid.empty()) profiles.back().metadata.uid = object.title();  // files have no uid
  }
  return profiles;
}

// What an unknown class lacks that a profile measured; empty if none did.
std::string missing_text(const std::vector<api::Object>& objects, const std::string& name) {
  for (const api::PerformanceProfile& profile : profiles_of(objects)) {
    if (profile.spec.accelerator != name) continue;
    return fmt::format(
        "; {} measures its times, but a plan also needs an AcceleratorClass {} with memory, memoryBandwidthBytesPerSecond, "
        "peakFlopsPerSecond and pricePerHour",
        profile.metadata.uid, name);
  }
  return "";
}

planner::AcceleratorState elastic(planner::AcceleratorSpec spec, int most_gpus) {
  planner::AcceleratorState state;
  state.spec = std::move(spec);
  state.mode = planner::CapacityMode::kElastic;
  state.max_gpus = most_gpus;
  return state;
}

// Whether a class is the catalog's, under its name or the chart's.
bool is_listed(const planner::Snapshot& snapshot, const std::string& catalog_name) {
  return std::any_of(snapshot.accelerators.begin(), snapshot.accelerators.end(), [&](const auto& state) {
    return state.spec.name == catalog_name || state.spec.name.ends_with("-" + catalog_name);
  });
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
  const bool catalog = allowed_classes == Classes::kOfCatalogToo;
  std::vector<std::string> classes;
  std::vector<planner::AcceleratorSpec> specs;
  bool services = false;
  for (const auto& object : objects) {
    if (const auto* accelerator = std::get_if<api::AcceleratorClass>(&object.value)) {
      classes.push_back(accelerator->metadata.name);
      specs.push_back(controller::to_planner(*accelerator, {}).spec);
    }
    services = services || std::holds_alternative<api::ModelService>(object.value);
  }
  const planner::KnownAccelerators known(std::move(specs));
  std::string mistakes;
  if (!services) add_line(mistakes, "the files must define at least one ModelService (got none)");
  if (classes.empty() && !catalog)
    add_line(mistakes, "the files must define at least one AcceleratorClass, the hardware that workers run on (got none)");
  for (const auto& object : objects) {
    const auto* service = std::get_if<api::ModelService>(&object.value);
    if (!service || (classes.empty() && !catalog)) continue;
    for (std::size_t i = 0; i < service->spec.accelerators.size(); ++i) {
      const std::string& name = service->spec.accelerators[i].accelerator_class;
      if (std::find(classes.begin(), classes.end(), name) != classes.end() || (catalog && known.find(name))) continue;
      const std::string allowed =
          catalog ? known.allowed() : fmt::format("an AcceleratorClass of the files: {}", fmt::join(classes, ", "));
      add_line(mistakes, fmt::format("{}: spec.accelerators[{}].class: must be {} (got '{}'){}", place(object), i, allowed,
                                     name, catalog ? missing_text(objects, name) : ""));
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

std::vector<std::string> add_profiles(planner::Snapshot& snapshot, const std::vector<api::Object>& objects) {
  std::vector<const api::ModelService*> services;  // in the snapshot's order
  for (const auto& object : objects) {
    if (const auto* service = std::get_if<api::ModelService>(&object.value)) services.push_back(service);
  }
  const std::vector<api::PerformanceProfile> profiles = profiles_of(objects);
  if (profiles.empty()) return {};
  const std::vector<controller::Worker> none;
  std::vector<controller::LiveCalibration::ServiceView> views;
  for (std::size_t i = 0; i < services.size(); ++i) views.push_back({services[i], &snapshot.services[i], &none});
  controller::LiveCalibration calibration;
  calibration.step(views, snapshot.accelerators, profiles, nullptr);
  const controller::MeasuredProfiles measured(profiles, snapshot.accelerators);
  for (std::size_t i = 0; i < services.size(); ++i) {
    snapshot.services[i].estimates = calibration.estimates(*services[i]);
    snapshot.services[i].transfers = measured.transfers(*services[i]);
  }
  std::vector<std::string> unused;
  for (const api::PerformanceProfile& profile : profiles) {
    const auto status = calibration.status_to_write(profile, 0, "");
    if (!status) continue;
    for (const api::Condition& usable : status->conditions) {
      if (usable.status != api::ConditionStatus::kTrue)
        unused.push_back(fmt::format("{}: not used: {}", profile.metadata.uid, usable.message));
    }
  }
  return unused;
}

std::vector<std::string> add_catalog_classes(planner::Snapshot& snapshot) {
  const planner::KnownAccelerators catalog;
  const bool no_classes = snapshot.accelerators.empty();
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
    auto spec = catalog.find(name);
    if (!spec) continue;
    snapshot.accelerators.push_back(elastic(*std::move(spec), most));
    added.push_back(name);
  }
  const bool all = no_classes && std::any_of(snapshot.services.begin(), snapshot.services.end(),
                                             [](const auto& service) { return service.accelerators.empty(); });
  if (!all) return added;
  for (const std::string& name : planner::accelerator_names()) {
    if (is_listed(snapshot, name)) continue;
    snapshot.accelerators.push_back(elastic(*catalog.find(name), kManyGpus));
    added.push_back(name);
  }
  return added;
}

}  // namespace windlass::cli
