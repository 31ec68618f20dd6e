// X.509 certificates made with OpenSSL.
#include "tests/unit/controller/kube/test_certificates.h"

#include <stdexcept>

#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

namespace windlass::kube {
namespace {

void must(bool ok, const char* what) {
  if (!ok) throw std::runtime_error(std::string("test certificates: ") + what);
}

template <class Write>
std::string pem_of(Write write) {
  std::unique_ptr<BIO, decltype(&BIO_free)> bio(BIO_new(BIO_s_mem()), &BIO_free);
  must(write(bio.get()) == 1, "writing PEM");
  char* data = nullptr;
  long size = BIO_get_mem_data(bio.get(), &data);
  return {data, static_cast<std::size_t>(size)};
}

using Key = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;
using Certificate = std::unique_ptr<X509, decltype(&X509_free)>;

Key new_key() { return {EVP_EC_gen("P-256"), &EVP_PKEY_free}; }

Certificate new_certificate(const std::string& common_name, EVP_PKEY* key) {
  static long serial = 1;
  Certificate certificate(X509_new(), &X509_free);
  X509_set_version(certificate.get(), 2);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate.get()), ++serial);
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), -60);
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), 3600);
  X509_set_pubkey(certificate.get(), key);
  X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate.get()), "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>(common_name.c_str()), -1, -1, 0);
  return certificate;
}

void add_extension(X509* certificate, X509* issuer, int nid, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, nid, value.c_str());
  must(extension != nullptr, value.c_str());
  X509_add_ext(certificate, extension, -1);
  X509_EXTENSION_free(extension);
}

}  // namespace

struct TestAuthority::Impl {
  Key key = new_key();
  Certificate certificate{nullptr, &X509_free};
};

TestAuthority::TestAuthority(const std::string& name) : impl_(std::make_unique<Impl>()) {
  impl_->certificate = new_certificate(name, impl_->key.get());
  X509* certificate = impl_->certificate.get();
  X509_set_issuer_name(certificate, X509_get_subject_name(certificate));
  add_extension(certificate, certificate, NID_basic_constraints, "critical,CA:TRUE");
  add_extension(certificate, certificate, NID_key_usage, "critical,keyCertSign,cRLSign");
  must(X509_sign(certificate, impl_->key.get(), EVP_sha256()) > 0, "signing");
  pem_ = pem_of([&](BIO* bio) { return PEM_write_bio_X509(bio, certificate); });
}

TestAuthority::~TestAuthority() = default;

ClientCertificate TestAuthority::issue(const std::string& common_name,
                                       const std::vector<std::string>& alternative_names) const {
  Key key = new_key();
  Certificate certificate = new_certificate(common_name, key.get());
  X509_set_issuer_name(certificate.get(), X509_get_subject_name(impl_->certificate.get()));
  add_extension(certificate.get(), impl_->certificate.get(), NID_basic_constraints, "CA:FALSE");
  add_extension(certificate.get(), impl_->certificate.get(), NID_ext_key_usage, "serverAuth,clientAuth");
  std::string names;
  for (const std::string& name : alternative_names) names += (names.empty() ? "" : ",") + name;
  if (!names.empty()) add_extension(certificate.get(), impl_->certificate.get(), NID_subject_alt_name, names);
  must(X509_sign(certificate.get(), impl_->key.get(), EVP_sha256()) > 0, "signing");
  return {pem_of([&](BIO* bio) { return PEM_write_bio_X509(bio, certificate.get()); }),
          pem_of([&](BIO* bio) { return PEM_write_bio_PrivateKey(bio, key.get(), nullptr, nullptr, 0, nullptr, nullptr); })};
}

}  // namespace windlass::kube
