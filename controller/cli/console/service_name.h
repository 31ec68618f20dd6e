// ServiceName: a ModelService named on the command line as "ms/tiny", "modelservice/tiny" or "tiny", with an optional -n.
#pragma once

#include <string>

#include "planner/base/result.h"
#include "planner/policy/snapshot.h"

namespace CLI {
class App;
}

namespace windlass::cli {

struct ServiceName {
  std::string name;
  std::string name_space = "default";
  bool name_space_given = false;

  void add_to(CLI::App& command);
  [[nodiscard]] bool is(const planner::ServiceId& id) const { return id.name == name && id.name_space == name_space; }
  [[nodiscard]] std::string text() const { return name_space + "/" + name; }
};

// "ms/tiny" gives "tiny"; any other kind is an error.
[[nodiscard]] Result<std::string> service_name_from(const std::string& argument);

}  // namespace windlass::cli
