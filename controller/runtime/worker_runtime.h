// WorkerRuntime is where workers run: Kubernetes pods or processes on this machine. The reconciler does not know which.
//
// Level-based: workers() returns the current workers, and the other methods request changes that appear in a later workers().
// Every method may be repeated after a crash of the controller with the same final result: a worker's name depends only on
// service, pool and slot, not on the role, so a second create is a conflict (kAlreadyExists). Single-threaded, driven by
// step().
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "controller/api/toleration.h"
#include "planner/base/instant.h"
#include "planner/base/result.h"
#include "planner/deployment/engine_settings.h"
#include "planner/policy/snapshot.h"

namespace windlass::controller {

// A variable of a worker's environment: a value, or a key (name, key) of a Secret or ConfigMap in its namespace.
struct WorkerEnv {
  std::string name;
  std::string value;
  std::optional<std::pair<std::string, std::string>> secret;
  std::optional<std::pair<std::string, std::string>> config_map;

  bool operator==(const WorkerEnv&) const = default;
};

// The specification of a worker. The reconciler fills it in from the ModelService and the plan.
struct Launch {
  std::string name;  // unique within the namespace
  std::string name_space;
  std::string service;      // the ModelService that owns it
  std::string service_uid;  // workers are adopted by this UID, never by name alone
  std::string pool;
  int slot = 0;
  std::string role;  // "unified", "prefill" or "decode"

  std::string accelerator;    // AcceleratorClass
  std::string resource_name;  // the class's resource, e.g. nvidia.com/gpu
  std::map<std::string, std::string> node_selector;
  std::vector<api::Toleration> tolerations = {};  // the class's; see taints.h
  int gpus = 1;                                   // of all its servers
  int stages = 1;                                 // servers (planner::GpuSplit), each a pod or process of its own
  int stage = 0;                                  // which of them this is; a whole worker is its first one
  int layers = 0;                                 // of the model, for chains
  int max_concurrency = 1;                        // requests that it may run at the same time
  planner::EngineSettings settings = {};          // Pool::spec.engine

  std::string engine;   // "Windlass" or another engine type
  std::string image;    // empty: the runtime's default
  std::string program;  // for a process on this machine; empty: found by engine. Pods use the program of their image
  std::vector<std::string> extra_args;
  std::vector<WorkerEnv> env;
  std::string pod_template_json;  // spec.engine.podTemplate, "" if absent; ignored for processes

  std::string served_name;
  std::string model_uri;  // hf://, file:// or pvc://
  int max_context_tokens = 0;
  double drain_timeout_s = 0;
  std::string priority_class;
  // What a pod requests of its node, in bytes; 0: the least. Not in the hash, since a running pod needs no restart for them.
  double memory_bytes = 0;
  double storage_bytes = 0;

  bool operator==(const Launch&) const = default;

  [[nodiscard]] int gpus_of_server() const { return gpus / stages; }

  // Whether it serves only one phase of requests.
  [[nodiscard]] bool has_phase() const { return role == "prefill" || role == "decode"; }

  // The hash that a worker is recorded with. It covers only what requires a restart: not the name and slot, not the role (nor
  // the pool's name, which depends on it) and not the concurrency, unless a strategy chose it. Workers with equal hashes are
  // interchangeable; a worker whose hash differs from the wanted one is replaced. The hash covers only values that a user set
  // or a strategy chose. Defaults, and what a version of Windlass adds to a pod itself, are excluded, so that an upgrade
  // restarts no worker.
  //
  // The format is "v2-" and 16 hexadecimal digits. A version with a different hash writes its own next to the former one,
  // separated by a space, so that each version finds its own. Today "v1-..." follows, for a rollback to the former version.
  [[nodiscard]] std::string hash() const;
  // All hashes that this version or an earlier one may have recorded for a worker with this launch.
  [[nodiscard]] std::string known_hashes() const;
  // Whether a worker recorded with this hash matches this launch. Callers that check many workers pass the result of
  // `known_hashes` in.
  [[nodiscard]] bool matches(const std::string& recorded_hash) const { return matches(recorded_hash, known_hashes()); }
  [[nodiscard]] static bool matches(std::string_view recorded_hash, std::string_view known_hashes);
};

// Where one of a chain's servers is.
struct ChainServer {
  std::string address;  // "host:port", empty until it is known
  std::string node;     // empty: none yet

  bool operator==(const ChainServer&) const = default;
};

// Time in seconds for a worker to exit after its requests have ended.
inline constexpr double kExitS = 15;

// The current state of a worker.
struct Worker {
  std::string name;
  std::string name_space;
  std::string service;
  std::string service_uid;
  std::string instance;  // the Windlass installation that started it
  std::string pool;
  int slot = 0;
  std::string role;
  std::string accelerator;
  int gpus = 0;           // as in Launch
  int stages = 1;         // as in Launch
  int stage = 0;          // as in Launch
  int ready_servers = 0;  // of a chain, those that are ready and not ending
  int max_concurrency = 1;
  std::string spec_hash;

