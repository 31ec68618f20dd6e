// Endpoints: the addresses of a running Windlass. `windlass up` writes them to DIR/endpoints.json; other commands read that
// file or take the addresses from --url.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "planner/base/result.h"

namespace CLI {
class App;
}

namespace windlass::cli {

// The credentials and certificates for a remote controller (docs/security.md). Never written to disk.
struct Access {
  std::string token;        // the installation's; empty: none is sent
  std::string ca_pem;       // the authorities trusted to sign its certificate; empty: the system's store
  std::string server_name;  // expected in its certificate; empty: the URL's host (differs behind a forwarded port)

  bool operator==(const Access&) const = default;
};

struct Endpoints {
  std::string controller_url;                   // "http://127.0.0.1:9401"
  std::string gateway_url;                      // where clients send requests; empty if unknown
  std::vector<std::string> gateway_admin_urls;  // where gateways publish their metrics; may be empty
  Access access = {};

  bool operator==(const Endpoints&) const = default;
};

[[nodiscard]] std::string to_json(const Endpoints& endpoints);  // without `access`
[[nodiscard]] Result<Endpoints> endpoints_from_json(const std::string& text);

[[nodiscard]] std::string endpoints_path(const std::string& directory);

// The options --dir, --url, --gateway, --token-file, --ca-file and --server-name of a command. resolve() reads
// DIR/endpoints.json unless --url was given.
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
