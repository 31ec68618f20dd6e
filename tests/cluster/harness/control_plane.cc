// Implements control_plane.h.
#include "tests/cluster/harness/control_plane.h"

#include <csignal>
#include <filesystem>
#include <sstream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <openssl/evp.h>

#include "tests/cluster/harness/certificates.h"
#include "tests/cluster/harness/wait.h"
#include "tests/free_port.h"
#include "tests/paths.h"

namespace windlass::testing {
namespace {

using std::chrono::seconds;

// Logs the metadata of every completed request except health checks.
constexpr const char* kAuditPolicy = R"(apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
- level: None
  nonResourceURLs: ["/readyz*", "/livez*", "/healthz*", "/openapi*", "/version*"]
- level: Metadata
)";

// Only the controllers that the tests need: each one costs watches and memory.
constexpr const char* kControllers =
    "serviceaccount-controller,serviceaccount-token-controller,root-ca-certificate-publisher-controller,namespace-controller,"
    "garbage-collector-controller,pod-garbage-collector-controller,deployment-controller,replicaset-controller,"
    "persistentvolume-binder-controller,persistentvolume-protection-controller,persistentvolumeclaim-protection-controller,"
    "node-lifecycle-controller,resourcequota-controller,disruption-controller";

std::string text_at(const nlohmann::json& object, const char* pointer) {
  const nlohmann::json::json_pointer path(pointer);
  return object.contains(path) && object.at(path).is_string() ? object.at(path).get<std::string>() : "";
}

}  // namespace

Result<std::string> find_cluster_tools() {
  const CommandResult check = run_command({source_path("/tests/cluster/tools/build"), "--check"});
  if (!check.ok()) {
    return Error{ErrorCode::kNotFound,
                 "the Kubernetes binaries are not built: run tests/cluster/tools/build (scripts/test does)"};
  }
  return check.out.substr(0, check.out.find('\n'));
}

ControlPlane::ControlPlane(std::string tools, std::unique_ptr<TempDir> folder)
    : tools_(std::move(tools)),
      folder_(std::move(folder)),
      etcd_port_(free_port()),
      etcd_peer_port_(free_port()),
      port_(free_port()),
      url_(fmt::format("https://127.0.0.1:{}", port_)),
      kubeconfig_(folder_->file("admin.kubeconfig")) {}

ControlPlane::~ControlPlane() {
  // Clients first, so that none of them fills its log with errors about servers that are gone.
  for (auto* process : {&scheduler_, &controller_manager_, &api_server_, &etcd_}) {
    if (*process) (*process)->signal(SIGKILL);
    process->reset();
  }
}

Result<std::unique_ptr<ControlPlane>> ControlPlane::start() {
  WINDLASS_ASSIGN_OR_RETURN(std::string tools, find_cluster_tools());
  std::unique_ptr<ControlPlane> plane(new ControlPlane(tools, std::make_unique<TempDir>("windlass-cluster-")));
  const std::string& folder = plane->folder();
  WINDLASS_RETURN_IF_ERROR(make_certificates(folder));
  write_text_file(folder + "/audit-policy.yaml", kAuditPolicy);
  write_text_file(plane->kubeconfig_, fmt::format(R"(apiVersion: v1
kind: Config
current-context: test
clusters: [{{name: test, cluster: {{server: "{0}", certificate-authority: "{1}/ca.crt"}}}}]
users: [{{name: admin, user: {{client-certificate: "{1}/admin.crt", client-key: "{1}/admin.key"}}}}]
contexts: [{{name: test, context: {{cluster: test, user: admin}}}}]
)",
                                                  plane->url_, folder));
  WINDLASS_RETURN_IF_ERROR(plane->start_etcd());
  WINDLASS_RETURN_IF_ERROR(plane->start_api_server());
  WINDLASS_RETURN_IF_ERROR(plane->start_managers());
  return plane;
}

Result<std::unique_ptr<Process>> ControlPlane::launch(const std::string& program, std::vector<std::string> arguments) const {
  ProcessOptions options;
  options.argv = {tools_ + "/" + program};
  options.argv.insert(options.argv.end(), arguments.begin(), arguments.end());
  options.log_path = folder() + "/" + program + ".log";
  options.working_dir = folder();
  options.clean_env = true;
  // A small machine: collect garbage less often.
  options.env = {{"GOGC", "200"}};
  return Process::start(options);
}

