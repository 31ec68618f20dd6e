// Reads kubeconfig files and the service-account files of a pod.
#include "controller/kube/kube_config.h"

#include <optional>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <yaml-cpp/yaml.h>

#include "controller/kube/base64.h"
#include "controller/kube/exec_credential.h"
#include "controller/kube/files.h"
#include "controller/kube/http_text.h"
#include "metrics/net/host_port.h"

namespace windlass::kube {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// A value in a kubeconfig file with its path, for error messages.
struct Field {
  fs::path file;
  std::string path;  // "users[1].user.exec"
  YAML::Node node;

  [[nodiscard]] bool present() const { return node.IsDefined() && !node.IsNull(); }

  [[nodiscard]] Error refuse(const std::string& message) const {
    return {ErrorCode::kInvalidArgument,
            fmt::format("{}: {}: {}", file.string(), path.empty() ? "the document" : path, message)};
  }

  // REQUIRES: a map, or absent.
  [[nodiscard]] Field at(const std::string& key) const {
    const YAML::Node& holder = node;
    YAML::Node child = holder.IsDefined() && holder.IsMap() ? holder[key] : YAML::Node(YAML::NodeType::Undefined);
    return {file, path.empty() ? key : path + "." + key, child};
  }

  [[nodiscard]] Field at(std::size_t index) const {
    const YAML::Node& holder = node;
    return {file, fmt::format("{}[{}]", path, index), holder[index]};
  }

  [[nodiscard]] Result<void> must_be_map() const {
    if (present() && !node.IsMap()) return refuse(fmt::format("must be a map (got {})", kind()));
    return {};
  }

  [[nodiscard]] Result<void> must_be_list() const {
    if (present() && !node.IsSequence()) return refuse(fmt::format("must be a list (got {})", kind()));
    return {};
  }

  // The text; empty if absent.
  [[nodiscard]] Result<std::string> text() const {
    if (!present()) return std::string();
    if (!node.IsScalar()) return refuse(fmt::format("must be a string (got {})", kind()));
    return node.Scalar();
  }

  [[nodiscard]] Result<bool> boolean() const {
    WINDLASS_ASSIGN_OR_RETURN(std::string value, text());
    if (value.empty() || value == "false") return false;
    if (value == "true") return true;
    return refuse("must be true or false (got '" + value + "')");
  }

  [[nodiscard]] const char* kind() const {
    if (!present()) return "nothing";
    return node.IsMap() ? "a map" : node.IsSequence() ? "a list" : "a scalar";
  }

  // A path in the file, relative to the file's folder.
  [[nodiscard]] fs::path resolved(const std::string& value) const {
    fs::path out(value);
    return out.is_absolute() ? out : file.parent_path() / out;
  }
};

Result<Field> parse_file(const fs::path& path) {
  WINDLASS_ASSIGN_OR_RETURN(std::string text, read_file(path));
  try {
    Field document{path, "", YAML::Load(text)};
    if (!document.present()) return Field{path, "", YAML::Node(YAML::NodeType::Map)};  // an empty file is an empty map
    WINDLASS_RETURN_IF_ERROR(document.must_be_map());
    WINDLASS_ASSIGN_OR_RETURN(std::string kind, document.at("kind").text());
    if (!kind.empty() && kind != "Config") return document.at("kind").refuse("must be 'Config' (got '" + kind + "')");
    WINDLASS_ASSIGN_OR_RETURN(std::string version, document.at("apiVersion").text());
    if (!version.empty() && version != "v1") return document.at("apiVersion").refuse("must be 'v1' (got '" + version + "')");
    return document;
  } catch (const YAML::Exception& error) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("{}: line {}, column {}: not YAML: {}", path.string(),
                                                          error.mark.line + 1, error.mark.column + 1, error.msg)};
  }
}

// The <item> of the entry `name` in a list of {name, <item>}. The first file with such an entry wins.
Result<std::optional<Field>> find_entry(const std::vector<Field>& documents, const std::string& list, const std::string& item,
                                        const std::string& name, std::vector<std::string>& known) {
  std::optional<Field> found;
  for (const Field& document : documents) {
    Field entries = document.at(list);
    WINDLASS_RETURN_IF_ERROR(entries.must_be_list());
    for (std::size_t i = 0; entries.present() && i < entries.node.size(); ++i) {
      Field entry = entries.at(i);
      if (!entry.present()) return entry.refuse("must be a map with name and " + item + " (got nothing)");
      WINDLASS_RETURN_IF_ERROR(entry.must_be_map());
      WINDLASS_ASSIGN_OR_RETURN(std::string entry_name, entry.at("name").text());
      if (entry_name.empty()) return entry.at("name").refuse("must be a name (got nothing)");
      known.push_back(entry_name);
      if (entry_name != name || found) continue;
      Field body = entry.at(item);
      WINDLASS_RETURN_IF_ERROR(body.must_be_map());
      found = body;
    }
  }
  return found;
}

