// Implements scenario.h.
#include "tests/simulation/scenario.h"

#include <algorithm>

#include <fmt/format.h>

#include "planner/base/rng.h"

namespace windlass::simulation {
namespace {

using nlohmann::json;

// Swarm testing: each kind of fault is off in half of the seeds and has a very different strength in the others, because a
// constant fault hides what another would show.
class Swarm {
 public:
  explicit Swarm(std::uint64_t seed) : random_(seed, "swarm") {}

  double rate(double most) { return random_.uniform() < 0.5 ? 0 : most * random_.uniform() * random_.uniform(); }

 private:
  Rng random_;
};

FaultPlan draw_faults(std::uint64_t seed) {
  Swarm swarm(seed);
  FaultPlan faults;
  faults.wire.drop_before = swarm.rate(0.15);
  faults.wire.drop_after = swarm.rate(0.15);
  faults.wire.error_429 = swarm.rate(0.1);
  faults.wire.retry_after_s = 1 + static_cast<int>(swarm.rate(40));
  faults.wire.error_500 = swarm.rate(0.15);
  faults.wire.error_503 = swarm.rate(0.1);
  faults.wire.cut_watch = swarm.rate(0.03);
  faults.wire.end_watch = swarm.rate(0.03);
  faults.wire.garble_watch = swarm.rate(0.02);
  faults.wire.duplicate_event = swarm.rate(0.3);
  faults.wire.late_watch = swarm.rate(0.8);
  faults.wire.late_watch_s = 4;
  faults.wire.half_open_watch = swarm.rate(0.2);
  faults.wire.refuse_watch = swarm.rate(0.3);
  faults.wire.gone_watch = swarm.rate(0.2);
  faults.wire.stale_list = swarm.rate(0.3);
  faults.wire.split_bytes = swarm.rate(0.5);
  faults.controller_crash_per_s = swarm.rate(0.04);
  faults.crash_between_writes = swarm.rate(0.05);
  faults.controller_pause_per_s = swarm.rate(0.03);
  faults.pause_before_write = swarm.rate(0.02);
  faults.wall_jump_per_s = swarm.rate(0.05);
  faults.api_down_per_s = swarm.rate(0.012);
  faults.wire_partition_per_s = swarm.rate(0.03);
  faults.gateway_crash_per_s = swarm.rate(0.02);
  faults.gateway_partition_per_s = swarm.rate(0.03);
  faults.metrics_fault_per_s = swarm.rate(0.05);
  faults.worker_metrics_fault_per_s = swarm.rate(0.05);
  faults.worker_crash_per_s = swarm.rate(0.05);
  faults.worker_hang_per_s = swarm.rate(0.03);
  faults.crash_loop = swarm.rate(0.3);
  faults.image_pull_failure = swarm.rate(0.3);
  faults.slow_start = swarm.rate(0.4);
  faults.node_loss_per_s = swarm.rate(0.03);
  faults.foreign_pod_per_s = swarm.rate(0.05);
  faults.pod_kill_per_s = swarm.rate(0.04);
  faults.quota_per_s = swarm.rate(0.02);
  faults.edit_per_s = swarm.rate(0.08);
  faults.recreate_per_s = swarm.rate(0.02);
  faults.broken_object_per_s = swarm.rate(0.02);
  faults.table_late_s = swarm.rate(8);
  faults.impatient_client = swarm.rate(0.05);
  faults.strategy_edit_per_s = swarm.rate(0.02);
  return faults;
}

ServiceScenario draw_service(Rng& random, int index) {
  ServiceScenario service;
  service.name = std::vector<std::string>{"chat", "code", "mail", "docs"}.at(static_cast<std::size_t>(index));
  json scaling = {{"strategy", "Replicated"},
                  {"minWorkers", random.integer(1, 2)},
                  {"maxWorkers", random.integer(2, 6)},
                  {"drainTimeout", fmt::format("{}s", random.integer(40, 120))},
                  {"behavior", {{"scaleDown", {{"stabilizationWindow", fmt::format("{}s", random.integer(20, 60))}}}}}};
  if (index == 1) {
    scaling["minWorkers"] = 0;
    scaling["idleToZeroAfter"] = fmt::format("{}s", random.integer(20, 60));
  }
  json accelerators = json::array();
  const auto which = random.integer(0, 2);
  if (which != 1) accelerators.push_back({{"class", "h100"}});
  if (which != 0) accelerators.push_back({{"class", "a100"}});
  if (random.uniform() < 0.3) accelerators[0]["maxGPUs"] = random.integer(1, 4);
  service.spec = service_spec(service.name, {{"scaling", scaling}, {"accelerators", accelerators}});
  if (random.uniform() < 0.6) {
    service.spec["priorityClassName"] = std::vector<std::string>{"gold", "silver", "bronze"}.at(random.bits() % 3);
  }
  if (random.uniform() < 0.2) service.spec["scaling"]["maxCostPerHour"] = fmt::format("{}", random.integer(4, 20));
  double at_s = 0;
  while (at_s < 300) {
    service.load.push_back({at_s, random.uniform() < 0.25 ? 0 : 4 * random.uniform() * random.uniform()});
    at_s += random.uniform(20, 120);
  }
  return service;
}

}  // namespace

json accelerator_class(const std::string& name, const std::string& memory, const std::string& flops,
                       const std::string& bandwidth, const std::string& price, std::optional<int> elastic_gpus) {
  json capacity = {{"mode", "Observed"}};
  if (elastic_gpus) capacity = {{"mode", "Elastic"}, {"maxGPUs", *elastic_gpus}};
  return {{"apiVersion", "windlass.dev/v1alpha1"},
          {"kind", "AcceleratorClass"},
          {"metadata", {{"name", name}}},
          {"spec",
           {{"resourceName", "nvidia.com/gpu"},
            {"nodeSelector", {{"class", name}}},
            {"memory", memory},
            {"peakFlopsPerSecond", {{"bf16", flops}}},
            {"memoryBandwidthBytesPerSecond", bandwidth},
            {"gpusPerNode", 4},
            {"pricePerHour", price},
            {"capacity", capacity}}}};
}

void set_split_phases(json& spec, bool split) {
  spec["scaling"]["strategy"] = split ? "Disaggregated" : "Replicated";
  if (!split) return;
  // A prefill and decode pair needs two of everything.
  if (spec["scaling"].value("maxWorkers", 2) < 2) spec["scaling"]["maxWorkers"] = 2;
  for (json& accelerator : spec["accelerators"]) {
    if (accelerator.value("maxGPUs", 2) < 2) accelerator["maxGPUs"] = 2;
  }
}

json service_spec(const std::string& served_name, const json& more) {
  json spec = {{"model", {{"servedName", served_name}, {"uri", "pvc://models/llama"}, {"architecture", "llama3-8b"}}},
               {"slo", {{"timeToFirstToken", "1s"}, {"timePerOutputToken", "25ms"}, {"percentile", 95}, {"window", "1m"}}},
               {"workload", {{"requestsPerSecond", 1}, {"inputTokens", 1000}, {"outputTokens", 200}}},
               {"accelerators", json::array({{{"class", "h100"}}})},
               {"scaling", {{"strategy", "Replicated"}, {"minWorkers", 1}, {"maxWorkers", 6}, {"drainTimeout", "10m"}}}};
  for (const auto& [key, value] : more.items()) {
    if (value.is_object()) {
      spec[key].update(value, true);
    } else {
      spec[key] = value;
    }
  }
  return spec;
}

Scenario draw_scenario(std::uint64_t seed) {
  Rng random(seed, "scenario");
  Scenario scenario;
  scenario.seed = seed;
  scenario.controllers = static_cast<int>(random.integer(1, 3));
  scenario.gateways = 2;
  const bool elastic = random.uniform() < 0.3;
  scenario.nodes = {{"h100", static_cast<int>(random.integer(1, 2)), 4}, {"a100", 1, static_cast<int>(random.integer(2, 4))}};
  scenario.classes = {accelerator_class("h100", "80Gi", "989T", "3350G", "3.69"),
                      accelerator_class("a100", "80Gi", "312T", "2039G", "1.79",
                                        elastic ? std::optional(scenario.nodes[1].gpus_per_node) : std::nullopt)};
  const int services = static_cast<int>(random.integer(2, 4));
  for (int i = 0; i < services; ++i) scenario.services.push_back(draw_service(random, i));
  Rng split(seed, "split phases");  // its own stream, so that the rest of the seed does not depend on it
  for (ServiceScenario& service : scenario.services) {
    if (split.uniform() < 0.15) set_split_phases(service.spec, true);
  }
  // Slow KV cache transfers between nodes: tables then weigh the pairs of prefill and decode workers.
  if (split.uniform() < 0.5) {
    for (json& one : scenario.classes) one["spec"]["interNodeLink"] = {{"bandwidthBytesPerSecond", "1G"}};
  }
  if (services > 2 && random.uniform() < 0.15) scenario.services.back().broken_image = true;
  scenario.faults = draw_faults(seed);
  scenario.faults_from_s = random.uniform() < 0.3 ? 0 : random.uniform(5, 60);
  scenario.faults_until_s = random.uniform(120, 300);
  return scenario;
}

}  // namespace windlass::simulation
