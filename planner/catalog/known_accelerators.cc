// See known_accelerators.h.
#include "planner/catalog/known_accelerators.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "planner/catalog/accelerators_by_name.h"

namespace windlass::planner {

std::optional<AcceleratorSpec> KnownAccelerators::find(std::string_view name) const {
  for (const AcceleratorSpec& spec : of_files_) {
    if (spec.name == name) return spec;
  }
  auto spec = accelerator_by_name(name);
  const std::size_t vendor = name.find('-');
  if (!spec.ok() && vendor != std::string_view::npos) spec = accelerator_by_name(name.substr(vendor + 1));
  if (!spec.ok()) return std::nullopt;
  spec->name = name;
  return *spec;
}

std::string KnownAccelerators::allowed() const {
  std::vector<std::string> names;
  for (const AcceleratorSpec& spec : of_files_) names.push_back(spec.name);
  if (names.empty()) {
    return fmt::format("one of {} (the catalog), or an AcceleratorClass of the files, which have none",
                       fmt::join(accelerator_names(), ", "));
  }
  return fmt::format("one of {} (AcceleratorClasses of the files), {} (the catalog)", fmt::join(names, ", "),
                     fmt::join(accelerator_names(), ", "));
}

}  // namespace windlass::planner
