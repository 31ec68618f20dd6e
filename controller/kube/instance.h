// Names the Windlass installation that an object belongs to, by a label, for clusters with several installations. Users set the
// label on ModelServices and AcceleratorClasses; we set it on pods and disruption budgets. An object without the label belongs
// to the installation with the default name, "windlass".
#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace windlass::kube {

inline constexpr const char* kInstanceLabel = "windlass.dev/instance";
inline constexpr const char* kDefaultInstance = "windlass";

// The installation of any API object.
inline std::string instance_of(const nlohmann::json& object) {
  const auto meta = object.find("metadata");
  if (meta == object.end() || !meta->is_object()) return kDefaultInstance;
  const auto labels = meta->find("labels");
  if (labels == meta->end() || !labels->is_object()) return kDefaultInstance;
  const auto label = labels->find(kInstanceLabel);
  return label != labels->end() && label->is_string() && *label != "" ? label->get<std::string>() : kDefaultInstance;
}

// The Lease with which the installation's controllers elect their leader.
inline std::string lease_name(const std::string& instance) { return instance + "-controller"; }

}  // namespace windlass::kube
