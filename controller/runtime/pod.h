// A worker as a Kubernetes pod, and a pod as a worker. Pure: JSON in, JSON out.
#pragma once

#include <map>
#include <optional>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "controller/runtime/worker_runtime.h"

namespace windlass::controller {

inline constexpr const char* kDrainFinalizer = "windlass.dev/drain";
inline constexpr const char* kDrainingSince = "windlass.dev/draining-since";  // annotation: Unix seconds

struct PodDefaults {
  std::string worker_image;  // where spec.engine.image is empty
  std::string fetch_image;   // runs `hf download` for hf:// models; empty: hf:// is refused
};

// Error: the service asks for what a pod cannot be (file://, an engine without an image, a pod template that is no object).
[[nodiscard]] Result<nlohmann::json> pod_of(const WorkerSpec& spec, const PodDefaults& defaults);

// nullopt: not a worker of ours (no controller owner of kind ModelService, or labels missing).
[[nodiscard]] std::optional<Worker> worker_of(const nlohmann::json& pod);

// Units of `resource` that the pod holds on its node: the sum over its containers, or the largest init container if that is
// more.
[[nodiscard]] int requested(const nlohmann::json& pod, const std::string& resource);

// Whether the pod is bound to a node and its resources are still held.
[[nodiscard]] bool holds_resources(const nlohmann::json& pod);

// "2026-05-01T10:00:00Z" as Unix seconds; 0 when it is not such a time.
[[nodiscard]] double unix_seconds(const std::string& rfc3339);

}  // namespace windlass::controller
