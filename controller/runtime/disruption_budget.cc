// See disruption_budget.h.
#include "controller/runtime/disruption_budget.h"

#include <nlohmann/json.hpp>

#include "controller/runtime/pod.h"
#include "controller/runtime/pod_json.h"

namespace windlass::controller {

using nlohmann::json;

std::string budget_name(const std::string& service) { return "windlass-" + service; }

json budget_object(const DisruptionBudget& budget, const std::string& instance) {
  return {{"apiVersion", "policy/v1"},
          {"kind", "PodDisruptionBudget"},
          {"metadata",
           {{"name", budget_name(budget.service)},
            {"namespace", budget.name_space},
            {"labels",
             {{"app.kubernetes.io/name", "windlass"},
              {"app.kubernetes.io/managed-by", "windlass-controller"},
              {"windlass.dev/service", budget.service},
              {kInstanceLabel, instance}}},
            {"ownerReferences",
             {{{"apiVersion", "windlass.dev/v1alpha1"},
               {"kind", "ModelService"},
               {"name", budget.service},
               {"uid", budget.service_uid},
               {"controller", true},
               {"blockOwnerDeletion", true}}}}}},
          {"spec",
           {{"minAvailable", budget.min_available},
            {"unhealthyPodEvictionPolicy", "AlwaysAllow"},
            {"selector",
             {{"matchLabels", {{"app.kubernetes.io/component", "worker"}, {"windlass.dev/service", budget.service}}}}}}}};
}

bool budget_holds(const json& stored, const DisruptionBudget& wanted) {
  const json& owners = list_at(stored, {"metadata", "ownerReferences"});
  return integer_at(stored, {"spec", "minAvailable"}, -1) == wanted.min_available && owners.size() == 1 &&
         text_at(owners[0], {"uid"}) == wanted.service_uid;
}

}  // namespace windlass::controller