Result<void> ControlPlane::start_etcd() {
  const std::string client = fmt::format("http://127.0.0.1:{}", etcd_port_);
  const std::string peer = fmt::format("http://127.0.0.1:{}", etcd_peer_port_);
  WINDLASS_ASSIGN_OR_RETURN(etcd_, launch("etcd", {"--data-dir=" + folder() + "/etcd", "--listen-client-urls=" + client,
                                                   "--advertise-client-urls=" + client, "--listen-peer-urls=" + peer,
                                                   "--initial-advertise-peer-urls=" + peer, "--initial-cluster=default=" + peer,
                                                   "--unsafe-no-fsync", "--log-level=warn"}));
  const bool healthy =
      eventually(kPatience, [&] { return !etcd_->running() || http_get(client + "/health", 2).status == 200; });
  if (!healthy || !etcd_->running()) return Error{ErrorCode::kUnavailable, "etcd did not become healthy\n" + tails()};
  return {};
}

Result<void> ControlPlane::start_api_server() {
  const std::string& dir = folder();
  WINDLASS_ASSIGN_OR_RETURN(api_server_,
                            launch("kube-apiserver", {fmt::format("--etcd-servers=http://127.0.0.1:{}", etcd_port_),
                                                      "--bind-address=127.0.0.1",
                                                      "--advertise-address=127.0.0.1",
                                                      fmt::format("--secure-port={}", port_),
                                                      "--endpoint-reconciler-type=none",
                                                      "--service-cluster-ip-range=10.0.0.0/24",
                                                      "--client-ca-file=" + dir + "/ca.crt",
                                                      "--tls-cert-file=" + dir + "/server.crt",
                                                      "--tls-private-key-file=" + dir + "/server.key",
                                                      "--authorization-mode=RBAC",
                                                      "--anonymous-auth=false",
                                                      "--service-account-issuer=https://kubernetes.default.svc",
                                                      "--service-account-key-file=" + dir + "/service-account.pub",
                                                      "--service-account-signing-key-file=" + dir + "/service-account.key",
                                                      "--audit-policy-file=" + dir + "/audit-policy.yaml",
                                                      "--audit-log-path=" + dir + "/audit.log",
                                                      "--audit-log-maxsize=0",
                                                      "--profiling=false",
                                                      "--enable-aggregator-routing=false",
                                                      "--v=0"}));
  const bool up = eventually(kPatience, [&] { return !api_server_->running() || ready(); });
  if (!up || !api_server_->running())
    return Error{ErrorCode::kUnavailable, "kube-apiserver did not become ready\n" + tails(40)};
  return {};
}

Result<void> ControlPlane::start_managers() {
  const std::string& dir = folder();
  WINDLASS_ASSIGN_OR_RETURN(
      controller_manager_,
      launch("kube-controller-manager",
             {"--kubeconfig=" + kubeconfig_, "--leader-elect=false", "--secure-port=0",
              "--use-service-account-credentials=false", "--service-account-private-key-file=" + dir + "/service-account.key",
              "--root-ca-file=" + dir + "/ca.crt", fmt::format("--controllers={}", kControllers), "--concurrent-gc-syncs=2",
              "--pvclaimbinder-sync-period=1s", "--kube-api-qps=100", "--kube-api-burst=200", "--v=0"}));
  WINDLASS_ASSIGN_OR_RETURN(scheduler_,
                            launch("kube-scheduler", {"--kubeconfig=" + kubeconfig_, "--leader-elect=false", "--secure-port=0",
                                                      "--kube-api-qps=500", "--kube-api-burst=1000", "--v=0"}));
  const bool accounts =
      eventually(kPatience, [&] { return get("/api/v1/namespaces/default/serviceaccounts/default").status == 200; });
  if (!accounts)
    return Error{ErrorCode::kUnavailable, "kube-controller-manager created no default ServiceAccount\n" + tails(40)};
  return {};
}

Tls ControlPlane::admin() const { return {folder() + "/ca.crt", folder() + "/admin.crt", folder() + "/admin.key", ""}; }

CommandResult ControlPlane::kubectl(const std::vector<std::string>& arguments, const std::string& input) const {
  std::vector<std::string> argv = {tools_ + "/kubectl", "--kubeconfig=" + kubeconfig_,
                                   "--cache-dir=" + folder() + "/kubectl-cache"};
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  return run_command(argv, input);
}

CommandResult ControlPlane::helm(const std::vector<std::string>& arguments) const {
  const std::string own = tools_ + "/helm";
  std::vector<std::string> argv = {std::filesystem::exists(own) ? own : "helm"};
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  return run_command(argv, "",
                     {{"HELM_CACHE_HOME", folder() + "/helm"},
                      {"HELM_CONFIG_HOME", folder() + "/helm"},
                      {"HELM_DATA_HOME", folder() + "/helm"}});
}

HttpAnswer ControlPlane::get(const std::string& path) const {
  HttpCall call;
  call.url = url_ + path;
  call.tls = admin();
  call.keep_connection = true;
  call.timeout_s = 60;
  return http(call);
}

