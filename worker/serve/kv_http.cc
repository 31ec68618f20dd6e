// Serves and fetches KV data. Waiting blocks no thread: the engine's progress, or a tick, calls back.
#include "worker/serve/kv_http.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include <fmt/core.h>
#include <spdlog/spdlog.h>

#include "worker/parallel/kv_wire.h"
#include "worker/serve/exchange.h"

namespace windlass::worker {
namespace {

// A worker silent for this long counts as lost; a live one answers every second.
constexpr double kAskTimeoutS = 5;
constexpr const char* kNextHeader = "X-Windlass-Next";
constexpr const char* kFirstHeader = "X-Windlass-First";
constexpr const char* kPortHeader = "X-Windlass-Kv-Port";

std::optional<std::int64_t> whole_number(std::string_view text) {
  std::int64_t number = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failure != std::errc{} || end != text.data() + text.size() || number < 0) return std::nullopt;
  return number;
}

Error unavailable(std::string why) { return {ErrorCode::kUnavailable, std::move(why)}; }

int status_of(const Error& error) {
  switch (error.code) {
    case ErrorCode::kNotFound: return 404;
    case ErrorCode::kFailedPrecondition: return 409;
    default: return 400;
  }
}

void refuse(const net::ServerCall& call, const Error& why, const std::shared_ptr<void>& token) {
  send_response(call, status_of(why), error_body({status_of(why), why.message}), "application/json", {}, token);
}

void send_pieces(const net::ServerCall& call, const std::shared_ptr<KvExports>& exports, const std::string& session,
                 const std::string& hash, std::int64_t piece, const std::function<void(const std::string&)>& taken,
                 const std::shared_ptr<void>& token) {
  auto pieces = exports->read(session, hash, piece);
  if (!pieces.ok()) return refuse(call, pieces.error(), token);
  const std::size_t bytes = pieces->bytes.size();
  net::HttpResponse response{200, std::move(pieces->bytes), "application/octet-stream", {}};
  response.headers.emplace_back(kNextHeader, std::to_string(pieces->next));
  if (pieces->last) response.headers.emplace_back(kFirstHeader, first_token_text(*pieces->last));
  const bool last = pieces->last.has_value();
  // If nobody reads the answer, free the cache: the client has left and computes the prompt itself.
  call.answer(std::move(response), [from = std::weak_ptr(exports), taken, session, bytes, last, token](bool sent) {
    if (const auto exports = from.lock(); exports != nullptr && sent) exports->sent(bytes);
    if (last) taken(session);
  });
}

Result<KvAnswer> answer_of(HttpAnswer found) {
  const auto next = whole_number(found.header(kNextHeader));
  const auto port = whole_number(found.header(kPortHeader));
  if (found.status != 200) return unavailable(fmt::format("status: must be 200 (got {})", found.status));
  if (port && *port > 0 && *port < 65536) {
    KvAnswer answer;
    answer.stream_port = static_cast<int>(*port);
    return answer;
  }
  if (!next) return unavailable(fmt::format("{}: must be a whole number", kNextHeader));
  KvAnswer answer;
  answer.next = *next;
  if (std::string first = found.header(kFirstHeader); !first.empty()) answer.first = std::move(first);
  answer.bytes = std::move(found.body);
  return answer;
}

}  // namespace

void answer_kv(const net::ServerCall& call, const std::shared_ptr<KvExports>& exports,
               std::function<void(const std::string& session)> taken, const std::shared_ptr<void>& token, int stream_port) {
  const std::string session = call.path().substr(kKvPath.size());
  const std::string hash = call.query("prompt");
  const auto piece = whole_number(call.query("piece"));
  if (!is_session_id(session) || !piece) {
    return send_response(
        call, 400,
        error_body({400, fmt::format("path: must be /kv/SESSION?piece=N&prompt=HASH (got {})", call.target().substr(0, 200))}),
        "application/json", {}, token);
  }
  if (stream_port > 0 && call.query("stream") == "1") {
    const auto found = exports->ready(session, hash, *piece);
    if (!found.ok()) return refuse(call, found.error(), token);
    return send_response(call, 200, "", "application/octet-stream", {{kPortHeader, std::to_string(stream_port)}}, token);
  }
  exports->when_ready(session, hash, *piece, [call, exports, session, hash, piece = *piece, taken = std::move(taken), token] {
    // On another thread: this may be the engine's.
    call.post([=] {
      try {
        send_pieces(call, exports, session, hash, piece, taken, token);
      } catch (const std::exception& e) {
        spdlog::warn("keys and values of session {} could not be sent: {}", session_in_log(session), e.what());
      }
    });
  });
}

KvImports::Ask ask_over_http(std::shared_ptr<HttpClient> client) {
  return [client = std::move(client)](const KvQuestion& question, std::function<void(Result<KvAnswer>)> answered) {
    // Needs no escaping: sessions and hashes are digits and letters.
    std::string target = fmt::format("{}{}?piece={}&prompt={}{}", kKvPath, question.session, question.piece, question.hash,
                                     question.stream ? "&stream=1" : "");
    client->ask({question.address, "GET", std::move(target), "", kAskTimeoutS, question.max_bytes},
                [answered = std::move(answered)](Result<HttpAnswer> found) {
                  if (!found.ok()) return answered(found.error());
                  answered(answer_of(std::move(*found)));
                });
  };
}

}  // namespace windlass::worker
