// Rotating tokens, and credential plugins as real programs.
#include "controller/kube/credentials.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "controller/kube/exec_credential.h"
#include "tests/unit/controller/kube/temp_dir.h"

namespace windlass::kube {
namespace {

using testing::HasSubstr;
using testing::Not;

// Given a token file that is replaced; expects the new token within a minute, and immediately after a 401, and the old one
// while the file is empty or missing.
TEST(TokenFile, IsReadAgain) {
  TempDir dir;
  auto file = dir.write("token", "one\n");
  auto source = token_file(file);
  EXPECT_EQ(source->bearer_token(1000).value(), "one");
  dir.write("token", "two");
  EXPECT_EQ(source->bearer_token(1010).value(), "one");
  EXPECT_EQ(source->bearer_token(1060).value(), "two");
  dir.write("token", "three");
  source->invalidate();
  EXPECT_EQ(source->bearer_token(1061).value(), "three");
  dir.write("token", "");
  EXPECT_EQ(source->bearer_token(1200).value(), "three");
  std::filesystem::remove(file);
  EXPECT_EQ(source->bearer_token(1300).value(), "three");
  dir.write("token", "four");
  EXPECT_EQ(source->bearer_token(1300.5).value(), "four");
  dir.write("token", "five");
  EXPECT_EQ(source->bearer_token(900).value(), "five");  // the wall clock was set back
}

// Given a token file that never existed or is empty from the start; expects an error with its name.
TEST(TokenFile, MustExistOnce) {
  TempDir dir;
  auto missing = token_file(dir.path() / "token")->bearer_token(0);
  ASSERT_FALSE(missing.ok());
  EXPECT_THAT(missing.error().message, HasSubstr((dir.path() / "token").string()));
  EXPECT_FALSE(token_file(dir.write("empty", " \n"))->bearer_token(0).ok());
}

struct Plugin {
  explicit Plugin(const std::string& script) {
    plugin.api_version = "client.authentication.k8s.io/v1";
    plugin.command = dir.write("plugin", "#!/bin/sh\ncd " + dir.path().string() + "\n" + script, true).string();
    plugin.interactive_mode = ExecInteractiveMode::kNever;
    plugin.timeout_s = 20;
  }
  std::unique_ptr<CredentialSource> source() { return exec_credentials(plugin); }

  TempDir dir;
  ExecPlugin plugin;
};

std::string credential(const std::string& status) {
  return R"(echo '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":)" + status + "}'\n";
}

// Given a plugin whose token expires; expects one run until shortly before the expiry, and another after it, with its
// arguments, its variables and KUBERNETES_EXEC_INFO.
TEST(ExecCredentials, RunsWhenDue) {
  Plugin p("echo run >> runs; echo \"$1 $NAME $KUBERNETES_EXEC_INFO\" > seen\n" +
           credential(R"({"token":"t'$(wc -l < runs)'","expirationTimestamp":"2026-01-01T00:10:00Z"})"));
  p.plugin.args = {"argument"};
  p.plugin.env = {{"NAME", "value"}};
  p.plugin.cluster_info = R"({"server":"https://api.test"})";
  auto source = p.source();
  double expires_s = 1767225600 + 600;
  EXPECT_EQ(source->bearer_token(expires_s - 500).value(), "t1");
  EXPECT_EQ(source->bearer_token(expires_s - 11).value(), "t1");
  EXPECT_EQ(source->bearer_token(expires_s - 9).value(), "t2");
  std::string seen = p.dir.read("seen");
  EXPECT_THAT(seen, HasSubstr("argument value {"));
  EXPECT_THAT(seen, HasSubstr(R"("cluster":{"server":"https://api.test"})"));
  EXPECT_THAT(seen, HasSubstr(R"("interactive":false)"));
}

// Given a token without an expiry; expects one run until the server refuses it.
TEST(ExecCredentials, RunsAgainAfter401) {
  Plugin p("echo run >> runs\n" + credential(R"({"token":"t'$(wc -l < runs)'"})"));
  auto source = p.source();
  EXPECT_EQ(source->bearer_token(0).value(), "t1");
  EXPECT_EQ(source->bearer_token(1e9).value(), "t1");
  source->invalidate();
  EXPECT_EQ(source->bearer_token(1e9).value(), "t2");
}

// Given an expiry with an offset or fractions; expects it to be understood.
TEST(ExecCredentials, ExpiryForms) {
  for (const char* stamp : {"2026-01-01T02:10:00+02:00", "2026-01-01T00:10:00.123456Z", "2025-12-31T19:10:00-05:00"}) {
    Plugin p("echo run >> runs\n" +
             credential(std::string(R"({"token":"t'$(wc -l < runs)'","expirationTimestamp":")") + stamp + "\"}"));
    auto source = p.source();
    EXPECT_EQ(source->bearer_token(1767225600).value(), "t1") << stamp;
    EXPECT_EQ(source->bearer_token(1767225600 + 585).value(), "t1") << stamp;
    EXPECT_EQ(source->bearer_token(1767225600 + 595).value(), "t2") << stamp;
  }
}

// Given plugins that fail or answer wrongly; expects messages with the plugin and the fault, and never what it printed on
// stdout.
TEST(ExecCredentials, BadPlugins) {
  struct Case {
    std::string script, expected;
  };
  std::vector<Case> cases{
      {"echo s3cret; echo 'please log in' >&2; exit 3\n", "ended with 3: please log in"},
      {"kill -9 $$\n", "ended with 137"},
      {"echo s3cret\n", "its output must be a JSON object"},
      {R"(echo '{"kind":"s3c","apiVersion":"client.authentication.k8s.io/v1"}')", "kind: must be 'ExecCredential' (got 's3c')"},
      {R"(echo '{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1beta1","status":{"token":"s3cret"}}')",
       "apiVersion: must be 'client.authentication.k8s.io/v1', as in the kubeconfig (got "
       "'client.authentication.k8s.io/v1beta1')"},
      {R"(echo '{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1"}')",
       "status: must have a token or a client certificate (got nothing)"},
      {credential("{}"), "status: must have a token or a client certificate (got neither)"},
      {credential(R"({"clientKeyData":"s3cret"})"), "must have clientCertificateData and clientKeyData together"},
      {credential(R"({"token":"s3cret","expirationTimestamp":"tomorrow"})"),
       "status.expirationTimestamp: must be RFC 3339, such as 2026-05-01T10:00:00Z (got 'tomorrow')"},
      {"head -c 2000000 /dev/zero\n", "wrote more than"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.script);
    Plugin p(c.script);
    auto token = p.source()->bearer_token(0);
    ASSERT_FALSE(token.ok());
    EXPECT_THAT(token.error().message, HasSubstr(c.expected));
    EXPECT_THAT(token.error().message, HasSubstr("plugin"));
    EXPECT_THAT(token.error().message, Not(HasSubstr("s3cret")));
  }
}

// Given a plugin that hangs; expects it to be killed after its timeout. Given a missing one; expects the install hint.
TEST(ExecCredentials, HangingAndMissingPlugins) {
  Plugin p("exec sleep 600\n");
  p.plugin.timeout_s = 0.2;
  auto hung = p.source()->bearer_token(0);
  ASSERT_FALSE(hung.ok());
  EXPECT_EQ(hung.error().code, ErrorCode::kDeadlineExceeded);
  p.plugin.command = "windlass-no-such-plugin";
  p.plugin.install_hint = "get it from your cloud's site";
  auto missing = p.source()->bearer_token(0);
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(missing.error().message, HasSubstr("get it from your cloud's site"));
}

}  // namespace
}  // namespace windlass::kube
