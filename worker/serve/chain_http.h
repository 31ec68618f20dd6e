// Calls between the workers of a chain (parallel/chain_wire.h) over HTTP, client and server: POST /chain/VERB. The answer
// carries the status, body, X-Windlass-Rejected and X-Windlass-Chain-Port of a ChainAnswer.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "metrics/net/http_service.h"
#include "worker/parallel/chain_stage.h"
#include "worker/parallel/chain_wire.h"
#include "worker/serve/http_client.h"

namespace windlass::worker {

inline constexpr std::string_view kChainPath = "/chain/";
// Header of a generation request that lists the next workers: "host:port,host:port".
inline constexpr const char* kChainHeader = "X-Windlass-Chain";

// nullopt if the path is not a chain call.
[[nodiscard]] std::optional<ChainVerb> chain_verb_of(std::string_view path);

// Passes the call to the stage and sends the stage's answer; holds `token` until then. `step_port`: this worker's port for step
// connections, or 0.
void answer_chain(const net::ServerCall& call, ChainStage& stage, ChainVerb verb, std::string body,
                  const std::shared_ptr<void>& token, int step_port);
// Sends a ChainAnswer as an HTTP response.
void send_chain_answer(const net::ServerCall& call, ChainAnswer answer, const std::shared_ptr<void>& token);

// Makes calls with this client.
[[nodiscard]] ChainPost call_over_http(std::shared_ptr<HttpClient> client);

}  // namespace windlass::worker
