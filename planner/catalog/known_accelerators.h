// KnownAccelerators finds an accelerator by name: first among the AcceleratorClasses of the user's files, then in the catalog.
// Every command that reads names of accelerators looks them up here. Plain data; pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "planner/catalog/accelerator.h"

namespace windlass::planner {

class KnownAccelerators {
 public:
  KnownAccelerators() = default;  // the catalog alone
  explicit KnownAccelerators(std::vector<AcceleratorSpec> of_files) : of_files_(std::move(of_files)) {}

  // By the name of an AcceleratorClass, the catalog's name (h100-80gb) or the chart's (nvidia-h100-80gb). The spec has the name
  // that was asked for.
  [[nodiscard]] std::optional<AcceleratorSpec> find(std::string_view name) const;

  // For errors: "one of my-gpu (AcceleratorClasses of the files), v100-32gb, ... or mi300x (the catalog)".
  [[nodiscard]] std::string allowed() const;

 private:
  std::vector<AcceleratorSpec> of_files_;
};

}  // namespace windlass::planner