Result<std::string> must_be_pem(const Field& field, std::string text) {
  if (text.find("-----BEGIN ") == std::string::npos)
    return field.refuse("must be PEM, with a line '-----BEGIN ' (got other data)");
  return text;
}

// The PEM of "<name>-data" (base64) or "<name>" (a path); empty if neither is set.
Result<std::string> pem_of(const Field& holder, const std::string& name) {
  Field data = holder.at(name + "-data");
  WINDLASS_ASSIGN_OR_RETURN(std::string encoded, data.text());
  if (!encoded.empty()) {
    std::optional<std::string> decoded = base64_decode(encoded);
    if (!decoded) return data.refuse("must be base64 (got other text)");
    return must_be_pem(data, std::move(*decoded));
  }
  Field place = holder.at(name);
  WINDLASS_ASSIGN_OR_RETURN(std::string path, place.text());
  if (path.empty()) return std::string();
  Result<std::string> text = read_file(place.resolved(path));
  if (!text.ok()) return Error{text.error().code, place.refuse(text.error().message).message};
  return must_be_pem(place, std::move(*text));
}

Result<void> read_cluster(const Field& cluster, ClusterConfig& config) {
  Field server = cluster.at("server");
  WINDLASS_ASSIGN_OR_RETURN(config.server, server.text());
  bool has_scheme = config.server.starts_with("https://") || config.server.starts_with("http://");
  if (!has_scheme || config.server.ends_with("://")) {
    return server.refuse(fmt::format("must be https://host[:port][/path] or http://... (got '{}')", config.server));
  }
  while (config.server.back() == '/') config.server.pop_back();
  WINDLASS_ASSIGN_OR_RETURN(config.tls.ca_pem, pem_of(cluster, "certificate-authority"));
  WINDLASS_ASSIGN_OR_RETURN(config.tls.insecure_skip_verify, cluster.at("insecure-skip-tls-verify").boolean());
  if (config.tls.insecure_skip_verify && !config.tls.ca_pem.empty()) {
    return cluster.at("insecure-skip-tls-verify").refuse("must be false if certificate-authority is set (got true)");
  }
  WINDLASS_ASSIGN_OR_RETURN(config.tls.server_name, cluster.at("tls-server-name").text());
  Field proxy = cluster.at("proxy-url");
  WINDLASS_ASSIGN_OR_RETURN(config.proxy_url, proxy.text());
  bool known_proxy = config.proxy_url.empty();
  for (const char* scheme : {"http://", "https://", "socks5://"})
    known_proxy = known_proxy || config.proxy_url.starts_with(scheme);
  if (!known_proxy) return proxy.refuse("must begin with http://, https:// or socks5:// (got another scheme)");
  return {};
}

// For KUBERNETES_EXEC_INFO: the cluster data that the plugin may see.
std::string cluster_info(const ClusterConfig& config) {
  json info{{"server", config.server}, {"config", nullptr}};
  if (!config.tls.server_name.empty()) info["tls-server-name"] = config.tls.server_name;
  if (config.tls.insecure_skip_verify) info["insecure-skip-tls-verify"] = true;
  if (!config.tls.ca_pem.empty()) info["certificate-authority-data"] = base64_encode(config.tls.ca_pem);
  if (!config.proxy_url.empty()) info["proxy-url"] = config.proxy_url;
  return to_text(info);
}

