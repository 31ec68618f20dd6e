// Keys and values over HTTP, client and server (docs/decisions/2026-11-22-kv-is-pulled.md): GET /kv/SESSION?piece=N&prompt=HASH
// returns pieces (kv_wire.h), X-Windlass-Next and, at the end, X-Windlass-First. With &stream=1, and if streams are available,
// it returns only X-Windlass-Kv-Port.
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

// Answers as soon as data is available, at the latest after kKvLongestWaitS. `taken` is called once the last piece of a session
// is sent. Holds `token` until then, and the exports until the piece is read. `stream_port`: port for streams; 0: none.
// REQUIRES: a GET of a path that begins with kKvPath.
void answer_kv(const net::ServerCall& call, const std::shared_ptr<KvExports>& exports,
               std::function<void(const std::string& session)> taken, const std::shared_ptr<void>& token, int stream_port = 0);

// Fetches with this client.
[[nodiscard]] KvImports::Ask ask_over_http(std::shared_ptr<HttpClient> client);

}  // namespace windlass::worker
