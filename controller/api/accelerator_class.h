// AcceleratorClass as a C++ type: a kind of GPU, or a slice of CPU cores, with its location, capabilities and price.
//
// Plain data with parsed numbers. crds/acceleratorclasses.yaml is the source of truth for names, defaults and limits.
// Cluster-scoped. Owned by the caller; usable on any thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "controller/api/meta.h"
#include "controller/api/model_service.h"
#include "controller/api/toleration.h"

namespace windlass::api {

enum class CapacityMode { kObserved, kElastic };

const char* to_string(CapacityMode mode);  // "Observed", "Elastic"

struct LinkSpec {
  double bandwidth_bytes_per_s = 0;
  double latency_s = 0;  // latencyMicroseconds in the schema

  bool operator==(const LinkSpec&) const = default;
};

struct CapacitySpec {
  CapacityMode mode = CapacityMode::kObserved;
  std::optional<std::int64_t> max_gpus;  // always set if Elastic

  bool operator==(const CapacitySpec&) const = default;
};

struct AcceleratorClassSpec {
  std::map<std::string, std::string> node_selector;
  std::vector<Toleration> tolerations;  // besides the taint that is named like the resource
  std::string resource_name = "nvidia.com/gpu";
  std::int64_t memory_bytes = 0;             // per GPU
  std::map<Dtype, double> peak_flops_per_s;  // per GPU, dense; never empty
  double memory_bandwidth_bytes_per_s = 0;   // per GPU
  std::optional<LinkSpec> intra_node_link;   // between two GPUs of one node, one direction
  std::optional<LinkSpec> inter_node_link;   // between two nodes, one direction
  std::int64_t gpus_per_node = 1;
  std::optional<double> price_per_hour;  // per GPU
  std::optional<double> power_watts;     // per GPU under load
  CapacitySpec capacity;

  bool operator==(const AcceleratorClassSpec&) const = default;
};

struct AcceleratorClassStatus {
  std::int64_t observed_generation = 0;
  std::int64_t nodes = 0;
  std::int64_t allocatable_gpus = 0;
  std::int64_t used_gpus = 0;
  std::int64_t pending_gpus = 0;
  std::vector<Condition> conditions;

  bool operator==(const AcceleratorClassStatus&) const = default;
};

struct AcceleratorClass {
  static constexpr const char* kKind = "AcceleratorClass";
  static constexpr const char* kPlural = "acceleratorclasses";

  ObjectMeta metadata;
  AcceleratorClassSpec spec;
  AcceleratorClassStatus status;

  bool operator==(const AcceleratorClass&) const = default;
};

}  // namespace windlass::api
