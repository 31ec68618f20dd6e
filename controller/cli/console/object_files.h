// Reads the YAML files given with -f and checks that their objects fit together. Also builds the planner's snapshot of these
// objects, as if nothing had run yet.
#pragma once

#include <string>
#include <vector>

#include "controller/api/load.h"
#include "planner/base/result.h"
#include "planner/policy/snapshot.h"

namespace windlass::cli {

inline constexpr int kManyGpus = 4096;  // of a class, if no file says how many there are

// All objects of all files. The error has one line per mistake.
[[nodiscard]] Result<std::vector<api::Object>> read_object_files(const std::vector<std::string>& paths);

// Whether a ModelService may name a class that no file defines but the planner's catalog knows, by the catalog's name or the
// chart's (nvidia-h100-80gb).
enum class Classes { kOfFiles, kOfCatalogToo };

// Checks what only matters when exactly these objects are run together: there must be a ModelService and, with kOfFiles, an
// AcceleratorClass, and every class that is named must be known. The error has one line per mistake.
[[nodiscard]] Result<void> check_references(const std::vector<api::Object>& objects, Classes classes);

// `windlass up` needs each model on this machine. The error says how to get a missing one.
[[nodiscard]] Result<void> check_models(const std::vector<api::Object>& objects);

// The services as newly created, with the load that spec.workload assumes and no other; the classes as their specs describe.
[[nodiscard]] planner::Snapshot quiet_snapshot(const std::vector<api::Object>& objects);

// What the objects' PerformanceProfiles measured for the snapshot's services and classes, with the trust a controller gives it.
// Returns a line for each profile that no service uses.
std::vector<std::string> add_profiles(planner::Snapshot& snapshot, const std::vector<api::Object>& objects);

// Adds the catalog classes that services name and the snapshot lacks; and all others if it has no classes at all and a service
// may use any. Returns their names.
std::vector<std::string> add_catalog_classes(planner::Snapshot& snapshot);

}  // namespace windlass::cli
