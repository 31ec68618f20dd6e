// WorkerRuntime: where workers run. Kubernetes pods or processes on this machine; the reconciler cannot tell which.
//
// Level-based: workers() says what is there now, the other methods ask for a change that shows up in a later workers().
// Every method may be called again after a crash of the controller and comes to the same end: names are fixed by service,
// pool and slot, whatever the role, so that a second create is a conflict (kAlreadyExists). Single-threaded, driven by step().
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "planner/base/instant.h"
#include "planner/base/result.h"
#include "planner/policy/snapshot.h"

namespace windlass::controller {

// One variable of a worker's environment: a value, or a key of a Secret or ConfigMap in its namespace (name, key).
struct WorkerEnv {
  std::string name;
  std::string value;
  std::optional<std::pair<std::string, std::string>> secret;
  std::optional<std::pair<std::string, std::string>> config_map;
};

// What a worker is to be. Filled in by the reconciler from the ModelService and the plan.
struct Launch {
  std::string name;  // unique within the namespace
  std::string name_space;
  std::string service;      // the ModelService that owns it
  std::string service_uid;  // by which it is adopted, never by its name alone
  std::string pool;
  int slot = 0;
  std::string role;  // "unified"; "prefill", "decode"

  std::string accelerator;    // AcceleratorClass
  std::string resource_name;  // the class' resource, e.g. nvidia.com/gpu
  std::map<std::string, std::string> node_selector;
  int gpus = 1;
  int max_concurrency = 1;  // requests it may run at once

  std::string engine;   // "Windlass" or another engine's type
  std::string image;    // empty: the runtime's own default
  std::string program;  // of a process on this machine; empty: found by the engine. Pods run what their image has
  std::vector<std::string> extra_args;
  std::vector<WorkerEnv> env;
  std::string pod_template_json;  // spec.engine.podTemplate, "" where there is none; ignored by processes

  std::string served_name;
  std::string model_uri;  // hf://, file:// or pvc://
  int max_context_tokens = 0;
  double drain_timeout_s = 0;
  std::string priority_class;

  // What a worker is recorded with. It covers what restarts a worker and nothing else: not its name and slot, not its role and
  // so not its pool's name, not its concurrency. Workers with one hash are interchangeable, and one whose hash is no longer the
  // wanted one is replaced. Only what a user says enters it, nothing that is as it is without a word, and nothing that a
  // version of Windlass adds to a pod by itself, so that an upgrade replaces nobody.
  //
  // "v2-" and 16 hexadecimal digits. A version that has to count in another way writes its own beside the former one, separated
  // by a space, so that each finds its own: behind it stands "v1-...", for a version that is rolled back to.
  [[nodiscard]] std::string hash() const;
  // All that a worker which is what this launch says may be recorded with, by this version or one before.
  [[nodiscard]] std::string known_hashes() const;
  // Whether a worker that was recorded with this hash is what this launch says; `known_hashes`: its own, for whoever asks
  // often.
  [[nodiscard]] bool matches(const std::string& recorded_hash) const { return matches(recorded_hash, known_hashes()); }
  [[nodiscard]] static bool matches(std::string_view recorded_hash, std::string_view known_hashes);
};

// What a worker is now.
struct Worker {
  std::string name;
  std::string name_space;
  std::string service;
  std::string service_uid;
  std::string instance;  // the installation of Windlass that started it
  std::string pool;
  int slot = 0;
  std::string role;
  std::string accelerator;
  int gpus = 0;
  int max_concurrency = 1;
  std::string spec_hash;

  std::string address;  // "host:port", empty until it is known
  std::string token;    // what it wants from whoever calls it; empty: nothing. Never to be logged
  bool ready = false;
  bool failed = false;                     // it ended or crashes again and again; see message
  bool unschedulable = false;              // no node has room for it
  bool terminating = false;                // it was told to end
  bool finished = false;                   // nothing of it runs any more
  std::string node;                        // where it runs; empty: nowhere yet
  bool says_ready = false;                 // its pod's own word, where its node does not answer and `ready` is false for that
  bool node_gone = false;                  // that node is no more: nothing can run there
  bool node_leaving = false;               // that node is being emptied: somebody else should take over
  std::optional<double> draining_since_s;  // wall clock; set by begin_drain()
  double created_s = 0;                    // wall clock
  std::optional<double> scheduled_s;       // wall clock, where known: it has a node
  std::optional<double> ready_s;
  planner::WorkerTrouble trouble = planner::WorkerTrouble::kNone;
  std::string message;  // why it is not ready, where that is known

  std::string uid;               // of this very incarnation
  std::string resource_version;  // what a delete must still find
};

// GPUs of one AcceleratorClass as they are.
struct GpuCapacity {
  int nodes = 0;
  int allocatable = 0;
  int used_by_others = 0;  // held by pods that Windlass does not own
};

// What the runtime needs to know of a class to count its GPUs.
struct ClassSelector {
  std::string name;
  std::string resource_name;
  std::map<std::string, std::string> node_selector;
};

// How many ready workers of a service voluntary disruptions (a node that is being emptied) must leave.
struct DisruptionBudget {
  std::string name_space;
  std::string service;
  std::string service_uid;
  int min_available = 0;  // 0: the service has no workers; nothing is to be protected
};

class WorkerRuntime {
 public:
  virtual ~WorkerRuntime() = default;

  // Takes in what has happened since the last step. Errors are retried by later steps and show in problem().
  virtual void step(Instant now) = 0;

  // What was read so far may lack what the cluster has by now: synced() is false until all has been read again.
  virtual void read_anew(Instant /*now*/) {}

  // Whether workers() is the whole truth yet. Nothing may be decided before.
  [[nodiscard]] virtual bool synced() const = 0;

  // The last step's trouble, "" if there was none.
  [[nodiscard]] virtual std::string problem() const = 0;

  // In the order of (namespace, name).
  [[nodiscard]] virtual std::vector<Worker> workers() const = 0;

  [[nodiscard]] virtual std::map<std::string, GpuCapacity> capacity(const std::vector<ClassSelector>& classes) const = 0;

  // Whether the cluster would accept such a worker, without making one. kResourceExhausted: only a quota stands against it;
  // kUnavailable: it could not be asked.
  [[nodiscard]] virtual Result<void> check(const Launch& spec) = 0;

  [[nodiscard]] virtual Result<void> create(const Launch& spec) = 0;

  // Whether something that is none of workers() holds this name.
  [[nodiscard]] virtual bool name_taken(const std::string& name_space, const std::string& name) const = 0;

  // The cluster has asked for no more writes before this time (Retry-After); monotonic.
  [[nodiscard]] virtual double not_before_s() const = 0;

  // Makes the disruption budgets of these services what is said; others are left alone. Writes only what differs.
  [[nodiscard]] virtual Result<void> set_disruption_budgets(const std::vector<DisruptionBudget>& budgets) = 0;

  // Marks the worker as draining where the next leader will find it. It goes on running.
  [[nodiscard]] virtual Result<void> begin_drain(const Worker& worker, Instant now) = 0;

  // Tells it to end: no new requests, those in flight are finished within grace_s (nullopt: the
  // drain timeout that it was started with), then it is killed.
  [[nodiscard]] virtual Result<void> terminate(const Worker& worker, std::optional<double> grace_s) = 0;

  // Lets go of a worker that has finished; without this it stays in workers().
  [[nodiscard]] virtual Result<void> release(const Worker& worker) = 0;
};

}  // namespace windlass::controller
