// Runs a credential plugin and parses its ExecCredential.
#include "controller/kube/exec_credential.h"

#include <algorithm>
#include <ctime>
#include <limits>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "controller/kube/http_text.h"
#include "controller/kube/json_path.h"
#include "controller/kube/subprocess.h"

namespace windlass::kube {
namespace {

using nlohmann::json;

constexpr double kRefreshBefore_s = 10;  // so that a token does not expire in flight
constexpr std::size_t kMaxShownStderr = 500;

// "2026-05-01T10:00:00Z", also with fractions or an offset; nullopt: not RFC 3339.
std::optional<double> parse_rfc3339(const std::string& text) {
  std::tm parts{};
  const char* rest = strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &parts);
  if (rest == nullptr) return std::nullopt;
  if (*rest == '.') {
    ++rest;
    while (*rest >= '0' && *rest <= '9') ++rest;
  }
  double offset_s = 0;
  if (*rest == '+' || *rest == '-') {
    int hours = 0, minutes = 0, used = 0;
    if (std::sscanf(rest + 1, "%2d:%2d%n", &hours, &minutes, &used) != 2 || rest[1 + used] != 0) return std::nullopt;
    offset_s = (*rest == '+' ? 1 : -1) * (hours * 3600.0 + minutes * 60.0);
  } else if (!(rest[0] == 'Z' && rest[1] == 0)) {
    return std::nullopt;
  }
  return static_cast<double>(timegm(&parts)) - offset_s;
}

std::string shown_stderr(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  if (text.size() > kMaxShownStderr) text = "..." + text.substr(text.size() - kMaxShownStderr);
  return text;
}

class ExecCredentials final : public CredentialSource {
 public:
  explicit ExecCredentials(ExecPlugin plugin) : plugin_(std::move(plugin)) {}

  Result<std::string> bearer_token(double now_s) override {
    WINDLASS_RETURN_IF_ERROR(refresh(now_s));
    return token_;
  }

  Result<std::optional<ClientCertificate>> client_certificate(double now_s) override {
    WINDLASS_RETURN_IF_ERROR(refresh(now_s));
    return certificate_;
  }

  void invalidate() override { have_ = false; }

 private:
  Result<void> refresh(double now_s) {
    if (have_ && now_s < expires_s_ - kRefreshBefore_s) return {};
    std::string who = "credential plugin '" + plugin_.command + "'";
    bool terminal = isatty(STDIN_FILENO) != 0;
    if (plugin_.interactive_mode == ExecInteractiveMode::kAlways && !terminal) {
      return Error{ErrorCode::kFailedPrecondition,
                   who + ": interactiveMode: must not be Always if stdin is not a terminal (got Always)"};
    }
    bool interactive = terminal && plugin_.interactive_mode != ExecInteractiveMode::kNever;
    json info{{"apiVersion", plugin_.api_version}, {"kind", "ExecCredential"}, {"spec", {{"interactive", interactive}}}};
    if (!plugin_.cluster_info.empty()) info["spec"]["cluster"] = json::parse(plugin_.cluster_info, nullptr, false);
    auto env = plugin_.env;
    env.emplace_back("KUBERNETES_EXEC_INFO", to_text(info));
    Result<ProgramRun> run = run_program(plugin_.command, plugin_.args, env, interactive, plugin_.timeout_s);
    if (!run.ok()) {
      Error error = run.error().within("credential plugin");
      if (error.code == ErrorCode::kNotFound && !plugin_.install_hint.empty()) error.message += "\n" + plugin_.install_hint;
      return error;
    }
    if (run->exit_code != 0) {
      return Error{ErrorCode::kPermissionDenied,
                   fmt::format("{}: ended with {}: {}", who, run->exit_code, shown_stderr(run->err))};
    }
    return take(who, run->out);
  }

  Result<void> take(const std::string& who, const std::string& out) {
    auto refuse = [&](const std::string& message) { return Error{ErrorCode::kInvalidArgument, who + ": " + message}; };
    json credential = json::parse(out, nullptr, false);
    if (!credential.is_object()) return refuse("its output must be a JSON object, an ExecCredential (got other text)");
    if (text_at(credential, {"kind"}) != "ExecCredential") {
      return refuse("kind: must be 'ExecCredential' (got '" + text_at(credential, {"kind"}) + "')");
    }
    if (text_at(credential, {"apiVersion"}) != plugin_.api_version) {
      return refuse("apiVersion: must be '" + plugin_.api_version + "', as in the kubeconfig (got '" +
                    text_at(credential, {"apiVersion"}) + "')");
    }
    auto status = credential.find("status");
    if (status == credential.end() || !status->is_object())
      return refuse("status: must have a token or a client certificate (got nothing)");
    std::string token = text_at(*status, {"token"});
    ClientCertificate certificate{text_at(*status, {"clientCertificateData"}), text_at(*status, {"clientKeyData"})};
    if (certificate.certificate_pem.empty() != certificate.private_key_pem.empty()) {
      return refuse("status: must have clientCertificateData and clientKeyData together (got one of them)");
    }
    if (token.empty() && certificate.certificate_pem.empty())
      return refuse("status: must have a token or a client certificate (got neither)");
    double expires_s = std::numeric_limits<double>::infinity();
    if (std::string text = text_at(*status, {"expirationTimestamp"}); !text.empty()) {
      std::optional<double> parsed = parse_rfc3339(text);
      if (!parsed)
        return refuse("status.expirationTimestamp: must be RFC 3339, such as 2026-05-01T10:00:00Z (got '" + text + "')");
      expires_s = *parsed;
    }
    token_ = std::move(token);
    certificate_.reset();
    if (!certificate.certificate_pem.empty()) certificate_ = std::move(certificate);
    expires_s_ = expires_s;
    have_ = true;
    return {};
  }

  ExecPlugin plugin_;
  bool have_ = false;
  std::string token_;
  std::optional<ClientCertificate> certificate_;
  double expires_s_ = 0;
};

}  // namespace

std::unique_ptr<CredentialSource> exec_credentials(ExecPlugin plugin) {
  return std::make_unique<ExecCredentials>(std::move(plugin));
}

}  // namespace windlass::kube
