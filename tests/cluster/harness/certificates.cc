// Implements certificates.h.
#include "tests/cluster/harness/certificates.h"

#include <cstdio>
#include <memory>

#include <fmt/format.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

namespace windlass::testing {
namespace {

using Key = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;
using Certificate = std::unique_ptr<X509, decltype(&X509_free)>;
using File = std::unique_ptr<std::FILE, decltype(&std::fclose)>;

Key make_key() { return Key(EVP_EC_gen("P-256"), EVP_PKEY_free); }

bool add_extension(X509* certificate, X509* issuer, int nid, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, nid, value.c_str());
  if (extension == nullptr) return false;
  const bool added = X509_add_ext(certificate, extension, -1) == 1;
  X509_EXTENSION_free(extension);
  return added;
}

struct Subject {
  std::string common_name;
  std::string organization;
  std::string usage;      // extendedKeyUsage; empty for a certificate authority
  std::string alt_names;  // subjectAltName; may be empty
  long serial = 1;
};

Certificate make_certificate(const Subject& subject, EVP_PKEY* key, X509* issuer, EVP_PKEY* issuer_key) {
  Certificate certificate(X509_new(), X509_free);
  X509* raw = certificate.get();
  X509_set_version(raw, 2);
  ASN1_INTEGER_set(X509_get_serialNumber(raw), subject.serial);
  X509_gmtime_adj(X509_getm_notBefore(raw), -3600);
  X509_gmtime_adj(X509_getm_notAfter(raw), 24 * 3600);
  X509_set_pubkey(raw, key);
  X509_NAME* name = X509_get_subject_name(raw);
  const auto add_name = [&](const char* field, const std::string& text) {
    if (text.empty()) return;
    X509_NAME_add_entry_by_txt(name, field, MBSTRING_UTF8, reinterpret_cast<const unsigned char*>(text.c_str()), -1, -1, 0);
  };
  add_name("O", subject.organization);
  add_name("CN", subject.common_name);
  X509* signer = issuer != nullptr ? issuer : raw;
  X509_set_issuer_name(raw, X509_get_subject_name(signer));
  bool good = add_extension(raw, signer, NID_basic_constraints, issuer != nullptr ? "critical,CA:FALSE" : "critical,CA:TRUE");
  good = good && add_extension(raw, signer, NID_key_usage,
                               issuer != nullptr ? "critical,digitalSignature" : "critical,keyCertSign,digitalSignature");
  if (!subject.usage.empty()) good = good && add_extension(raw, signer, NID_ext_key_usage, subject.usage);
  if (!subject.alt_names.empty()) good = good && add_extension(raw, signer, NID_subject_alt_name, subject.alt_names);
  if (!good || X509_sign(raw, issuer_key, EVP_sha256()) == 0) return Certificate(nullptr, X509_free);
  return certificate;
}

bool write_certificate(const std::string& path, X509* certificate) {
  File file(std::fopen(path.c_str(), "w"), std::fclose);
  return file != nullptr && PEM_write_X509(file.get(), certificate) == 1;
}

bool write_private_key(const std::string& path, EVP_PKEY* key) {
  File file(std::fopen(path.c_str(), "w"), std::fclose);
  return file != nullptr && PEM_write_PrivateKey(file.get(), key, nullptr, nullptr, 0, nullptr, nullptr) == 1;
}

bool write_public_key(const std::string& path, EVP_PKEY* key) {
  File file(std::fopen(path.c_str(), "w"), std::fclose);
  return file != nullptr && PEM_write_PUBKEY(file.get(), key) == 1;
}

}  // namespace

Result<void> make_certificates(const std::string& folder) {
  const Key authority_key = make_key();
  const Key server_key = make_key();
  const Key admin_key = make_key();
  const Key account_key = make_key();
  if (!authority_key || !server_key || !admin_key || !account_key) {
    return Error{ErrorCode::kInternal, "making the control plane's keys failed"};
  }
  const Certificate authority =
      make_certificate({"windlass-test-ca", "", "", "", 1}, authority_key.get(), nullptr, authority_key.get());
  if (!authority) return Error{ErrorCode::kInternal, "making the control plane's certificate authority failed"};
  const Certificate server =
      make_certificate({"kube-apiserver", "", "serverAuth", "IP:127.0.0.1,DNS:localhost,DNS:kubernetes.default.svc", 2},
                       server_key.get(), authority.get(), authority_key.get());
  const Certificate admin = make_certificate({"test-admin", "system:masters", "clientAuth", "", 3}, admin_key.get(),
                                             authority.get(), authority_key.get());
  if (!server || !admin) return Error{ErrorCode::kInternal, "signing the control plane's certificates failed"};
  const bool written =
      write_certificate(folder + "/ca.crt", authority.get()) && write_certificate(folder + "/server.crt", server.get()) &&
      write_private_key(folder + "/server.key", server_key.get()) && write_certificate(folder + "/admin.crt", admin.get()) &&
      write_private_key(folder + "/admin.key", admin_key.get()) &&
      write_private_key(folder + "/service-account.key", account_key.get()) &&
      write_public_key(folder + "/service-account.pub", account_key.get());
  if (!written)
    return Error{ErrorCode::kInternal, fmt::format("writing the control plane's certificates into {} failed", folder)};
  return {};
}

}  // namespace windlass::testing
