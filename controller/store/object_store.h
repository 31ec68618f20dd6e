// ObjectStore holds the ModelServices, AcceleratorClasses and PerformanceProfiles. They come from the Kubernetes API or from a
// folder of YAML files.
//
// Level-based: the lists show the current objects. Single-threaded, driven by step(). Lists, and pointers into them, are valid
// until the next step().
#pragma once

#include <set>
#include <string>
#include <vector>

#include "controller/api/accelerator_class.h"
#include "controller/api/model_service.h"
#include "controller/api/performance_profile.h"
#include "planner/base/instant.h"
#include "planner/base/result.h"

namespace windlass::controller {

// An object whose current form cannot be read, for instance because a newer version wrote it.
struct BrokenObject {
  std::string kind;
  std::string name_space;
  std::string name;
  std::string uid;
  std::int64_t generation = 0;
  std::string message;  // the problem

  bool operator==(const BrokenObject&) const = default;
};

class ObjectStore {
 public:
  virtual ~ObjectStore() = default;

  // Processes changes since the last step. Problems show in problem() and are retried by later steps.
  virtual void step(Instant now) = 0;

  // Reads everything again, because the data may be older than the cluster's current state. Until that is done, synced() is
  // false.
  virtual void read_anew(Instant /*now*/) {}

  // Whether the lists of ModelServices and AcceleratorClasses are complete. Before that, nothing may be decided.
  [[nodiscard]] virtual bool synced() const = 0;

  // Current problems, as text for people: an API server that refuses, a file that does not parse. "" if there are none. An
  // object that cannot be read keeps its last good state.
  [[nodiscard]] virtual std::string problem() const = 0;

  // UIDs of ModelServices that exist but were never readable, for instance because a newer version wrote them. Their workers
  // must not be touched.
  [[nodiscard]] virtual const std::set<std::string>& unreadable_uids() const = 0;

  // UIDs of ModelServices that belong to another installation. Workers that we still run for them are ended.
  [[nodiscard]] virtual const std::set<std::string>& foreign_uids() const = 0;

  // Whether the store itself ends the workers of a deleted object, as Kubernetes' garbage collector does.
  [[nodiscard]] virtual bool collects_garbage() const = 0;

  // In order of (namespace, name).
  [[nodiscard]] virtual const std::vector<api::ModelService>& model_services() const = 0;
  [[nodiscard]] virtual const std::vector<api::AcceleratorClass>& accelerator_classes() const = 0;
  // Profiles known so far; synced() does not wait for them.
  [[nodiscard]] virtual const std::vector<api::PerformanceProfile>& performance_profiles() const = 0;
  // Unreadable objects of all three kinds. If one was readable before, its last good state is in the lists above.
  [[nodiscard]] virtual const std::vector<BrokenObject>& broken_objects() const = 0;

  [[nodiscard]] virtual Result<void> write_status(const api::ModelService& object, const api::ModelServiceStatus& status) = 0;
  [[nodiscard]] virtual Result<void> write_status(const api::AcceleratorClass& object,
                                                  const api::AcceleratorClassStatus& status) = 0;

  [[nodiscard]] virtual Result<void> write_status(const api::PerformanceProfile& object,
                                                  const api::PerformanceProfileStatus& status) = 0;
  // Writes one condition of an object that cannot be read, so its status as a whole cannot be written.
  [[nodiscard]] virtual Result<void> write_condition(const BrokenObject& object, const api::Condition& condition) = 0;

  // Records what happened to the service, for people. Best effort.
  [[nodiscard]] virtual Result<void> record_event(const api::ModelService& object, bool warning, const std::string& reason,
                                                  const std::string& message, Instant now) = 0;

  // One key of a ConfigMap in the service's namespace.
  [[nodiscard]] virtual Result<std::string> config_map_value(const std::string& name_space, const api::KeyRef& ref,
                                                             Instant now) = 0;

  // The value of a PriorityClass; 0 for an empty name.
  [[nodiscard]] virtual Result<int> priority(const std::string& priority_class, Instant now) = 0;
};

}  // namespace windlass::controller
