// DirectoryStore: an ObjectStore that is a folder, for `windlass up`.
//
//   DIR/objects/*.yaml                        ModelServices, AcceleratorClasses and PerformanceProfiles, written by people
//   DIR/status/<kind>/<namespace>.<name>.json the whole object with its status, written here (whole files, never half)
//   DIR/events.jsonl                          what happened, a line each
//
// A file that has a mistake keeps its last good objects and shows in problem(); one that changes is read
// once it has stayed the same for a step. uid, generation and creation time are given
// here and found again after a restart in the status file.
#pragma once

#include <filesystem>
#include <map>

#include "controller/store/object_store.h"

namespace windlass::controller {

class DirectoryStore final : public ObjectStore {
 public:
  // Makes the folders. Error: they cannot be made.
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
  // Mistakes are told by file, in problem().
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
    bool settled = false;    // unchanged for a whole step: nobody is in the middle of writing it
    std::string text;        // the last that could be read without a mistake
    std::string bad_reason;  // what is wrong with the file as it is now
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
