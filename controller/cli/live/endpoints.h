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

// What a controller elsewhere asks of its callers, and how it proves itself (docs/security.md). Never written anywhere.
struct Access {
  std::string token;        // the installation's; empty: none is sent
  std::string ca_pem;       // who may sign its certificate; empty: the system's store
  std::string server_name;  // that its certificate holds; empty: the URL's host (a forwarded port has another)

  bool operator==(const Access&) const = default;
};

struct Endpoints {
  std::string controller_url;                   // "http://127.0.0.1:9401"
  std::string gateway_url;                      // where requests go; empty when unknown
  std::vector<std::string> gateway_admin_urls;  // where gateways show their metrics; may be empty
  Access access = {};

  bool operator==(const Endpoints&) const = default;
};

[[nodiscard]] std::string to_json(const Endpoints& endpoints);  // without `access`
[[nodiscard]] Result<Endpoints> endpoints_from_json(const std::string& text);

[[nodiscard]] std::string endpoints_path(const std::string& directory);

// --dir, --url, --gateway, --token-file, --ca-file and --server-name of a command. resolve() reads DIR/endpoints.json unless
// --url was given.
struct EndpointOptions {
  std::string directory = ".windlass";
  std::string controller_url;
  std::vector<std::string> gateway_admin_urls;
  std::string token_file;
  std::string ca_file;
  std::string server_name;

  void add_to(CLI::App& command);
  [[nodiscard]] Result<Endpoints> resolve() const;
};

}  // namespace windlass::cli
