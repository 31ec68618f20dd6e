// See taints.h.
#include "controller/runtime/taints.h"

#include <algorithm>

#include "controller/runtime/pod_json.h"

namespace windlass::controller {

std::vector<Taint> taints_of(const nlohmann::json& node) {
  std::vector<Taint> out;
  for (const nlohmann::json& one : list_at(node, {"spec", "taints"})) {
    Taint taint{text_at(one, {"key"}), text_at(one, {"value"}), text_at(one, {"effect"})};
    if (taint.effect != "PreferNoSchedule") out.push_back(std::move(taint));
  }
  return out;
}

std::vector<api::Toleration> worker_tolerations(std::vector<api::Toleration> of_class, const std::string& resource_name) {
  of_class.push_back({resource_name, "Exists", "", ""});
  return of_class;
}

bool tolerated(const std::vector<Taint>& taints, const std::vector<api::Toleration>& tolerations) {
  return std::all_of(taints.begin(), taints.end(), [&](const Taint& taint) {
    return std::any_of(tolerations.begin(), tolerations.end(), [&](const api::Toleration& one) {
      if (!one.effect.empty() && one.effect != taint.effect) return false;
      if (one.comparison == "Exists") return one.key.empty() || one.key == taint.key;
      return one.key == taint.key && one.value == taint.value;
    });
  });
}

}  // namespace windlass::controller
