// Scenario: everything that is drawn from a seed before the first step: the cluster, the ModelServices, the load and which
// faults are on. Plain data, so that a test can also write one by hand.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tests/fakes/fake_api_server.h"

namespace windlass::simulation {

inline constexpr const char* kNamespace = "default";

struct NodeGroup {
  std::string accelerator;  // AcceleratorClass
  int nodes = 1;
  int gpus_per_node = 4;
};

// The load of one service: requests per second from a time on.
struct LoadStep {
  double from_s = 0;
  double rate_per_s = 0;
};

struct ServiceScenario {
  std::string name;
  nlohmann::json spec;  // of the ModelService
  std::vector<LoadStep> load;
  double output_tokens = 200;
  bool broken_image = false;  // its image can never be pulled: it serves nobody, and must stop nobody
};

// How often each thing goes wrong while faults are on. Zero: never. Rates are per second and thing; chances per try.
struct FaultPlan {
  fakes::FaultRates wire;
  double controller_crash_per_s = 0;  // comes back with nothing remembered
  double crash_between_writes = 0;    // chance per write: the process dies before the next one
  double controller_pause_per_s = 0;  // stands still between two steps
  double pause_before_write = 0;      // chance per write: stands still between the gate and the wire
  double wall_jump_per_s = 0;         // of one controller's wall clock, forwards or backwards
  double api_down_per_s = 0;
  double wire_partition_per_s = 0;  // of one controller from the API server
  double gateway_crash_per_s = 0;
  double gateway_partition_per_s = 0;  // of one gateway from the controllers
  double metrics_fault_per_s = 0;      // of one gateway's page: unreadable, NaN, series missing, counters reset
  double worker_metrics_fault_per_s = 0;
  double worker_crash_per_s = 0;  // per ready worker
  double worker_hang_per_s = 0;
  double crash_loop = 0;  // chance per started worker
  double image_pull_failure = 0;
  double slow_start = 0;
  double node_loss_per_s = 0;
  double foreign_pod_per_s = 0;    // somebody else's pod takes GPUs for a while
  double pod_kill_per_s = 0;       // a person deletes a worker's pod, gracefully or by force
  double quota_per_s = 0;          // a ResourceQuota refuses pods for a while
  double edit_per_s = 0;           // a person changes a ModelService
  double recreate_per_s = 0;       // a person deletes a ModelService and makes it anew under the same name
  double broken_object_per_s = 0;  // an object that cannot be read appears, or one turns so for a while
  double table_late_s = 0;         // a gateway gets its table up to so late
  double impatient_client = 0;     // chance per request that its client leaves early
  double strategy_edit_per_s = 0;  // a person wants split phases, or whole workers again
};

struct Scenario {
  std::uint64_t seed = 1;
  int controllers = 2;
  int gateways = 2;
  std::vector<NodeGroup> nodes;
  std::vector<nlohmann::json> classes;  // AcceleratorClasses
  std::vector<ServiceScenario> services;
  FaultPlan faults;
  double faults_from_s = 20;
  double faults_until_s = 260;
  double load_min_s = 2;  // a worker's time from start to ready
  double load_max_s = 10;
  bool verbose = false;
};

// An AcceleratorClass of the catalog's kind, on nodes labelled with its name. `elastic_gpus`: capacity.mode Elastic up to
// these.
[[nodiscard]] nlohmann::json accelerator_class(const std::string& name, const std::string& memory, const std::string& flops,
                                               const std::string& bandwidth, const std::string& price,
                                               std::optional<int> elastic_gpus = std::nullopt);

// Strategy Disaggregated with room for a pair, or Replicated.
void set_split_phases(nlohmann::json& spec, bool split);

// A ModelService of llama3-8b whose other fields are given as {"scaling": {...}} and the like.
[[nodiscard]] nlohmann::json service_spec(const std::string& served_name, const nlohmann::json& more);

// What the seed says.
[[nodiscard]] Scenario draw_scenario(std::uint64_t seed);

}  // namespace windlass::simulation
