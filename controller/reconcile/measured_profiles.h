// Finds the PerformanceProfiles that apply to a service's workers: those of its namespace and model, each with its
// AcceleratorClass, and their transfer measurements. Pure.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "controller/api/model_service.h"
#include "controller/api/performance_profile.h"
#include "planner/policy/snapshot.h"

namespace windlass::controller {

// The service's model as a PerformanceProfile names it: its name in the catalog, or the served name.
[[nodiscard]] std::string profile_model(const api::ModelService& service);

// A profile and its AcceleratorClass.
struct MeasuredWorker {
  const api::PerformanceProfile* profile = nullptr;
  std::string accelerator;
};

class MeasuredProfiles {
 public:
  // Borrows the profiles.
  MeasuredProfiles(const std::vector<api::PerformanceProfile>& profiles,
                   const std::vector<planner::AcceleratorState>& accelerators);

  // The profiles of the service's model, in the order of the list.
  [[nodiscard]] std::vector<MeasuredWorker> of(const api::ModelService& service) const;
  // Their transfer measurements; if several profiles cover one kind of worker, the first.
  [[nodiscard]] std::vector<planner::TransferToWorker> transfers(const api::ModelService& service) const;

 private:
  std::map<std::pair<std::string, std::string>, std::vector<MeasuredWorker>> by_model_;  // by namespace and model
};

}  // namespace windlass::controller