Result<ExecPlugin> read_exec(const Field& exec, const ClusterConfig& config) {
  WINDLASS_RETURN_IF_ERROR(exec.must_be_map());
  ExecPlugin plugin;
  WINDLASS_ASSIGN_OR_RETURN(plugin.api_version, exec.at("apiVersion").text());
  bool v1 = plugin.api_version == "client.authentication.k8s.io/v1";
  if (!v1 && plugin.api_version != "client.authentication.k8s.io/v1beta1") {
    return exec.at("apiVersion")
        .refuse(fmt::format("must be client.authentication.k8s.io/v1 or /v1beta1 (got '{}')", plugin.api_version));
  }
  WINDLASS_ASSIGN_OR_RETURN(plugin.command, exec.at("command").text());
  if (plugin.command.empty()) return exec.at("command").refuse("must be the program's name or path (got nothing)");
  if (plugin.command.find('/') != std::string::npos) plugin.command = exec.resolved(plugin.command).string();
  Field args = exec.at("args");
  WINDLASS_RETURN_IF_ERROR(args.must_be_list());
  for (std::size_t i = 0; args.present() && i < args.node.size(); ++i) {
    WINDLASS_ASSIGN_OR_RETURN(std::string arg, args.at(i).text());
    plugin.args.push_back(std::move(arg));
  }
  Field env = exec.at("env");
  WINDLASS_RETURN_IF_ERROR(env.must_be_list());
  for (std::size_t i = 0; env.present() && i < env.node.size(); ++i) {
    Field entry = env.at(i);
    WINDLASS_RETURN_IF_ERROR(entry.must_be_map());
    WINDLASS_ASSIGN_OR_RETURN(std::string name, entry.at("name").text());
    if (name.empty() || name.find('=') != std::string::npos)
      return entry.at("name").refuse("must be a variable's name (got '" + name + "')");
    WINDLASS_ASSIGN_OR_RETURN(std::string value, entry.at("value").text());
    plugin.env.emplace_back(std::move(name), std::move(value));
  }
  Field mode = exec.at("interactiveMode");
  WINDLASS_ASSIGN_OR_RETURN(std::string mode_name, mode.text());
  if (mode_name == "Never") {
    plugin.interactive_mode = ExecInteractiveMode::kNever;
  } else if (mode_name == "Always") {
    plugin.interactive_mode = ExecInteractiveMode::kAlways;
  } else if (mode_name != "IfAvailable" && (v1 || !mode_name.empty())) {
    return mode.refuse(fmt::format("must be Never, IfAvailable or Always (got '{}')", mode_name));
  }
  WINDLASS_ASSIGN_OR_RETURN(plugin.install_hint, exec.at("installHint").text());
  WINDLASS_ASSIGN_OR_RETURN(bool wants_cluster, exec.at("provideClusterInfo").boolean());
  if (wants_cluster) plugin.cluster_info = cluster_info(config);
  return plugin;
}

Result<void> read_user(const Field& user, ClusterConfig& config) {
  for (const char* name : {"username", "password", "auth-provider", "as", "as-uid", "as-groups", "as-user-extra"}) {
    if (Field field = user.at(name); field.present()) {
      return field.refuse(
          "must not be set, because Windlass does not support it (got a value); use token, tokenFile, "
          "client-certificate(-data) with client-key(-data), or exec");
    }
  }
  WINDLASS_ASSIGN_OR_RETURN(config.tls.client.certificate_pem, pem_of(user, "client-certificate"));
  WINDLASS_ASSIGN_OR_RETURN(config.tls.client.private_key_pem, pem_of(user, "client-key"));
  if (config.tls.client.certificate_pem.empty() != config.tls.client.private_key_pem.empty()) {
    const char* missing = config.tls.client.private_key_pem.empty() ? "client-key" : "client-certificate";
    return user.at(missing).refuse("must be set (got nothing), because client-certificate and client-key belong together");
  }
  WINDLASS_ASSIGN_OR_RETURN(std::string token, user.at("token").text());
  WINDLASS_ASSIGN_OR_RETURN(std::string token_path, user.at("tokenFile").text());
  Field exec = user.at("exec");
  if (exec.present()) {
    if (!token.empty() || !token_path.empty()) return exec.refuse("must not be set together with a token (got both)");
    WINDLASS_ASSIGN_OR_RETURN(ExecPlugin plugin, read_exec(exec, config));
    config.credentials = exec_credentials(std::move(plugin));
  } else if (!token_path.empty()) {  // wins over token, as in kubectl
    config.credentials = token_file(user.at("tokenFile").resolved(token_path));
  } else if (!token.empty()) {
    config.credentials = static_token(std::move(token));
  } else {
    config.credentials = no_credentials();
  }
  return {};
}

std::string names_of(const std::vector<std::string>& known) {
  return known.empty() ? "none is defined" : fmt::format("defined are: {}", fmt::join(known, ", "));
}

Result<Field> must_find(const std::vector<Field>& documents, const std::string& list, const std::string& item,
                        const std::string& name, const std::string& where) {
  std::vector<std::string> known;
  WINDLASS_ASSIGN_OR_RETURN(std::optional<Field> found, find_entry(documents, list, item, name, known));
  if (!found) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{}: must be the name of a {} (got '{}'); {}", where, item, name, names_of(known))};
  }
  return *found;
}

