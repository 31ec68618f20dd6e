// AcceleratorClass, as C++ sees it: a kind of GPU (or a slice of CPU cores): where it is, what it can do, what it costs.
//
// Plain data with parsed numbers; crds/acceleratorclasses.yaml is the source of truth for names, defaults and limits. Cluster-
// scoped. Owned by the caller, usable on any thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "controller/api/meta.h"
#include "controller/api/model_service.h"

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
  std::optional<std::int64_t> max_gpus;  // always there when Elastic

  bool operator==(const CapacitySpec&) const = default;
};

struct AcceleratorClassSpec {
  std::map<std::string, std::string> node_selector;
  std::string resource_name = "nvidia.com/gpu";
  std::int64_t memory_bytes = 0;             // of one GPU
  std::map<Dtype, double> peak_flops_per_s;  // of one GPU, dense; never empty
  double memory_bandwidth_bytes_per_s = 0;   // of one GPU
  std::optional<LinkSpec> intra_node_link;   // between two GPUs of a node, one direction
  std::optional<LinkSpec> inter_node_link;   // between two nodes, one direction
  std::int64_t gpus_per_node = 1;
  std::optional<double> price_per_hour;  // of one GPU
  std::optional<double> power_watts;     // of one GPU under load
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
