// Measures this machine through windlass-worker and builds the class; see this_machine.h.
#include "controller/cli/local/this_machine.h"

#include <algorithm>
#include <ostream>
#include <utility>
#include <variant>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "controller/cli/console/child_process.h"
#include "controller/kube/subprocess.h"
#include "planner/base/json_reader.h"

namespace windlass::cli {
namespace {

constexpr double kMeasuringTimeoutS = 120;
constexpr double kMemoryShare = 0.8;  // of the free memory; the rest is for other programs

bool is_missing(const std::vector<api::Object>& objects) {
  const auto is_there = [](const api::Object& object) {
    const auto* accelerator = std::get_if<api::AcceleratorClass>(&object.value);
    return accelerator != nullptr && accelerator->metadata.name == kThisMachine;
  };
  const auto names_it = [](const api::Object& object) {
    const auto* service = std::get_if<api::ModelService>(&object.value);
    return service != nullptr && std::any_of(service->spec.accelerators.begin(), service->spec.accelerators.end(),
                                             [](const auto& allowed) { return allowed.accelerator_class == kThisMachine; });
  };
  return std::any_of(objects.begin(), objects.end(), names_it) && std::none_of(objects.begin(), objects.end(), is_there);
}

}  // namespace

Result<std::string> this_machine_yaml(const std::string& figures) {
  WINDLASS_ASSIGN_OR_RETURN(const nlohmann::json value, parse_json(figures, "figures"));
  JsonReader reader(value, "");
  const int cores = reader.int32("threads", 1, 1024);
  const auto positive = [&](const char* key) {
    const double number = reader.number(key);
    if (!(number > 0)) reader.fail(key, number, "more than 0");
    return number;
  };
  const double bandwidth = positive("read_bytes_per_s");
  const double flops = positive("fp32_flops_per_s");
  const double memory = positive("free_memory_bytes");
  WINDLASS_RETURN_IF_ERROR(reader.first_mistake());
  return fmt::format(
      "# A core of this machine, measured while all {0} were busy.\n"
      "apiVersion: windlass.dev/v1alpha1\n"
      "kind: AcceleratorClass\n"
      "metadata:\n"
      "  name: {1}\n"
      "spec:\n"
      "  resourceName: windlass.dev/cpu\n"
      "  memory: {2:.0f}Mi\n"
      "  memoryBandwidthBytesPerSecond: {3:.3f}G\n"
      "  peakFlopsPerSecond: {{fp32: {4:.3f}G}}\n"
      "  gpusPerNode: {0}\n",
      cores, kThisMachine, kMemoryShare * memory / cores / (1 << 20), bandwidth / cores / 1e9, flops / cores / 1e9);
}

Result<std::string> add_this_machine(std::vector<api::Object>& objects, std::ostream& notes) {
  if (!is_missing(objects)) return std::string();
  WINDLASS_ASSIGN_OR_RETURN(const std::string worker, sibling_program("windlass-worker"));
  WINDLASS_ASSIGN_OR_RETURN(const kube::ProgramRun run, kube::run_program(worker, {"measure"}, {}, false, kMeasuringTimeoutS));
  const std::string what = fmt::format("AcceleratorClass {}: {} measure", kThisMachine, worker);
  if (run.exit_code != 0) {
    return Error{ErrorCode::kUnavailable, fmt::format("{}: exit status {}: {}", what, run.exit_code, run.err)};
  }
  auto yaml = this_machine_yaml(run.out);
  if (!yaml.ok()) return yaml.error().within(what);
  WINDLASS_ASSIGN_OR_RETURN(std::vector<api::Object> added, api::load_objects(*yaml, std::string(kThisMachine)));
  const auto& spec = std::get<api::AcceleratorClass>(added.front().value).spec;
  notes << fmt::format(
      "AcceleratorClass {}: not in the files; measured on this machine: {} cores, each {:.3g} GB/s and {:.3g} GFLOP/s while "
      "all are busy\n",
      kThisMachine, spec.gpus_per_node, spec.memory_bandwidth_bytes_per_s / 1e9, spec.peak_flops_per_s.begin()->second / 1e9);
  objects.push_back(std::move(added.front()));
  return yaml;
}

}  // namespace windlass::cli
