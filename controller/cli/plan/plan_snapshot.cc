// Reads the -f files and fills in what they leave open; see plan_snapshot.h.
#include "controller/cli/plan/plan_snapshot.h"

#include <algorithm>
#include <ostream>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "controller/cli/console/object_files.h"
#include "controller/cli/local/this_machine.h"

namespace windlass::cli {

Result<planner::Snapshot> plan_snapshot(const std::vector<std::string>& files, std::ostream& notes) {
  WINDLASS_ASSIGN_OR_RETURN(auto objects, read_object_files(files));
  WINDLASS_RETURN_IF_ERROR(add_this_machine(objects, notes));
  WINDLASS_RETURN_IF_ERROR(check_references(objects, Classes::kOfCatalogToo));
  planner::Snapshot snapshot = quiet_snapshot(objects);
  std::vector<std::string> unnamed;
  for (const std::string& name : add_catalog_classes(snapshot)) {
    const bool named = std::any_of(snapshot.services.begin(), snapshot.services.end(), [&](const planner::Service& service) {
      return std::any_of(service.accelerators.begin(), service.accelerators.end(),
                         [&](const auto& allowed) { return allowed.accelerator == name; });
    });
    if (named) {
      notes << fmt::format("AcceleratorClass {}: not in the files; using the catalog's figures (docs/catalog.md)\n", name);
    } else {
      unnamed.push_back(name);
    }
  }
  if (!unnamed.empty()) {
    notes << fmt::format(
        "No AcceleratorClass in the files, and a ModelService that names none may use any: considering the whole catalog "
        "(docs/catalog.md): {}\n",
        fmt::join(unnamed, ", "));
  }
  for (const std::string& line : add_profiles(snapshot, objects)) notes << line << "\n";
  return snapshot;
}

}  // namespace windlass::cli
