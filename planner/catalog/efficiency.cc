// Efficiency coefficients; efficiency.h names their source and the command that fits them.
#include "planner/catalog/efficiency.h"

#include <array>

namespace windlass::planner {

namespace {

struct NamedEfficiency {
  std::string_view name;
  AcceleratorEfficiency efficiency;
};

// windlass:fitted begin
const std::array<NamedEfficiency, 4> kMeasured = {{
    {"a100-80gb",
     {{4.22e-06, 0.858, 0.767, 1.47, 1.92e-10, 0, 0.001, 2e+06, 0},
      {4.22e-06, 0.858, 0.767, 1.47, 1.92e-10, 0, 0.001, 2e+06, 0},
      {4.22e-06, 0.858, 0.767, 1.47, 1.92e-10, 0, 0.001, 2e+06, 0},
      {1.14e-05, 0.565, 0.31, 1.37, 1.55e-08, 0, 0, 1e+07, 0},
      {1.61e-05, 1, 0.834, 1.13, 9.37e-10, 3e-08, 0.001, 2e+08, 0},
      4.75e-06,
      1.4e-07,
      0.601}},
    {"h100-80gb",
     {{2.81e-06, 0.799, 0.885, 2.66, 3.01e-10, 0, 0.047, 7.82e+06, 0},
      {5.26e-06, 0.587, 1, 1.1, 4.69e-10, 0, 0.001, 2e+08, 0},
      {1.25e-05, 0.505, 0.914, 1.6, 2.21e-09, 0, 0.377, 2e+08, 0},
      {1.03e-05, 1, 0.472, 1.22, 3.36e-09, 0, 0, 1e+07, 222},
      {9.2e-06, 1, 0.943, 1, 1.64e-10, 2.12e-08, 0.57, 3.84e+07, 0},
      4.28e-06,
      6.63e-08,
      0.677}},
    {"h200-141gb",
     {{2.92e-06, 0.769, 0.863, 2.62, 2.79e-10, 0, 0.001, 2e+08, 0},
      {5.29e-06, 0.692, 1, 1, 4.3e-10, 0, 0.001, 2e+08, 0},
      {1.22e-05, 0.496, 0.782, 1.63, 2.24e-09, 0, 0.211, 2e+08, 0},
      {1.03e-05, 1, 0.448, 1.2, 3.85e-09, 0, 0, 1e+07, 229},
      {9.12e-06, 1, 0.981, 1, 9.01e-10, 2.25e-08, 0.0201, 6.7e+07, 0},
      4.4e-06,
      5.99e-08,
      0.691}},
    {"l40s",
     {{2.55e-06, 0.718, 0.754, 2.91, 2.78e-10, 0, 2.41, 1.15e+07, 0},
      {1.19e-05, 0.266, 0.728, 2.92, 1.45e-09, 0, 10, 5.5e+06, 0},
      {1.19e-05, 0.266, 0.728, 2.92, 1.45e-09, 0, 10, 5.5e+06, 0},
      {7.62e-06, 0.463, 0.818, 1.54, 5.3e-09, 0, 0, 1e+07, 0},
      {1.04e-05, 0.357, 0.78, 8, 1.3e-09, 2.45e-08, 6.51, 4.58e+07, 0},
      1.48e-06,
      1.66e-06,
      0.161}},
}};
// windlass:fitted end

struct Nearest {
  std::string_view name;
  std::string_view measured_on;
};

// Nearest by generation of the tensor cores first, then by kind of memory and link.
constexpr std::array<Nearest, 10> kNearest = {{{"a100-40gb", "a100-80gb"},
                                               {"v100-32gb", "a100-80gb"},
                                               {"b200-192gb", "h200-141gb"},
                                               {"mi300x", "h200-141gb"},
                                               {"l4", "l40s"},
                                               {"l40", "l40s"},
                                               {"rtx-4090", "l40s"},
                                               {"a10g", "l40s"},
                                               {"a6000", "l40s"},
                                               {"t4", "l40s"}}};

}  // namespace

EfficiencyEntry efficiency_of(std::string_view accelerator, bool has_float8) {
  // The chart puts the vendor before the catalog's name.
  for (const std::string_view vendor : {"nvidia-", "amd-"}) {
    if (accelerator.starts_with(vendor)) accelerator.remove_prefix(vendor.size());
  }
  std::string_view measured_on = has_float8 ? "h100-80gb" : "a100-80gb";
  for (const Nearest& near : kNearest) {
    if (near.name == accelerator) measured_on = near.measured_on;
  }
  for (const NamedEfficiency& entry : kMeasured) {
    if (entry.name == accelerator) measured_on = accelerator;
  }
  for (const NamedEfficiency& entry : kMeasured) {
    if (entry.name == measured_on) return {std::string(measured_on), measured_on == accelerator, entry.efficiency};
  }
  return {};
}

}  // namespace windlass::planner