HttpAnswer ControlPlane::send(const std::string& method, const std::string& path, const nlohmann::json& body,
                              const std::string& content_type) const {
  HttpCall call;
  call.method = method;
  call.url = url_ + path;
  call.tls = admin();
  call.headers = {"Content-Type: " + content_type};
  call.body = body.is_null() ? "" : body.dump();
  call.keep_connection = true;
  call.timeout_s = 60;
  return http(call);
}

std::vector<nlohmann::json> ControlPlane::list(const std::string& path) const {
  const nlohmann::json body = get(path).json();
  if (!body.is_object() || !body.contains("items")) return {};
  return body["items"].get<std::vector<nlohmann::json>>();
}

Result<std::string> ControlPlane::token(const std::string& name_space, const std::string& account) const {
  const HttpAnswer answer =
      send("POST", fmt::format("/api/v1/namespaces/{}/serviceaccounts/{}/token", name_space, account),
           {{"apiVersion", "authentication.k8s.io/v1"}, {"kind", "TokenRequest"}, {"spec", {{"expirationSeconds", 7200}}}});
  const std::string token = text_at(answer.ok() ? answer.json() : nlohmann::json::object(), "/status/token");
  if (token.empty()) {
    return Error{ErrorCode::kUnavailable, fmt::format("no token for ServiceAccount {}/{}: HTTP {} {}", name_space, account,
                                                      answer.status, answer.error)};
  }
  return token;
}

std::string ControlPlane::write_kubeconfig(const std::string& name, const std::string& bearer_token) const {
  const std::string path = folder() + "/" + name + ".kubeconfig";
  write_text_file(path, fmt::format(R"(apiVersion: v1
kind: Config
current-context: test
clusters: [{{name: test, cluster: {{server: "{}", certificate-authority: "{}/ca.crt"}}}}]
users: [{{name: {}, user: {{token: "{}"}}}}]
contexts: [{{name: test, context: {{cluster: test, user: {}}}}}]
)",
                                    url_, folder(), name, bearer_token, name));
  return path;
}

void ControlPlane::stop_etcd(int signal_number) {
  if (!etcd_) return;
  etcd_->signal(signal_number);
  if (!etcd_->wait(seconds(10))) (void)etcd_->stop(seconds(0));
  etcd_.reset();
}

void ControlPlane::stop_api_server(int signal_number) {
  if (!api_server_) return;
  api_server_->signal(signal_number);
  if (!api_server_->wait(seconds(10))) (void)api_server_->stop(seconds(0));
  api_server_.reset();
}

bool ControlPlane::ready() const { return get("/readyz").status == 200; }

std::vector<AuditEvent> ControlPlane::audit_log() const {
  std::vector<AuditEvent> events;
  std::stringstream lines(read_text_file(folder() + "/audit.log"));
  for (std::string line; std::getline(lines, line);) {
    const nlohmann::json entry = nlohmann::json::parse(line, nullptr, false);
    if (!entry.is_object()) continue;  // the last line may be incomplete
    AuditEvent event;
    event.verb = text_at(entry, "/verb");
    event.resource = text_at(entry, "/objectRef/resource");
    event.subresource = text_at(entry, "/objectRef/subresource");
    event.name_space = text_at(entry, "/objectRef/namespace");
    event.name = text_at(entry, "/objectRef/name");
    event.user = text_at(entry, "/user/username");
    event.received = text_at(entry, "/requestReceivedTimestamp");
    event.credential = text_at(entry, "/user/extra/authentication.kubernetes.io~1credential-id/0");
    const nlohmann::json::json_pointer code("/responseStatus/code");
    event.code = entry.contains(code) ? entry.at(code).get<int>() : 0;
    events.push_back(std::move(event));
  }
  return events;
}

std::string ControlPlane::tails(int lines) const {
  std::string text;
  for (const char* program : {"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"}) {
    text += fmt::format("--- {}\n{}\n", program, tail_of_file(folder() + "/" + program + ".log", lines));
  }
  return text;
}

std::string credential_of(const std::string& token) {
  const std::size_t first = token.find('.');
  const std::size_t second = token.find('.', first + 1);
  if (first == std::string::npos || second == std::string::npos) return "";
  std::string payload = token.substr(first + 1, second - first - 1);
  for (char& c : payload) c = c == '-' ? '+' : c == '_' ? '/' : c;
  while (payload.size() % 4 != 0) payload += '=';
  std::string decoded(payload.size(), '\0');
  const int size = EVP_DecodeBlock(reinterpret_cast<unsigned char*>(decoded.data()),
                                   reinterpret_cast<const unsigned char*>(payload.data()), static_cast<int>(payload.size()));
  if (size < 0) return "";
  decoded.resize(decoded.find_last_of('}') + 1);
  const nlohmann::json claims = nlohmann::json::parse(decoded, nullptr, false);
  return claims.is_object() && claims.contains("jti") ? "JTI=" + claims["jti"].get<std::string>() : "";
}

}  // namespace windlass::testing
