// Kubeconfig files, good and bad; in-cluster files; and a connection to a real TLS server that uses them.
#include "controller/kube/kube_config.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "controller/kube/base64.h"
#include "controller/kube/cluster.h"
#include "tests/unit/controller/kube/temp_dir.h"
#include "tests/unit/controller/kube/test_certificates.h"
#include "tests/unit/controller/kube/test_http_server.h"

namespace windlass::kube {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr const char* kPem = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";

std::string config_text(const std::string& cluster, const std::string& user) {
  return fmt::format(
      "apiVersion: v1\nkind: Config\ncurrent-context: here\n"
      "contexts:\n- name: here\n  context: {{cluster: c, user: u, namespace: models}}\n"
      "clusters:\n- name: c\n  cluster: {}\nusers:\n- name: u\n  user: {}\n",
      cluster, user);
}

Result<ClusterConfig> load(const std::vector<std::filesystem::path>& files, const std::string& context = "") {
  return load_kubeconfig({.files = files, .context = context});
}

// Given a complete file; expects server, namespace, CA, token and TLS name.
TEST(KubeConfig, ReadsAContext) {
  TempDir dir;
  auto file =
      dir.write("config", config_text("{server: 'https://api.test:6443/', certificate-authority-data: " + base64_encode(kPem) +
                                          ", tls-server-name: other.test, proxy-url: 'http://127.0.0.1:3128'}",
                                      "{token: t0ken}"));
  auto config = load({file});
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->server, "https://api.test:6443");
  EXPECT_EQ(config->context, "here");
  EXPECT_EQ(config->name_space, "models");
  EXPECT_EQ(config->tls.ca_pem, kPem);
  EXPECT_EQ(config->tls.server_name, "other.test");
  EXPECT_EQ(config->proxy_url, "http://127.0.0.1:3128");
  EXPECT_FALSE(config->tls.insecure_skip_verify);
  EXPECT_EQ(config->credentials->bearer_token(0).value(), "t0ken");
}

// Given paths relative to the file's folder; expects them to be read there; a tokenFile wins over a token.
TEST(KubeConfig, ReadsFilesRelativeToIt) {
  TempDir dir;
  dir.write("pki/ca.pem", kPem);
  dir.write("pki/client.pem", kPem);
  dir.write("pki/key.pem", "-----BEGIN PRIVATE KEY-----\nBBBB\n-----END PRIVATE KEY-----\n");
  dir.write("token", "from-file\n");
  auto file = dir.write(
      "config", config_text("{server: 'https://api.test', certificate-authority: pki/ca.pem}",
                            "{client-certificate: pki/client.pem, client-key: pki/key.pem, token: x, tokenFile: token}"));
  auto config = load({file});
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->tls.ca_pem, kPem);
  EXPECT_EQ(config->tls.client.certificate_pem, kPem);
  EXPECT_THAT(config->tls.client.private_key_pem, HasSubstr("BBBB"));
  EXPECT_EQ(config->credentials->bearer_token(0).value(), "from-file");
}

// Given several files, one of them missing; expects the first current-context, the first entry of each name, and the entries of
// all files.
TEST(KubeConfig, JoinsFiles) {
  TempDir dir;
  auto one = dir.write(
      "one", "contexts:\n- name: here\n  context: {cluster: c, user: u}\nusers:\n- name: u\n  user: {token: first}\n");
  auto two = dir.write("two", config_text("{server: 'https://two.test'}", "{token: second}"));
  auto config = load({dir.path() / "missing", one, two});
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->server, "https://two.test");
  EXPECT_EQ(config->name_space, "default");
  EXPECT_EQ(config->credentials->bearer_token(0).value(), "first");
}

// Given KUBECONFIG and HOME; expects its files in order, or the one in the home folder.
TEST(KubeConfig, Paths) {
  using Paths = std::vector<std::filesystem::path>;
  EXPECT_EQ(kubeconfig_paths("/a::/b", "/home/x"), (Paths{"/a", "/b"}));
  EXPECT_EQ(kubeconfig_paths("", "/home/x"), (Paths{"/home/x/.kube/config"}));
  EXPECT_EQ(kubeconfig_paths("", ""), Paths{});
}

