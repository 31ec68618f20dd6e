// The gateway's secrets (docs/security.md): certificates, the installation's token and the API keys. Each is reloaded when its
// file changes. One thread.
#pragma once

#include <memory>
#include <string>

#include "gateway/api_keys.h"
#include "gateway/net.h"
#include "gateway/options.h"
#include "metrics/security/reloaded.h"

namespace windlass::gateway {

using SharedContext = std::shared_ptr<ssl::context>;

struct Secrets {
  std::shared_ptr<security::Reloaded<SharedContext>> public_tls;      // null: none
  std::shared_ptr<security::Reloaded<SharedContext>> admin_tls;       // null: none
  std::shared_ptr<security::Reloaded<SharedContext>> controller_tls;  // verifies the controllers' certificates
  std::shared_ptr<security::Reloaded<std::string>> token;             // null: none
  std::shared_ptr<security::Reloaded<KeyFile>> keys;                  // null: no API key needed

  // Error: names the flag and the file. Logs a warning when a secret is readable by everybody.
  [[nodiscard]] static Result<Secrets> load(const Options& options);
  // Reloads files that changed, and logs the result.
  void refresh();
};

}  // namespace windlass::gateway
