// ObjectStore: where ModelServices, AcceleratorClasses and PerformanceProfiles are. The Kubernetes API, or a folder of YAML
// files.
//
// Level-based: the lists say what is there now. Single-threaded, driven by step(); lists and pointers into them hold until the
// next step().
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

// An object that is there and cannot be read as what it is now: written by a newer version, say.
struct BrokenObject {
  std::string kind;
  std::string name_space;
  std::string name;
  std::string uid;
  std::int64_t generation = 0;
  std::string message;  // what is wrong with it

  bool operator==(const BrokenObject&) const = default;
};

class ObjectStore {
 public:
  virtual ~ObjectStore() = default;

  // Takes in what has changed since the last step. Trouble is retried by later steps and shows in problem().
  virtual void step(Instant now) = 0;

  // What was read so far may lack what the cluster has by now: synced() is false until all has been read again.
  virtual void read_anew(Instant /*now*/) {}

  // Whether the lists of ModelServices and AcceleratorClasses are the whole truth yet. Nothing may be decided before.
  [[nodiscard]] virtual bool synced() const = 0;

  // What is wrong now, for a person: an API server that refuses, a file that does not parse. "" if nothing is. An object that
  // cannot be read keeps its last good state.
  [[nodiscard]] virtual std::string problem() const = 0;

  // UIDs of ModelServices that are there but cannot be read and were never read before: written by a newer version, say. Their
  // workers are not ours to touch.
  [[nodiscard]] virtual const std::set<std::string>& unreadable_uids() const = 0;

  // UIDs of ModelServices that belong to another installation: what works for them here is let go of.
  [[nodiscard]] virtual const std::set<std::string>& foreign_uids() const = 0;

  // Whether whoever keeps the objects also ends the workers of an object that is gone (Kubernetes' garbage collector does).
  [[nodiscard]] virtual bool collects_garbage() const = 0;

  // In the order of (namespace, name).
  [[nodiscard]] virtual const std::vector<api::ModelService>& model_services() const = 0;
  [[nodiscard]] virtual const std::vector<api::AcceleratorClass>& accelerator_classes() const = 0;
  // What is known of them; nothing waits for this list.
  [[nodiscard]] virtual const std::vector<api::PerformanceProfile>& performance_profiles() const = 0;
  // Objects of any of the three kinds; where they were read before, their last good state stands in the lists above.
  [[nodiscard]] virtual const std::vector<BrokenObject>& broken_objects() const = 0;

  [[nodiscard]] virtual Result<void> write_status(const api::ModelService& object, const api::ModelServiceStatus& status) = 0;
  [[nodiscard]] virtual Result<void> write_status(const api::AcceleratorClass& object,
                                                  const api::AcceleratorClassStatus& status) = 0;

  [[nodiscard]] virtual Result<void> write_status(const api::PerformanceProfile& object,
                                                  const api::PerformanceProfileStatus& status) = 0;
  // One condition of an object whose status as a whole cannot be written, since it cannot be read.
  [[nodiscard]] virtual Result<void> write_condition(const BrokenObject& object, const api::Condition& condition) = 0;

  // Tells people what happened to the service. Best effort.
  [[nodiscard]] virtual Result<void> record_event(const api::ModelService& object, bool warning, const std::string& reason,
                                                  const std::string& message, Instant now) = 0;

  // One key of a ConfigMap in the service's namespace.
  [[nodiscard]] virtual Result<std::string> config_map_value(const std::string& name_space, const api::KeyRef& ref,
                                                             Instant now) = 0;

  // The value of a PriorityClass; 0 for the empty name.
  [[nodiscard]] virtual Result<int> priority(const std::string& priority_class, Instant now) = 0;
};

}  // namespace windlass::controller