// Given files with one mistake each; expects a message with the file, the field's path, the rule and the value, and never a
// secret.
TEST(KubeConfig, BadFiles) {
  struct Case {
    std::string name, text, expected;
  };
  const std::string ok = "{server: 'https://api.test'}";
  const std::string not_pem = base64_encode("s3cret no pem");
  std::vector<Case> cases{
      {"no YAML", "a: [1, 2\n", "config: line 2, column 1: not YAML"},
      {"a list", "- a\n", "config: the document: must be a map (got a list)"},
      {"another kind", "kind: Pod\n", "config: kind: must be 'Config' (got 'Pod')"},
      {"another version", "apiVersion: v2\n", "config: apiVersion: must be 'v1' (got 'v2')"},
      {"empty", "", "config: current-context: must be a context's name (got nothing); none is defined"},
      {"no current context", "contexts:\n- name: a\n- name: b\n",
       "current-context: must be a context's name (got nothing); defined are: a, b"},
      {"unknown context", "current-context: x\ncontexts:\n- name: a\n",
       "current-context: must be the name of a context (got 'x'); defined are: a"},
      {"contexts no list", "current-context: x\ncontexts: {a: b}\n", "contexts: must be a list (got a map)"},
      {"entry no map", "current-context: x\ncontexts: [5]\n", "contexts[0]: must be a map (got a scalar)"},
      {"entry without name", "current-context: x\ncontexts: [{context: {}}]\n",
       "contexts[0].name: must be a name (got nothing)"},
      {"context no map", "current-context: x\ncontexts: [{name: x, context: 3}]\n",
       "contexts[0].context: must be a map (got a scalar)"},
      {"no cluster", "current-context: x\ncontexts: [{name: x, context: {user: u}}]\n",
       "contexts[0].context.cluster: must be a cluster's name (got nothing)"},
      {"unknown cluster", "current-context: x\ncontexts: [{name: x, context: {cluster: q}}]\n",
       "contexts[0].context.cluster: must be the name of a cluster (got 'q'); none is defined"},
      {"no server", config_text("{}", "{}"),
       "clusters[0].cluster.server: must be https://host[:port][/path] or http://... (got '')"},
      {"server without scheme", config_text("{server: 'api.test:6443'}", "{}"),
       "clusters[0].cluster.server: must be https://host[:port][/path] or http://... (got 'api.test:6443')"},
      {"server a list", config_text("{server: [a]}", "{}"), "clusters[0].cluster.server: must be a string (got a list)"},
      {"bad base64", config_text("{server: 'https://a', certificate-authority-data: '%%s3cret'}", "{}"),
       "clusters[0].cluster.certificate-authority-data: must be base64"},
      {"no PEM", config_text("{server: 'https://a', certificate-authority-data: " + not_pem + "}", "{}"),
       "clusters[0].cluster.certificate-authority-data: must be PEM"},
      {"missing file", config_text("{server: 'https://a', certificate-authority: nowhere.pem}", "{}"),
       "clusters[0].cluster.certificate-authority: "},
      {"skip as a word", config_text("{server: 'https://a', insecure-skip-tls-verify: perhaps}", "{}"),
       "clusters[0].cluster.insecure-skip-tls-verify: must be true or false (got 'perhaps')"},
      {"skip and authority",
       config_text(
           "{server: 'https://a', insecure-skip-tls-verify: true, certificate-authority-data: " + base64_encode(kPem) + "}",
           "{}"),
       "insecure-skip-tls-verify: must be false if certificate-authority is set (got true)"},
      {"proxy", config_text("{server: 'https://a', proxy-url: 'ftp://x'}", "{}"), "proxy-url: must begin with http://"},
      {"user no map", config_text(ok, "[s3cret]"), "users[0].user: must be a map (got a list)"},
      {"password", config_text(ok, "{username: u, password: s3cret}"),
       "users[0].user.username: must not be set, because Windlass does not support"},
      {"impersonation", config_text(ok, "{as: admin}"), "users[0].user.as: must not be set, because Windlass does not support"},
      {"auth-provider", config_text(ok, "{auth-provider: {name: gcp}}"), "users[0].user.auth-provider: must not be set"},
      {"certificate without key", config_text(ok, "{client-certificate-data: " + base64_encode(kPem) + "}"),
       "users[0].user.client-key: must be set (got nothing), because client-certificate and client-key belong together"},
      {"token a map", config_text(ok, "{token: {a: s3cret}}"), "users[0].user.token: must be a string (got a map)"},
      {"exec and token", config_text(ok, "{token: s3cret, exec: {apiVersion: client.authentication.k8s.io/v1, command: x}}"),
       "users[0].user.exec: must not be set together with a token (got both)"},
      {"exec version", config_text(ok, "{exec: {apiVersion: client.authentication.k8s.io/v1alpha1, command: x}}"),
       "users[0].user.exec.apiVersion: must be client.authentication.k8s.io/v1 or /v1beta1 "
       "(got 'client.authentication.k8s.io/v1alpha1')"},
      {"exec command", config_text(ok, "{exec: {apiVersion: client.authentication.k8s.io/v1beta1}}"),
       "users[0].user.exec.command: must be the program's name or path (got nothing)"},
      {"exec mode missing in v1", config_text(ok, "{exec: {apiVersion: client.authentication.k8s.io/v1, command: x}}"),
       "users[0].user.exec.interactiveMode: must be Never, IfAvailable or Always (got '')"},
      {"exec env",
       config_text(ok, "{exec: {apiVersion: client.authentication.k8s.io/v1beta1, command: x, env: [{value: s3cret}]}}"),
       "users[0].user.exec.env[0].name: must be a variable's name (got '')"},
      {"exec args", config_text(ok, "{exec: {apiVersion: client.authentication.k8s.io/v1beta1, command: x, args: s3cret}}"),
       "users[0].user.exec.args: must be a list (got a scalar)"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    TempDir dir;
    auto file = dir.write("config", c.text);
    auto config = load({file});
    ASSERT_FALSE(config.ok());
    EXPECT_NE(config.error().code, ErrorCode::kInternal);
    EXPECT_THAT(config.error().message, HasSubstr(c.expected));
    EXPECT_THAT(config.error().message, HasSubstr(file.string()));
    EXPECT_THAT(config.error().message, Not(HasSubstr("s3cret")));
  }
}

// Given no file at all; expects kNotFound and the names tried. Given a context by flag; expects its name in the message.
TEST(KubeConfig, MissingFilesAndContexts) {
  TempDir dir;
  auto missing = load({dir.path() / "a", dir.path() / "b"});
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(missing.error().message, HasSubstr((dir.path() / "b").string()));
  auto unknown = load({dir.write("config", config_text("{server: 'https://a'}", "{}"))}, "there");
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.error().message, "kubeconfig: --context: must be the name of a context (got 'there'); defined are: here");
}

