// Which installation of Windlass an object belongs to, where a cluster has several. The label stands on ModelServices and
// AcceleratorClasses by their users' hand, and on pods and disruption budgets by ours; what carries none belongs to the
// installation that is called windlass, as most clusters' only one is.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace windlass::kube {

inline constexpr const char* kInstanceLabel = "windlass.dev/instance";
inline constexpr const char* kDefaultInstance = "windlass";

// Of an object of the API, whatever it holds.
inline std::string instance_of(const nlohmann::json& object) {
  const auto meta = object.find("metadata");
  if (meta == object.end() || !meta->is_object()) return kDefaultInstance;
  const auto labels = meta->find("labels");
  if (labels == meta->end() || !labels->is_object()) return kDefaultInstance;
  const auto label = labels->find(kInstanceLabel);
  return label != labels->end() && label->is_string() && *label != "" ? label->get<std::string>() : kDefaultInstance;
}

// The Lease by which its controllers find their leader.
inline std::string lease_name(const std::string& instance) { return instance + "-controller"; }

}  // namespace windlass::kube
