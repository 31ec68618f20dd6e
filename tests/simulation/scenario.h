// Scenario: everything drawn from a seed before the first step: the cluster, the ModelServices, the load and the faults. Plain
// data, so that a test can also write one by hand.
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

// The load of one service: requests per second from this time on.
struct LoadStep {
  double from_s = 0;
  double rate_per_s = 0;
};

struct ServiceScenario {
  std::string name;
  nlohmann::json spec;  // of the ModelService
  std::vector<LoadStep> load;
  double output_tokens = 200;
  bool broken_image = false;  // its image can never be pulled: it serves nobody and must block nobody
};

// How often each fault occurs while faults are on. Zero: never. Rates are per second and object; chances are per try.
struct FaultPlan {
  fakes::FaultRates wire;
  double controller_crash_per_s = 0;  // restarts without memory
  double crash_between_writes = 0;    // chance per write: the process dies before the next one
  double controller_pause_per_s = 0;  // pauses between two steps
  double pause_before_write = 0;      // chance per write: pauses after the leadership check and before the write
  double wall_jump_per_s = 0;         // of one controller's wall clock, forwards or backwards
  double api_down_per_s = 0;
  double wire_partition_per_s = 0;  // of one controller from the API server
  double gateway_crash_per_s = 0;
  double gateway_partition_per_s = 0;  // of one gateway from the controllers
  double metrics_fault_per_s = 0;      // one gateway's metrics page: unreadable, NaN, series missing, counters reset
  double worker_metrics_fault_per_s = 0;
  double worker_crash_per_s = 0;  // per ready worker
  double worker_hang_per_s = 0;
  double crash_loop = 0;  // chance per started worker
  double image_pull_failure = 0;
  double slow_start = 0;
  double node_loss_per_s = 0;
  double foreign_pod_per_s = 0;    // another user's pod takes GPUs for a while
  double pod_kill_per_s = 0;       // a person deletes a worker's pod, gracefully or by force
  double quota_per_s = 0;          // a ResourceQuota refuses pods for a while
  double edit_per_s = 0;           // a person changes a ModelService
  double recreate_per_s = 0;       // a person deletes a ModelService and creates it again with the same name
  double broken_object_per_s = 0;  // an unreadable object appears, or an existing one becomes unreadable for a while
  double table_late_s = 0;         // a gateway gets its table up to this late
  double impatient_client = 0;     // chance per request that its client leaves early
  double strategy_edit_per_s = 0;  // a person asks for split phases, or for whole workers again
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

// An AcceleratorClass like those of the catalog, for nodes labelled with its name. `elastic_gpus`: GPUs up to which
// capacity.mode is Elastic.
[[nodiscard]] nlohmann::json accelerator_class(const std::string& name, const std::string& memory, const std::string& flops,
                                               const std::string& bandwidth, const std::string& price,
                                               std::optional<int> elastic_gpus = std::nullopt);

// Sets the strategy to Disaggregated with room for a pair, or to Replicated.
void set_split_phases(nlohmann::json& spec, bool split);

// A ModelService of llama3-8b; other fields are given as {"scaling": {...}} and so on.
[[nodiscard]] nlohmann::json service_spec(const std::string& served_name, const nlohmann::json& more);

// Draws the scenario of this seed.
[[nodiscard]] Scenario draw_scenario(std::uint64_t seed);

}  // namespace windlass::simulation
