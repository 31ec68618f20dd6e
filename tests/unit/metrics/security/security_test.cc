// Tokens, digests, certificates, and files that are reloaded when they change.
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "metrics/security/reloaded.h"
#include "metrics/security/secrets.h"
#include "metrics/security/tls.h"
#include "tests/unit/controller/kube/test_certificates.h"

namespace windlass::security {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "windlass-security-XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string put(const std::string& name, const std::string& text) const {
    const auto path = path_ / name;
    std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
    return path.string();
  }

 private:
  std::filesystem::path path_;
};

// Given tokens with white space around them, too short, with a space inside, or with bytes outside ASCII; expects the first
// without the white space, and an error for the others that does not quote them.
TEST(Token, Parse) {
  EXPECT_EQ(parse_token("  0123456789abcdef\n").value(), "0123456789abcdef");
  for (const char* bad : {"", "\n", "short-secret", "0123456789abcdef 0123456789abcdef", "0123456789abcde\xc3\xa9"}) {
    const auto token = parse_token(bad);
    ASSERT_FALSE(token.ok()) << bad;
    EXPECT_THAT(token.error().message, HasSubstr("must be 16 to 4096"));
    EXPECT_THAT(token.error().message, Not(HasSubstr("secret")));
    EXPECT_THAT(token.error().message, Not(HasSubstr("0123")));
  }
}

// Given Authorization headers; expects only a bearer token to be accepted, in any case, and secrets to be equal only if all of
// them is.
TEST(Token, BearerAndComparison) {
  EXPECT_EQ(bearer("Bearer abc"), "abc");
  EXPECT_EQ(bearer("bEARER   abc"), "abc");
  for (const char* other : {"", "Bearer", "Bearer ", "Bearer   ", "Basic abc", "abc", "Bearerabc"})
    EXPECT_EQ(bearer(other), "");
  EXPECT_TRUE(same_secret("a-secret", "a-secret"));
  for (const char* other : {"", "a-secre", "a-secret ", "b-secret"}) EXPECT_FALSE(same_secret("a-secret", other)) << other;
}

// Given FIPS 180-4's example; expects its digest.
TEST(Token, Sha256) { EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"); }

// Given RFC 4231's second test case; expects its HMAC-SHA256. Given another purpose or secret; expects a different one.
TEST(Token, DerivedSecrets) {
  EXPECT_EQ(derived_secret("Jefe", "what do ya want for nothing?"),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_NE(derived_secret("one", "purpose"), derived_secret("one", "another"));
  EXPECT_NE(derived_secret("one", "purpose"), derived_secret("two", "purpose"));
}

// Given a certificate with its key, with another key, with text that is not PEM, and an authority's text without a certificate;
// expects only the first to be accepted, and no error to quote a key.
TEST(Tls, Certificates) {
  const kube::TestAuthority authority("a");
  const auto one = authority.issue("one", {"DNS:one"}), other = authority.issue("other");
  EXPECT_TRUE(check_certificate(one.certificate_pem, one.private_key_pem).ok());
  EXPECT_TRUE(check_certificate(one.certificate_pem + authority.pem(), one.private_key_pem).ok());
  EXPECT_THAT(check_certificate(one.certificate_pem, other.private_key_pem).error().message, HasSubstr("must belong"));
  EXPECT_THAT(check_certificate("", one.private_key_pem).error().message, HasSubstr("certificate: must be PEM"));
  EXPECT_THAT(check_certificate(one.certificate_pem, "secret").error().message, HasSubstr("must be a PEM private key"));
  EXPECT_TRUE(check_ca(authority.pem()).ok());
  EXPECT_FALSE(check_ca("nothing").ok());
}

// Given a file that is good, then bad, then gone, then good again; expects the first text to stay in use until the last one,
// and each change to be reported once.
TEST(Reloaded, FollowsGoodFilesOnly) {
  const Folder folder;
  const std::string path = folder.put("token", "first-token-of-all\n");
  const auto make = [](const std::vector<std::string>& texts) { return parse_token(texts[0]); };
  const auto token = Reloaded<std::string>::load({path}, make).value();
  EXPECT_EQ(*token->current(), "first-token-of-all");
  EXPECT_FALSE(token->refresh().has_value());
  folder.put("token", "short");
  const auto wrong = token->refresh();
  ASSERT_TRUE(wrong.has_value());
  EXPECT_THAT(wrong->error().message, HasSubstr(path));
  EXPECT_FALSE(token->refresh().has_value());
  std::filesystem::remove(path);
  EXPECT_FALSE(token->refresh()->ok());
  EXPECT_FALSE(token->refresh().has_value());
  EXPECT_EQ(*token->current(), "first-token-of-all");
  folder.put("token", "second-token-of-all");
  EXPECT_TRUE(token->refresh()->ok());
  EXPECT_EQ(*token->current(), "second-token-of-all");
  EXPECT_THAT(Reloaded<std::string>::load({path + ".none"}, make).error().message, HasSubstr("No such file"));
}

// Given a secret that every user may read, and one that only its owner may read; expects a warning about the first.
TEST(Files, Permissions) {
  const Folder folder;
  const std::string path = folder.put("token", "x");
  ::chmod(path.c_str(), 0644);
  EXPECT_THAT(permission_warning(path), HasSubstr("must have mode 640 or less (got 644)"));
  ::chmod(path.c_str(), 0600);
  EXPECT_EQ(permission_warning(path), "");
  EXPECT_FALSE(read_file(folder.put("big", "12345"), 4).ok());
}

}  // namespace
}  // namespace windlass::security
