// Makes the certificates of one test's control plane: a certificate authority, the API server's certificate, an administrator's
// client certificate, and the key that signs ServiceAccount tokens. They are new each time and valid for one day.
#pragma once

#include <string>

#include "planner/base/result.h"

namespace windlass::testing {

// Writes ca.crt, server.crt, server.key (for 127.0.0.1, localhost and kubernetes.default.svc), admin.crt, admin.key (user
// "test-admin" in system:masters), service-account.key and service-account.pub into `folder`.
[[nodiscard]] Result<void> make_certificates(const std::string& folder);

}  // namespace windlass::testing
