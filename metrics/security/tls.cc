// See tls.h.
#include "metrics/security/tls.h"

#include <memory>

#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

namespace windlass::security {
namespace {

using Bio = std::unique_ptr<BIO, decltype(&BIO_free)>;
using X509Ptr = std::unique_ptr<X509, decltype(&X509_free)>;
using KeyPtr = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;
using ContextPtr = std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)>;

Bio bio_of(const std::string& text) { return {BIO_new_mem_buf(text.data(), static_cast<int>(text.size())), &BIO_free}; }

Error bad(const std::string& what) {
  const unsigned long code = ERR_get_error();
  const char* reason = code == 0 ? nullptr : ERR_reason_error_string(code);
  ERR_clear_error();
  return Error{ErrorCode::kInvalidArgument, reason == nullptr ? what : fmt::format("{} ({})", what, reason)};
}

// A key with a passphrase must not make the program wait at a prompt.
int no_passphrase(char*, int, int, void*) { return 0; }

}  // namespace

Result<void> use_certificate(SSL_CTX* context, const Certificate& certificate) {
  ERR_clear_error();
  SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
  const Bio chain = bio_of(certificate.chain_pem);
  const X509Ptr leaf(PEM_read_bio_X509(chain.get(), nullptr, &no_passphrase, nullptr), &X509_free);
  if (leaf == nullptr) return bad("certificate: must be PEM, first the leaf and then its chain (got no certificate)");
  if (SSL_CTX_use_certificate(context, leaf.get()) != 1) return bad("certificate: cannot be used");
  SSL_CTX_clear_extra_chain_certs(context);
  while (X509* next = PEM_read_bio_X509(chain.get(), nullptr, &no_passphrase, nullptr)) {
    if (SSL_CTX_add_extra_chain_cert(context, next) != 1) {
      X509_free(next);
      return bad("certificate: its chain cannot be used");
    }
  }
  ERR_clear_error();  // the end of the text
  const Bio key_text = bio_of(certificate.key_pem);
  const KeyPtr key(PEM_read_bio_PrivateKey(key_text.get(), nullptr, &no_passphrase, nullptr), &EVP_PKEY_free);
  if (key == nullptr) return bad("key: must be a PEM private key without a passphrase (got none)");
  if (SSL_CTX_use_PrivateKey(context, key.get()) != 1 || SSL_CTX_check_private_key(context) != 1) {
    return bad("key: must belong to the certificate (got another key)");
  }
  return {};
}

Result<void> trust(SSL_CTX* context, const std::string& ca_pem) {
  ERR_clear_error();
  SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
  const Bio text = bio_of(ca_pem);
  X509_STORE* store = X509_STORE_new();
  int found = 0;
  while (X509* one = PEM_read_bio_X509(text.get(), nullptr, &no_passphrase, nullptr)) {
    X509_STORE_add_cert(store, one);
    X509_free(one);
    ++found;
  }
  SSL_CTX_set_cert_store(context, store);  // the context owns it from now on
  ERR_clear_error();
  if (found == 0) return Error{ErrorCode::kInvalidArgument, "must be PEM certificates of authorities (got none)"};
  return {};
}

Result<Certificate> check_certificate(std::string chain_pem, std::string key_pem) {
  const ContextPtr context(SSL_CTX_new(TLS_server_method()), &SSL_CTX_free);
  Certificate certificate{std::move(chain_pem), std::move(key_pem)};
  WINDLASS_RETURN_IF_ERROR(use_certificate(context.get(), certificate));
  return certificate;
}

Result<std::string> check_ca(std::string ca_pem) {
  const ContextPtr context(SSL_CTX_new(TLS_client_method()), &SSL_CTX_free);
  WINDLASS_RETURN_IF_ERROR(trust(context.get(), ca_pem));
  return ca_pem;
}

}  // namespace windlass::security
