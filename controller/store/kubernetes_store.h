// KubernetesStore is the ObjectStore for the Kubernetes API. It lists and watches only the namespaces of its scope. It writes
// status by server-side apply on the status subresource, so that the status holds exactly what we set and nothing stale.
#pragma once

#include <map>
#include <optional>

#include "controller/kube/events.h"
#include "controller/kube/instance.h"
#include "controller/kube/kube_client.h"
#include "controller/kube/reflector_set.h"
#include "controller/store/object_store.h"

namespace windlass::controller {

// The objects of this installation, in a cluster with several. Every installation reads all AcceleratorClasses; only the one
// named in a class's label writes its status.
struct StoreScope {
  std::string instance = kube::kDefaultInstance;
  std::set<std::string> namespaces;           // namespaces whose objects are read and served; empty: all
  std::set<std::string> plain_names = {"*"};  // namespaces whose served names have no namespace prefix; "*": all
};

class KubernetesStore final : public ObjectStore {
 public:
  // `client` outlives this. `instance` names this process in events. `seed`: for back-off jitter.
  KubernetesStore(kube::KubeClient& client, const std::string& instance, std::uint64_t seed, StoreScope scope = {});

  void step(Instant now) override;
  void read_anew(Instant now) override;
  [[nodiscard]] bool synced() const override;
  [[nodiscard]] std::string problem() const override { return problem_; }
  [[nodiscard]] const std::set<std::string>& unreadable_uids() const override { return unreadable_uids_; }
  [[nodiscard]] const std::set<std::string>& foreign_uids() const override { return foreign_uids_; }
  [[nodiscard]] bool collects_garbage() const override { return true; }
  [[nodiscard]] const std::vector<api::ModelService>& model_services() const override { return services_.objects; }
  [[nodiscard]] const std::vector<api::AcceleratorClass>& accelerator_classes() const override { return classes_.objects; }
  [[nodiscard]] const std::vector<api::PerformanceProfile>& performance_profiles() const override { return profiles_.objects; }
  [[nodiscard]] const std::vector<BrokenObject>& broken_objects() const override { return broken_; }
  [[nodiscard]] Result<void> write_status(const api::ModelService& object, const api::ModelServiceStatus& status) override;
  [[nodiscard]] Result<void> write_status(const api::AcceleratorClass& object,
                                          const api::AcceleratorClassStatus& status) override;
  [[nodiscard]] Result<void> write_status(const api::PerformanceProfile& object,
                                          const api::PerformanceProfileStatus& status) override;
  [[nodiscard]] Result<void> write_condition(const BrokenObject& object, const api::Condition& condition) override;
  [[nodiscard]] Result<void> record_event(const api::ModelService& object, bool warning, const std::string& reason,
                                          const std::string& message, Instant now) override;
  [[nodiscard]] Result<std::string> config_map_value(const std::string& name_space, const api::KeyRef& ref,
                                                     Instant now) override;
  [[nodiscard]] Result<int> priority(const std::string& priority_class, Instant now) override;

 private:
  static constexpr double kLookUpRetryS = 5;
  static constexpr double kLookUpTtlS = 60;    // ConfigMaps, PriorityClasses and Namespaces are read again after this time
  static constexpr double kLookUpKeepS = 600;  // unused entries are dropped after this time

  // Returns the cached value, or reads it again if due. After a failed read the last good value stays in use, and the read is
  // retried soon. Unused entries are dropped.
  template <class Read>
  const Result<std::string>& look_up(const std::string& what, Instant now, Read read);

  struct LookUp {
    double until_s = 0;  // monotonic
    double asked_s = 0;  // last use
    bool known = false;  // the value has been read, or is known not to exist
    Result<std::string> value = std::string();
  };

  // The objects of one kind. Each version is parsed once; an object that cannot be read keeps its last good state.
  template <class Object>
  struct Kind {
    struct Entry {
      std::string version;               // version_key(); "": parse on every change
      std::optional<std::size_t> index;  // position in `objects`
      std::optional<BrokenObject> broken;
      std::string foreign_uid = {};  // if another installation's
    };
    std::vector<Object> objects;
    std::map<std::string, Entry> entries;  // by the cache's keys
    std::uint64_t generation = 0;
    std::uint64_t lists = 0;
  };
  template <class Object, class Parse>
  [[nodiscard]] bool read_changed(const kube::ReflectorSet& cache, Kind<Object>& kind, Parse parse);
  void sum_up();
  void look_for_namespaces(Instant now);
  void forget_old_look_ups(Instant now);

  kube::KubeClient& client_;
  kube::ReflectorSet service_cache_;
  kube::ReflectorSet class_cache_;
  kube::ReflectorSet profile_cache_;
  kube::EventRecorder events_;
  Kind<api::ModelService> services_;
  Kind<api::AcceleratorClass> classes_;
  Kind<api::PerformanceProfile> profiles_;
  std::vector<BrokenObject> broken_;  // of all kinds
  std::map<std::string, LookUp> look_ups_;
  double next_forget_s_ = 0;
  std::set<std::string> missing_namespaces_;  // within the scope
  double next_namespaces_s_ = 0;
  std::string problem_;
  std::set<std::string> unreadable_uids_;
  std::set<std::string> foreign_uids_;
  StoreScope scope_;
};

}  // namespace windlass::controller
