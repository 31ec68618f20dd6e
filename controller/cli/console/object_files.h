// The YAML files that a person gives with -f: read together, checked together, and made into a snapshot of a quiet system.
#pragma once

#include <string>
#include <vector>

#include "controller/api/load.h"
#include "planner/base/result.h"
#include "planner/policy/snapshot.h"

namespace windlass::cli {

// All objects of all files. The error has a line for every mistake in any of them.
[[nodiscard]] Result<std::vector<api::Object>> read_object_files(const std::vector<std::string>& paths);

// Whether a ModelService may name classes that no file has and the planner's catalog knows, by its own name for them or the
// chart's (nvidia-h100-80gb).
enum class Classes { kOfFiles, kOfCatalogToo };

// What a file alone cannot be refused for, but a run of exactly these objects can: no ModelService at all, no AcceleratorClass,
// a class that is named and not among them. A line for every mistake.
[[nodiscard]] Result<void> check_references(const std::vector<api::Object>& objects, Classes classes);

// What `windlass up` needs of each model: that it is on this machine. The error says how to get one.
[[nodiscard]] Result<void> check_models(const std::vector<api::Object>& objects);

// The services as new and without load but what spec.workload assumes; the classes with what their specs promise.
[[nodiscard]] planner::Snapshot quiet_snapshot(const std::vector<api::Object>& objects);

// What the objects' PerformanceProfiles measured of its services, on the classes that it has: as the controller believes them.
void add_profiles(planner::Snapshot& snapshot, const std::vector<api::Object>& objects);

// Adds the classes of the catalog that services name and the snapshot lacks, with as many GPUs as are asked for. Returns their
// names.
std::vector<std::string> add_catalog_classes(planner::Snapshot& snapshot);

}  // namespace windlass::cli
