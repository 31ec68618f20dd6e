// Resource names a kind of Kubernetes API object: its group, version, plural and kind. The file also has constants for the
// kinds that Windlass uses. Plain data.
#pragma once

#include <string>

namespace windlass::kube {

struct Resource {
  std::string group;  // empty: the core group
  std::string version;
  std::string plural;
  std::string kind;
  bool namespaced = true;

  bool operator==(const Resource&) const = default;

  [[nodiscard]] std::string api_version() const { return group.empty() ? version : group + "/" + version; }
};

namespace resources {
inline const Resource kPods{"", "v1", "pods", "Pod", true};
inline const Resource kNodes{"", "v1", "nodes", "Node", false};
inline const Resource kNamespaces{"", "v1", "namespaces", "Namespace", false};
inline const Resource kConfigMaps{"", "v1", "configmaps", "ConfigMap", true};
inline const Resource kSecrets{"", "v1", "secrets", "Secret", true};
inline const Resource kServices{"", "v1", "services", "Service", true};
inline const Resource kServiceAccounts{"", "v1", "serviceaccounts", "ServiceAccount", true};
inline const Resource kEvents{"", "v1", "events", "Event", true};
inline const Resource kResourceQuotas{"", "v1", "resourcequotas", "ResourceQuota", true};
inline const Resource kPersistentVolumeClaims{"", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", true};
inline const Resource kLeases{"coordination.k8s.io", "v1", "leases", "Lease", true};
inline const Resource kPriorityClasses{"scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", false};
inline const Resource kPodDisruptionBudgets{"policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", true};
inline const Resource kDeployments{"apps", "v1", "deployments", "Deployment", true};
inline const Resource kCustomResourceDefinitions{"apiextensions.k8s.io", "v1", "customresourcedefinitions",
                                                 "CustomResourceDefinition", false};
inline const Resource kModelServices{"windlass.dev", "v1alpha1", "modelservices", "ModelService", true};
inline const Resource kAcceleratorClasses{"windlass.dev", "v1alpha1", "acceleratorclasses", "AcceleratorClass", false};
inline const Resource kPerformanceProfiles{"windlass.dev", "v1alpha1", "performanceprofiles", "PerformanceProfile", true};
}  // namespace resources

}  // namespace windlass::kube
