// Endpoints: where a running Windlass answers. `windlass up` leaves them in DIR/endpoints.json; the other commands read them
// there, or take them from --url.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "planner/base/result.h"

namespace CLI {
class App;
}

namespace windlass::cli {

struct Endpoints {
  std::string controller_url;                   // "http://127.0.0.1:9401"
  std::string gateway_url;                      // where requests go; empty when unknown
  std::vector<std::string> gateway_admin_urls;  // where gateways show their metrics; may be empty

  bool operator==(const Endpoints&) const = default;
};

[[nodiscard]] std::string to_json(const Endpoints& endpoints);
[[nodiscard]] Result<Endpoints> endpoints_from_json(const std::string& text);

[[nodiscard]] std::string endpoints_path(const std::string& directory);

// --dir, --url and --gateway of a command. resolve() reads DIR/endpoints.json unless --url was given.
struct EndpointOptions {
  std::string directory = ".windlass";
  std::string controller_url;
  std::vector<std::string> gateway_admin_urls;

  void add_to(CLI::App& command);
  [[nodiscard]] Result<Endpoints> resolve() const;
};

}  // namespace windlass::cli
