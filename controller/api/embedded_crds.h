// The files of crds/ as text inside the binary. CMakeLists.txt generates the definition at configure time.
#pragma once

#include <string>
#include <vector>

namespace windlass::api {

struct EmbeddedCrd {
  std::string name;  // "modelservices.yaml"
  std::string yaml;
};

[[nodiscard]] std::vector<EmbeddedCrd> embedded_crd_files();

}  // namespace windlass::api
