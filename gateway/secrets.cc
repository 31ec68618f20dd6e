// Loads the files that the flags name.
#include "gateway/secrets.h"

#include <spdlog/spdlog.h>

#include "metrics/security/secrets.h"
#include "metrics/security/tls.h"

namespace windlass::gateway {
namespace {

Result<SharedContext> server_context(const std::vector<std::string>& texts) {
  auto context = std::make_shared<ssl::context>(ssl::context::tls_server);
  WINDLASS_RETURN_IF_ERROR(security::use_certificate(context->native_handle(), {texts[0], texts[1]}));
  return context;
}

Result<SharedContext> client_context(const std::vector<std::string>& texts) {
  auto context = std::make_shared<ssl::context>(ssl::context::tls_client);
  if (texts.empty()) {
    error_code ignored;  // a machine without a store verifies nothing, and fails at the first handshake
    context->set_default_verify_paths(ignored);
    SSL_CTX_set_min_proto_version(context->native_handle(), TLS1_2_VERSION);
    return context;
  }
  WINDLASS_RETURN_IF_ERROR(security::trust(context->native_handle(), texts[0]));
  return context;
}

// Loads only if the flag gives files.
template <class T, class Make>
Result<void> load_into(std::shared_ptr<security::Reloaded<T>>& into, const char* flag, std::vector<std::string> paths,
                       Make make) {
  auto loaded = security::Reloaded<T>::load(std::move(paths), make);
  if (!loaded.ok()) return loaded.error().within(flag);
  into = std::move(loaded).value();
  return {};
}

template <class T>
void look(const char* what, const std::shared_ptr<security::Reloaded<T>>& file) {
  if (file == nullptr) return;
  const auto changed = file->refresh();
  if (!changed.has_value()) return;
  if (changed->ok()) {
    spdlog::info("reloaded {}", what);
  } else {
    spdlog::warn("{}: {}; the last good one stays in use", what, changed->error().message);
  }
}

}  // namespace

Result<Secrets> Secrets::load(const Options& options) {
  Secrets all;
  if (!options.tls_cert.empty()) {
    WINDLASS_RETURN_IF_ERROR(
        load_into(all.public_tls, "--tls-cert, --tls-key", {options.tls_cert, options.tls_key}, server_context));
  }
  if (!options.admin_tls_cert.empty()) {
    WINDLASS_RETURN_IF_ERROR(load_into(all.admin_tls, "--admin-tls-cert, --admin-tls-key",
                                       {options.admin_tls_cert, options.admin_tls_key}, server_context));
  }
  std::vector<std::string> ca;
  if (!options.controller_ca.empty()) ca.push_back(options.controller_ca);
  WINDLASS_RETURN_IF_ERROR(load_into(all.controller_tls, "--controller-ca", ca, client_context));
  if (!options.token_file.empty()) {
    WINDLASS_RETURN_IF_ERROR(load_into(all.token, "--token-file", {options.token_file},
                                       [](const auto& texts) { return security::parse_token(texts[0]); }));
  }
  if (!options.api_keys.empty()) {
    WINDLASS_RETURN_IF_ERROR(
        load_into(all.keys, "--api-keys", {options.api_keys}, [](const auto& texts) { return key_file_from_json(texts[0]); }));
  }
  for (const std::string& path : {options.tls_key, options.admin_tls_key, options.token_file, options.api_keys}) {
    if (path.empty()) continue;
    if (const std::string warning = security::permission_warning(path); !warning.empty()) spdlog::warn("{}", warning);
  }
  return all;
}

void Secrets::refresh() {
  look("--tls-cert, --tls-key", public_tls);
  look("--admin-tls-cert, --admin-tls-key", admin_tls);
  if (controller_tls != nullptr && !controller_tls->paths().empty()) look("--controller-ca", controller_tls);
  look("--token-file", token);
  look("--api-keys", keys);
}

}  // namespace windlass::gateway
