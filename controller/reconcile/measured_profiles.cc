// See measured_profiles.h.
#include "controller/reconcile/measured_profiles.h"

#include <algorithm>
#include <set>

namespace windlass::controller {
namespace {

// The AcceleratorClass of the profile: the class with its name, or, if it was measured under the catalog's name (h100-80gb),
// the class whose name ends in it (nvidia-h100-80gb).
std::string class_of(const api::PerformanceProfile& profile, const std::set<std::string>& classes) {
  const std::string& name = profile.spec.accelerator;
  if (classes.contains(name)) return name;
  for (const std::string& known : classes) {
    if (known.ends_with("-" + name)) return known;
  }
  return name;
}

}  // namespace

std::string profile_model(const api::ModelService& service) {
  return service.spec.model.architecture.empty() ? service.model_name() : service.spec.model.architecture;
}

MeasuredProfiles::MeasuredProfiles(const std::vector<api::PerformanceProfile>& profiles,
                                   const std::vector<planner::AcceleratorState>& accelerators) {
  std::set<std::string> classes;
  for (const planner::AcceleratorState& one : accelerators) classes.insert(one.spec.name);
  for (const api::PerformanceProfile& profile : profiles) {
    by_model_[{profile.metadata.name_space, profile.spec.model}].push_back({&profile, class_of(profile, classes)});
  }
}

std::vector<MeasuredWorker> MeasuredProfiles::of(const api::ModelService& service) const {
  std::vector<MeasuredWorker> out;
  for (const std::string& model : std::set<std::string>{profile_model(service), service.model_name()}) {
    if (const auto found = by_model_.find({service.metadata.name_space, model}); found != by_model_.end())
      out.insert(out.end(), found->second.begin(), found->second.end());
  }
  std::sort(out.begin(), out.end(), [](const MeasuredWorker& a, const MeasuredWorker& b) { return a.profile < b.profile; });
  return out;
}

std::vector<planner::TransferToWorker> MeasuredProfiles::transfers(const api::ModelService& service) const {
  std::vector<planner::TransferToWorker> out;
  for (const MeasuredWorker& one : of(service)) {
    const planner::PerformanceProfile& spec = one.profile->spec;
    const bool known = std::any_of(out.begin(), out.end(), [&](const planner::TransferToWorker& other) {
      return other.accelerator == one.accelerator && other.gpus_per_worker == spec.gpus_per_worker;
    });
    if (spec.transfer && !known) out.push_back({one.accelerator, spec.gpus_per_worker, *spec.transfer});
  }
  return out;
}

}  // namespace windlass::controller
