// The gateway's secrets (docs/security.md): certificates, the installation's token and the API keys, each followed in its
// files. One thread.
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
  std::shared_ptr<security::Reloaded<SharedContext>> controller_tls;  // what the controllers' certificates are verified with
  std::shared_ptr<security::Reloaded<std::string>> token;             // null: none
  std::shared_ptr<security::Reloaded<KeyFile>> keys;                  // null: the API is open

  // Error: names the flag and the file. Logs a warning for secrets that everybody may read.
  [[nodiscard]] static Result<Secrets> load(const Options& options);
  // Looks whether a file has changed; logs what came of it.
  void refresh();
};

}  // namespace windlass::gateway
