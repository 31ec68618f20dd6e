// CredentialSource provides our credentials for the API server and keeps them fresh.
//
// `now_s` is wall time in Unix seconds, because token expiries are wall times. A source may read a file or run a program when a
// token is due; between those times a call costs nothing. Single-threaded. A token never appears in an Error.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "controller/kube/tls.h"
#include "planner/base/result.h"

namespace windlass::kube {

class CredentialSource {
 public:
  virtual ~CredentialSource() = default;

  // The token for "Authorization: Bearer"; empty: send none.
  [[nodiscard]] virtual Result<std::string> bearer_token(double now_s) = 0;

  // A client certificate that this source provides and renews (exec plugins); nullopt: use the one in TlsOptions.
  [[nodiscard]] virtual Result<std::optional<ClientCertificate>> client_certificate(double now_s);

  // The server answered 401: drop what is cached and get new credentials on the next call.
  virtual void invalidate() {}
};

// No token (client certificates, or a server without authentication).
[[nodiscard]] std::unique_ptr<CredentialSource> no_credentials();

// A fixed token.
[[nodiscard]] std::unique_ptr<CredentialSource> static_token(std::string token);

// A file that others rotate (a mounted service-account token). It is read again after a minute and after a 401. If a later read
// fails or the file is empty, the last good token stays in use.
[[nodiscard]] std::unique_ptr<CredentialSource> token_file(std::filesystem::path path);

}  // namespace windlass::kube
