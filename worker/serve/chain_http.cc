// Chain calls over HTTP. No thread blocks here: answers come from the stage's thread or the server's.
#include "worker/serve/chain_http.h"

#include <charconv>
#include <utility>

#include <fmt/core.h>
#include <spdlog/spdlog.h>

#include "worker/serve/exchange.h"

namespace windlass::worker {
namespace {

constexpr const char* kRejectedHeader = "X-Windlass-Rejected";
constexpr const char* kStepPortHeader = "X-Windlass-Chain-Port";

// 0 if missing or not a port.
int step_port_of(const HttpAnswer& answer) {
  const std::string text = answer.header(kStepPortHeader);
  int port = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), port);
  return failure == std::errc{} && end == text.data() + text.size() && port > 0 && port < 65536 ? port : 0;
}

}  // namespace

std::optional<ChainVerb> chain_verb_of(std::string_view path) {
  for (const ChainVerb verb : {ChainVerb::kReserve, ChainVerb::kStep, ChainVerb::kRow, ChainVerb::kKeep, ChainVerb::kRelease}) {
    if (path == fmt::format("{}{}", kChainPath, to_string(verb))) return verb;
  }
  return std::nullopt;
}

void send_chain_answer(const net::ServerCall& call, ChainAnswer answer, const std::shared_ptr<void>& token) {
  net::HttpResponse response{
      answer.status, std::move(answer.body), answer.ok() ? "application/octet-stream" : "text/plain; charset=utf-8", {}};
  if (!answer.rejected.empty()) response.headers.emplace_back(kRejectedHeader, answer.rejected);
  if (answer.step_port > 0) response.headers.emplace_back(kStepPortHeader, std::to_string(answer.step_port));
  call.answer(std::move(response), [token](bool) {});
}

void answer_chain(const net::ServerCall& call, ChainStage& stage, ChainVerb verb, std::string body,
                  const std::shared_ptr<void>& token, int step_port) {
  stage.call(verb, std::move(body), [call, token, verb, step_port](ChainAnswer answer) {
    if (verb == ChainVerb::kReserve && answer.ok()) answer.step_port = step_port;
    try {
      send_chain_answer(call, std::move(answer), token);
    } catch (const std::exception& e) {
      spdlog::warn("a chain call could not be answered: {}", e.what());
    }
  });
}

ChainPost call_over_http(std::shared_ptr<HttpClient> client) {
  return [client = std::move(client)](ChainCall call, ChainAnswered answered) {
    std::string target = fmt::format("{}{}", kChainPath, to_string(call.verb));
    // Retrying a reservation would find it already made, and a step may also arrive over its own connection.
    const bool repeatable = call.verb != ChainVerb::kReserve && call.verb != ChainVerb::kStep;
    client->ask(
        {std::move(call.address), "POST", std::move(target), std::move(call.body), call.timeout_s, call.max_bytes, repeatable},
        [answered = std::move(answered)](Result<HttpAnswer> found) {
          if (!found.ok()) return answered({0, "", found.error().message});
          const int step_port = step_port_of(*found);
          answered({found->status, found->header(kRejectedHeader), std::move(found->body), step_port});
        });
  };
}

}  // namespace windlass::worker
