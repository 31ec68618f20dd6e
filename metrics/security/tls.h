// Loads PEM certificates into OpenSSL contexts. TLS 1.2 or newer.
#pragma once

#include <string>

#include <openssl/ssl.h>

#include "planner/base/result.h"

namespace windlass::security {

struct Certificate {
  std::string chain_pem;  // the leaf first
  std::string key_pem;

  bool operator==(const Certificate&) const = default;
};

// Makes the context present this certificate. Error: kInvalidArgument when it is not PEM, or key and certificate do not match.
[[nodiscard]] Result<void> use_certificate(SSL_CTX* context, const Certificate& certificate);

// Makes the context trust only these authorities. Error: kInvalidArgument when the text has no certificate.
[[nodiscard]] Result<void> trust(SSL_CTX* context, const std::string& ca_pem);

// The same checks without a context.
[[nodiscard]] Result<Certificate> check_certificate(std::string chain_pem, std::string key_pem);
[[nodiscard]] Result<std::string> check_ca(std::string ca_pem);

}  // namespace windlass::security
