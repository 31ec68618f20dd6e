// Reads -f files, checks what ties their objects together, and builds a snapshot from them; see object_files.h.
#include "controller/cli/object_files.h"

#include <algorithm>

#include <fmt/format.h>

#include "controller/cli/text_file.h"
#include "controller/reconcile/spec.h"
#include "controller/runtime/local_model.h"

namespace windlass::cli {
namespace {

void add_line(std::string& lines, const std::string& line) { lines += (lines.empty() ? "" : "\n") + line; }

Result<void> as_result(const std::string& mistakes) {
  if (mistakes.empty()) return {};
  return Error{ErrorCode::kInvalidArgument, mistakes};
}

std::string place(const api::Object& object) { return fmt::format("{}:{}: {}", object.source, object.line, object.title()); }

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

Result<void> check_references(const std::vector<api::Object>& objects) {
  std::vector<std::string> classes;
  bool services = false;
  for (const auto& object : objects) {
    if (const auto* accelerator = std::get_if<api::AcceleratorClass>(&object.value))
      classes.push_back(accelerator->metadata.name);
    services = services || std::holds_alternative<api::ModelService>(object.value);
  }
  std::string mistakes;
  if (!services) add_line(mistakes, "found no ModelService in the files; needed is at least one");
  if (classes.empty())
    add_line(mistakes, "found no AcceleratorClass in the files; needed is at least one: what the workers run on");
  for (const auto& object : objects) {
    const auto* service = std::get_if<api::ModelService>(&object.value);
    if (!service || classes.empty()) continue;
    for (std::size_t i = 0; i < service->spec.accelerators.size(); ++i) {
      const std::string& name = service->spec.accelerators[i].accelerator_class;
      if (std::find(classes.begin(), classes.end(), name) != classes.end()) continue;
      std::string allowed;
      for (const auto& known : classes) allowed += (allowed.empty() ? "" : ", ") + known;
      add_line(mistakes,
               fmt::format("{}: spec.accelerators[{}].class: found '{}', allowed are the files' AcceleratorClasses: {}",
                           place(object), i, name, allowed));
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
  return snapshot;
}

}  // namespace windlass::cli
