// Certificates as PEM text, into OpenSSL's contexts. TLS 1.2 or newer.
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

// Makes the context present this certificate. Error: kInvalidArgument when it is no PEM or key and certificate do not belong
// together.
[[nodiscard]] Result<void> use_certificate(SSL_CTX* context, const Certificate& certificate);

// Makes the context trust these authorities only. Error: kInvalidArgument when no certificate is in the text.
[[nodiscard]] Result<void> trust(SSL_CTX* context, const std::string& ca_pem);

// The same checks without a context to fill.
[[nodiscard]] Result<Certificate> check_certificate(std::string chain_pem, std::string key_pem);
[[nodiscard]] Result<std::string> check_ca(std::string ca_pem);

}  // namespace windlass::security
