// Keys and values over HTTP, both sides of docs/decisions/2026-11-22-kv-is-pulled.md: GET /kv/SESSION?piece=N&prompt=HASH is
// answered with pieces (kv_wire.h), X-Windlass-Next and at the end X-Windlass-First; with &stream=1 and X-Windlass-Kv-Port
// alone, where there are streams.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "metrics/net/http_service.h"
#include "worker/parallel/kv_exports.h"
#include "worker/parallel/kv_imports.h"
#include "worker/serve/http_client.h"

namespace windlass::worker {

inline constexpr std::string_view kKvPath = "/kv/";

// Answers as soon as there is something, at the latest after kKvLongestWaitS. `taken`: called once a session's last piece is
// out; `token` is held until then, exports until the piece is read. `stream_port`: where streams come from; 0: there are none.
// REQUIRES: a GET of a path that begins with kKvPath.
void answer_kv(const net::ServerCall& call, const std::shared_ptr<KvExports>& exports,
               std::function<void(const std::string& session)> taken, const std::shared_ptr<void>& token, int stream_port = 0);

// Asks over this client.
[[nodiscard]] KvImports::Ask ask_over_http(std::shared_ptr<HttpClient> client);

}  // namespace windlass::worker
