// KubernetesStore: an ObjectStore that is the Kubernetes API, by list and watch, in the namespaces of its scope alone. Status
// is written by server-side apply on the status subresource, so that it holds exactly what we say and nothing stale.
#pragma once

#include <map>
#include <optional>

#include "controller/kube/events.h"
#include "controller/kube/instance.h"
#include "controller/kube/kube_client.h"
#include "controller/kube/reflector_set.h"
#include "controller/store/object_store.h"

namespace windlass::controller {

// Which objects are this installation's, where a cluster has several. AcceleratorClasses are read by all; their status is
// written by the one whose label they carry.
struct StoreScope {
  std::string instance = kube::kDefaultInstance;
  std::set<std::string> namespaces;           // whose objects are read and served; empty: all
  std::set<std::string> plain_names = {"*"};  // namespaces whose served names stand without them; "*": all
};

class KubernetesStore final : public ObjectStore {
 public:
  // `client` outlives this. `instance` names this process in events. `seed`: of back-off jitter.
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
  static constexpr double kLookUpTtlS = 60;    // ConfigMaps, PriorityClasses and Namespaces are read again after this
  static constexpr double kLookUpKeepS = 600;  // and forgotten when nobody has asked for so long

  // Answers from the cache; reads anew where that is due. A failed read leaves the last good value in force and is soon
  // repeated. What nobody asks for any more is forgotten.
  template <class Read>
  const Result<std::string>& look_up(const std::string& what, Instant now, Read read);

  struct LookUp {
    double until_s = 0;  // monotonic
    double asked_s = 0;  // when somebody last wanted to know
    bool known = false;  // value has been read, or is known not to exist
    Result<std::string> value = std::string();
  };

  // The objects of one kind. Each is read once for each of its versions; one that cannot be read keeps its last good state.
  template <class Object>
  struct Kind {
    struct Entry {
      std::string version;               // version_key(); "": is read at every change
      std::optional<std::size_t> index;  // in `objects`
      std::optional<BrokenObject> broken;
      std::string foreign_uid = {};  // of another installation
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
  std::set<std::string> missing_namespaces_;  // of the scope
  double next_namespaces_s_ = 0;
  std::string problem_;
  std::set<std::string> unreadable_uids_;
  std::set<std::string> foreign_uids_;
  StoreScope scope_;
};

}  // namespace windlass::controller