Result<ClusterConfig> load(const std::vector<Field>& documents, const std::string& wanted_context) {
  ClusterConfig config;
  std::string where = "--context";
  config.context = wanted_context;
  for (const Field& document : documents) {
    if (!config.context.empty()) break;
    where = document.file.string() + ": current-context";
    WINDLASS_ASSIGN_OR_RETURN(config.context, document.at("current-context").text());
  }
  if (config.context.empty()) {
    std::vector<std::string> known;
    WINDLASS_RETURN_IF_ERROR(find_entry(documents, "contexts", "context", "", known));
    return Error{ErrorCode::kInvalidArgument, fmt::format("{}: current-context: must be a context's name (got nothing); {}",
                                                          documents.front().file.string(), names_of(known))};
  }
  WINDLASS_ASSIGN_OR_RETURN(Field context, must_find(documents, "contexts", "context", config.context, where));
  WINDLASS_ASSIGN_OR_RETURN(std::string cluster_name, context.at("cluster").text());
  WINDLASS_ASSIGN_OR_RETURN(std::string user_name, context.at("user").text());
  WINDLASS_ASSIGN_OR_RETURN(std::string name_space, context.at("namespace").text());
  if (!name_space.empty()) config.name_space = name_space;
  if (cluster_name.empty()) return context.at("cluster").refuse("must be a cluster's name (got nothing)");
  auto place = [&](const char* field) { return context.file.string() + ": " + context.path + "." + field; };
  WINDLASS_ASSIGN_OR_RETURN(Field cluster, must_find(documents, "clusters", "cluster", cluster_name, place("cluster")));
  WINDLASS_RETURN_IF_ERROR(read_cluster(cluster, config));
  config.credentials = no_credentials();
  if (!user_name.empty()) {
    WINDLASS_ASSIGN_OR_RETURN(Field user, must_find(documents, "users", "user", user_name, place("user")));
    WINDLASS_RETURN_IF_ERROR(read_user(user, config));
  }
  return config;
}

}  // namespace

std::vector<fs::path> kubeconfig_paths(const std::string& kubeconfig_env, const std::string& home) {
  std::vector<fs::path> paths;
  for (std::size_t begin = 0; begin <= kubeconfig_env.size();) {
    std::size_t end = std::min(kubeconfig_env.find(':', begin), kubeconfig_env.size());
    if (end > begin) paths.emplace_back(kubeconfig_env.substr(begin, end - begin));
    begin = end + 1;
  }
  if (paths.empty() && !home.empty()) paths.push_back(fs::path(home) / ".kube" / "config");
  return paths;
}

Result<ClusterConfig> load_kubeconfig(const KubeconfigOptions& options) {
  std::vector<Field> documents;
  for (const fs::path& file : options.files) {
    Result<Field> document = parse_file(file);
    if (!document.ok() && document.error().code == ErrorCode::kNotFound) continue;
    if (!document.ok()) return document.error().within("kubeconfig");
    documents.push_back(std::move(*document));
  }
  if (documents.empty()) {
    std::vector<std::string> names;
    for (const fs::path& file : options.files) names.push_back(file.string());
    return Error{ErrorCode::kNotFound, names.empty() ? "kubeconfig: no file was named"
                                                     : fmt::format("kubeconfig: no such file: {}", fmt::join(names, ", "))};
  }
  try {
    Result<ClusterConfig> config = load(documents, options.context);
    if (!config.ok()) return config.error().within("kubeconfig");
    return config;
  } catch (const YAML::Exception& error) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("kubeconfig: {}: {}", documents.front().file.string(), error.msg)};
  }
}

Result<ClusterConfig> load_in_cluster(const InClusterOptions& options) {
  auto refuse = [](const std::string& message) {
    return Error{ErrorCode::kFailedPrecondition, "in-cluster configuration: " + message};
  };
  if (options.host.empty())
    return refuse("KUBERNETES_SERVICE_HOST: must be set, as in a pod (got nothing); outside of pods, give a kubeconfig");
  if (options.port.empty() || options.port.find_first_not_of("0123456789") != std::string::npos) {
    return refuse("KUBERNETES_SERVICE_PORT: must be a port number (got '" + options.port + "')");
  }
  ClusterConfig config;
  config.server = "https://" + net::to_string({options.host, options.port});
  Result<std::string> authority = read_file(options.root / "ca.crt");
  if (!authority.ok()) return authority.error().within("in-cluster configuration");
  if (authority->find("-----BEGIN ") == std::string::npos)
    return refuse((options.root / "ca.crt").string() + ": must be PEM (got other data)");
  config.tls.ca_pem = std::move(*authority);
  if (Result<std::string> token = read_file(options.root / "token"); !token.ok())
    return token.error().within("in-cluster configuration");
  config.credentials = token_file(options.root / "token");
  if (Result<std::string> name_space = read_file(options.root / "namespace"); name_space.ok()) {
    std::size_t end = name_space->find_last_not_of(" \r\n");
    if (end != std::string::npos) config.name_space = name_space->substr(0, end + 1);
  }
  return config;
}

}  // namespace windlass::kube