  std::vector<ChainServer> later;  // a chain's servers after the first one, if this is the whole chain
  std::string address;             // "host:port", empty until it is known
  std::string token;               // callers must send this token; empty: none needed. Never log it
  std::string duty_token;          // allows changes of its role; empty: its role cannot be changed. Never log it
  bool ready = false;
  bool failed = false;         // it ended or keeps crashing; see message
  bool unschedulable = false;  // no node has room for it
  bool gated = false;          // its scheduling gates hold it back, as Kueue does until a quota admits it
  bool terminating = false;    // it was asked to end
  bool finished = false;       // nothing of it is running
  std::string node;            // node that it runs on; empty: none yet
  // the pod's own readiness, if its node does not answer and `ready` is therefore false
  bool says_ready = false;
  bool node_gone = false;                  // its node no longer exists, so nothing runs there
  bool node_leaving = false;               // its node is being emptied, so it should be replaced elsewhere
  std::optional<double> draining_since_s;  // wall clock; set by begin_drain()
  // wall clock; set by begin_role_change(). `role` is the new one already, and the worker takes no requests until it has it
  std::optional<double> changing_role_since_s;
  double created_s = 0;               // wall clock
  std::optional<double> scheduled_s;  // wall clock, if known: when it got a node
  std::optional<double> ready_s;
  planner::WorkerTrouble trouble = planner::WorkerTrouble::kNone;
  std::string message;  // why it is not ready, if known

  std::string uid;               // of this incarnation
  std::string resource_version;  // a delete applies to this version only

  // Whether it is ready in the role that it is labelled with.
  [[nodiscard]] bool serves_its_role() const { return ready && !changing_role_since_s; }
  [[nodiscard]] int gpus_of_server() const { return gpus / stages; }
  // Of each of its servers, in order; empty where a server has none yet.
  [[nodiscard]] std::vector<std::string> nodes() const {
    std::vector<std::string> all = {node};
    for (const ChainServer& server : later) all.push_back(server.node);
    return all;
  }

  bool operator==(const Worker&) const = default;
};

// Current GPUs of one AcceleratorClass, on nodes that take new workers.
struct GpuCapacity {
  int nodes = 0;
  int allocatable = 0;
  int used_by_others = 0;                          // held by pods that Windlass does not own
  std::vector<planner::NodeState> each_node = {};  // by name, unschedulable ones too; empty if the runtime has no nodes
};

// Selects the GPUs of a class, for counting.
struct ClassSelector {
  std::string name;
  std::string resource_name;
  std::map<std::string, std::string> node_selector;
  std::vector<api::Toleration> tolerations = {};
};

// The number of a service's ready pods that voluntary disruptions, such as emptying a node, must leave.
struct DisruptionBudget {
  std::string name_space;
  std::string service;
  std::string service_uid;
  int min_available = 0;  // 0: the service has no workers, so nothing needs protection
};

class WorkerRuntime {
 public:
  virtual ~WorkerRuntime() = default;

  // Processes what has happened since the last step. Errors show in problem() and are retried by later steps.
  virtual void step(Instant now) = 0;

  // Reads everything again, because the data may be older than the cluster's current state. Until that is done, synced() is
  // false.
  virtual void read_anew(Instant /*now*/) {}

  // Whether workers() is complete. Before that, nothing may be decided.
  [[nodiscard]] virtual bool synced() const = 0;

  // The last step's problem, "" if there was none.
  [[nodiscard]] virtual std::string problem() const = 0;

  // In order of (namespace, name).
  [[nodiscard]] virtual std::vector<Worker> workers() const = 0;

  [[nodiscard]] virtual std::map<std::string, GpuCapacity> capacity(const std::vector<ClassSelector>& classes) const = 0;

  // Asks the cluster whether it would accept such a worker, without creating one. kResourceExhausted: only a quota prevents it.
  // kUnavailable: the cluster could not be asked.
  [[nodiscard]] virtual Result<void> check(const Launch& spec) = 0;

  [[nodiscard]] virtual Result<void> create(const Launch& spec) = 0;

  // Whether something that is not in workers() has this name.
  [[nodiscard]] virtual bool name_taken(const std::string& name_space, const std::string& name) const = 0;

  // The cluster asked for no writes before this time (Retry-After); monotonic.
  [[nodiscard]] virtual double not_before_s() const = 0;

  // Sets the disruption budgets of these services and leaves others alone. Writes only differences.
  [[nodiscard]] virtual Result<void> set_disruption_budgets(const std::vector<DisruptionBudget>& budgets) = 0;

  // Ends what is left of workers of which a part has ended. Called by a leader only; step() changes nothing in the cluster.
  [[nodiscard]] virtual Result<void> settle(Instant /*now*/) { return {}; }

  // Marks the worker as draining, in a place where the next leader finds the mark. The worker keeps running.
  [[nodiscard]] virtual Result<void> begin_drain(const Worker& worker, Instant now) = 0;

  // Gives the worker another role ("prefill" or "decode"), in a place where the next leader and a restarted worker find it. It
  // then counts as changing until end_role_change(); the caller tells the worker itself in between.
  [[nodiscard]] virtual Result<void> begin_role_change(const Worker& worker, const std::string& role, Instant now) = 0;
  [[nodiscard]] virtual Result<void> end_role_change(const Worker& worker) = 0;

  // Asks the worker to end: it takes no new requests and has grace_s to finish those in flight and to exit (nullopt: the drain
  // timeout that it was started with, and kExitS), then it is killed.
  [[nodiscard]] virtual Result<void> terminate(const Worker& worker, std::optional<double> grace_s) = 0;

  // Removes a finished worker from workers(), where it would stay otherwise.
  [[nodiscard]] virtual Result<void> release(const Worker& worker) = 0;
};

}  // namespace windlass::controller
