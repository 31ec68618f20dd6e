// Toleration: a taint of nodes that workers of an AcceleratorClass tolerate, as in a pod's spec. Plain data.
#pragma once

#include <string>

namespace windlass::api {

struct Toleration {
  std::string key;                   // empty with Exists: every taint
  std::string comparison = "Equal";  // "Equal" or "Exists"; operator in the schema
  std::string value;                 // for Equal
  std::string effect;                // empty: every effect

  bool operator==(const Toleration&) const = default;
};

}  // namespace windlass::api