// Given a pod's files and variables; expects the server, the CA and the namespace. Given missing parts; expects errors that
// name them.
TEST(KubeConfig, InCluster) {
  TempDir dir;
  dir.write("token", "one\n");
  dir.write("ca.crt", kPem);
  dir.write("namespace", "system\n");
  auto config = load_in_cluster({.root = dir.path(), .host = "10.0.0.1", .port = "443"});
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->server, "https://10.0.0.1:443");
  EXPECT_EQ(config->name_space, "system");
  EXPECT_EQ(config->tls.ca_pem, kPem);
  EXPECT_EQ(config->credentials->bearer_token(0).value(), "one");
  EXPECT_EQ(load_in_cluster({.root = dir.path(), .host = "fd00::1", .port = "443"})->server, "https://[fd00::1]:443");

  EXPECT_THAT(load_in_cluster({.root = dir.path(), .host = "", .port = "443"}).error().message,
              HasSubstr("KUBERNETES_SERVICE_HOST: must be set"));
  EXPECT_THAT(load_in_cluster({.root = dir.path(), .host = "h", .port = "x"}).error().message,
              HasSubstr("KUBERNETES_SERVICE_PORT: must be a port number (got 'x')"));
  std::filesystem::remove(dir.path() / "ca.crt");
  EXPECT_THAT(load_in_cluster({.root = dir.path(), .host = "h", .port = "1"}).error().message,
              HasSubstr("ca.crt: No such file"));
}

// Given a kubeconfig whose plugin provides a client certificate and renews it after a 401; expects a real TLS server to see the
// first and then the second.
TEST(Cluster, PresentsAndRenewsThePluginsCertificate) {
  TestAuthority authority("authority");
  TestHttpServer::Tls tls{authority.issue("server", {"IP:127.0.0.1"}), authority.pem()};
  TestHttpServer server(
      [](const auto& request, auto& answer) {
        bool accepted = request.client_name == "second";
        answer.send(accepted ? 200 : 401,
                    accepted ? "hello " + request.client_name : R"({"kind":"Status","reason":"Unauthorized","message":"no"})");
      },
      tls);
  TempDir dir;
  auto credential = [](const ClientCertificate& certificate) {
    nlohmann::json out{
        {"apiVersion", "client.authentication.k8s.io/v1"},
        {"kind", "ExecCredential"},
        {"status", {{"clientCertificateData", certificate.certificate_pem}, {"clientKeyData", certificate.private_key_pem}}}};
    return out.dump();
  };
  dir.write("first.json", credential(authority.issue("first")));
  dir.write("second.json", credential(authority.issue("second")));
  dir.write(
      "plugin",
      "#!/bin/sh\ncd " + dir.path().string() + "\nif [ -e ran ]; then cat second.json; else touch ran; cat first.json; fi\n",
      true);
  auto file = dir.write(
      "config",
      config_text("{server: '" + server.url() + "', certificate-authority-data: " + base64_encode(authority.pem()) + "}",
                  "{exec: {apiVersion: client.authentication.k8s.io/v1, command: ./plugin, interactiveMode: Never}}"));
  auto config = load({file});
  ASSERT_TRUE(config.ok()) << config.error().message;
  auto cluster = Cluster::connect(std::move(*config));
  ASSERT_TRUE(cluster.ok()) << cluster.error().message;
  EXPECT_EQ((*cluster)->name_space(), "models");
  auto answer = (*cluster)->client().raw_get("/version");
  ASSERT_TRUE(answer.ok()) << answer.error().message;
  EXPECT_EQ(*answer, "hello second");
}

}  // namespace
}  // namespace windlass::kube
