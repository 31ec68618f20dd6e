// Certificates for TLS tests, made when needed: an authority and what it signs. Valid for an hour; EC keys, so that making one
// takes a millisecond.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "controller/kube/tls.h"

namespace windlass::kube {

class TestAuthority {
 public:
  explicit TestAuthority(const std::string& name);
  ~TestAuthority();

  [[nodiscard]] const std::string& pem() const { return pem_; }

  // A certificate with this common name, valid for these names ("DNS:api.test", "IP:127.0.0.1"), as server and as client.
  [[nodiscard]] ClientCertificate issue(const std::string& common_name,
                                        const std::vector<std::string>& alternative_names = {}) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
  std::string pem_;
};

}  // namespace windlass::kube
