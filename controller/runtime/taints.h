// Which nodes keep workers away by taints: a worker tolerates what its AcceleratorClass says, and the taint that is named like
// its resource, as Kubernetes' ExtendedResourceToleration would have it.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "controller/api/toleration.h"

namespace windlass::controller {

struct Taint {
  std::string key;
  std::string value;
  std::string effect;
};

// The node's taints that keep pods away. PreferNoSchedule does not.
[[nodiscard]] std::vector<Taint> taints_of(const nlohmann::json& node);

[[nodiscard]] std::vector<api::Toleration> worker_tolerations(std::vector<api::Toleration> of_class,
                                                              const std::string& resource_name);

// Whether each taint is tolerated.
[[nodiscard]] bool tolerated(const std::vector<Taint>& taints, const std::vector<api::Toleration>& tolerations);

}  // namespace windlass::controller
