// CredentialSource: who we are to the API server, kept fresh.
//
// `now_s` is wall time in Unix seconds (token expiries are wall times). A source may read a file or run a program when a token
// is due; between those times a call costs nothing. Single-threaded. A token never stands in an Error.
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

  // The token for "Authorization: Bearer"; empty: none is used.
  [[nodiscard]] virtual Result<std::string> bearer_token(double now_s) = 0;

  // A client certificate that this source brings and renews (exec plugins); nullopt: none, the TlsOptions' own is used.
  [[nodiscard]] virtual Result<std::optional<ClientCertificate>> client_certificate(double now_s);

  // The server answered 401: what is cached is worth nothing, the next call gets it anew.
  virtual void invalidate() {}
};

// No token (client certificates, or a server that asks for none).
[[nodiscard]] std::unique_ptr<CredentialSource> no_credentials();

// A token that does not change.
[[nodiscard]] std::unique_ptr<CredentialSource> static_token(std::string token);

// A file that others rotate (a mounted service-account token): read again when a minute has passed, and after a 401. When a
// later read fails or the file is empty, the last good token goes on being used.
[[nodiscard]] std::unique_ptr<CredentialSource> token_file(std::filesystem::path path);

}  // namespace windlass::kube
