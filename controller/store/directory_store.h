// DirectoryStore is the ObjectStore for a folder, for `windlass up`.
//
//   DIR/objects/*.yaml                        ModelServices, AcceleratorClasses and PerformanceProfiles, written by people
//   DIR/status/<kind>/<namespace>.<name>.json the whole object with its status, written here, atomically
//   DIR/events.jsonl                          events, one per line
//
// A file with a mistake keeps its last good objects and shows in problem(). A changed file is read once it has stayed the same
// for one step. The store assigns uid, generation and creation time, and finds them again in the status file after a restart.
#pragma once

#include <filesystem>
#include <map>

#include "controller/store/object_store.h"

namespace windlass::controller {

class DirectoryStore final : public ObjectStore {
 public:
  // Creates the folders. Error: that failed.
  [[nodiscard]] static Result<DirectoryStore> open(const std::filesystem::path& directory);

  void step(Instant now) override;
  [[nodiscard]] bool synced() const override { return synced_; }
  [[nodiscard]] std::string problem() const override { return problem_; }
  [[nodiscard]] const std::set<std::string>& unreadable_uids() const override { return none_unreadable_; }
  [[nodiscard]] const std::set<std::string>& foreign_uids() const override { return none_unreadable_; }
  [[nodiscard]] bool collects_garbage() const override { return false; }
  [[nodiscard]] const std::vector<api::ModelService>& model_services() const override { return services_; }
  [[nodiscard]] const std::vector<api::AcceleratorClass>& accelerator_classes() const override { return classes_; }
  [[nodiscard]] const std::vector<api::PerformanceProfile>& performance_profiles() const override { return profiles_; }
  // Empty: problem() reports mistakes by file.
  [[nodiscard]] const std::vector<BrokenObject>& broken_objects() const override { return none_broken_; }
  [[nodiscard]] Result<void> write_status(const api::ModelService& object, const api::ModelServiceStatus& status) override;
  [[nodiscard]] Result<void> write_status(const api::AcceleratorClass& object,
                                          const api::AcceleratorClassStatus& status) override;
  [[nodiscard]] Result<void> write_status(const api::PerformanceProfile& object,
                                          const api::PerformanceProfileStatus& status) override;
  [[nodiscard]] Result<void> write_condition(const BrokenObject&, const api::Condition&) override { return {}; }
  [[nodiscard]] Result<void> record_event(const api::ModelService& object, bool warning, const std::string& reason,
                                          const std::string& message, Instant now) override;
  [[nodiscard]] Result<std::string> config_map_value(const std::string& name_space, const api::KeyRef& ref,
                                                     Instant now) override;
  [[nodiscard]] Result<int> priority(const std::string& priority_class, Instant now) override;

 private:
  explicit DirectoryStore(std::filesystem::path directory) : directory_(std::move(directory)) {}

  struct Source {
    std::filesystem::file_time_type modified;
    std::uintmax_t size = 0;
    bool settled = false;    // unchanged for a whole step, so nobody is writing it
    std::string text;        // the last text without mistakes
    std::string bad_reason;  // the current problem of the file
  };

  void rebuild(Instant now);
  [[nodiscard]] std::filesystem::path status_file(const std::string& kind, const api::ObjectMeta& metadata) const;
  template <class Object>
  void adopt(Object& object, const std::vector<Object>& before, Instant now) const;
  [[nodiscard]] Result<void> write_file(const std::filesystem::path& path, const std::string& text) const;

  std::filesystem::path directory_;
  std::map<std::filesystem::path, Source> sources_;
  std::vector<api::ModelService> services_;
  std::vector<api::AcceleratorClass> classes_;
  std::vector<api::PerformanceProfile> profiles_;
  std::string problem_;
  std::set<std::string> none_unreadable_;
  std::vector<BrokenObject> none_broken_;
  bool synced_ = false;
};

}  // namespace windlass::controller
