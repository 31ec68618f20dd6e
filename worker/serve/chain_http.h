// The calls between the workers of a chain (parallel/chain_wire.h) over HTTP, both sides: POST /chain/VERB, whose answer has
// the status, body, X-Windlass-Rejected and X-Windlass-Chain-Port of a ChainAnswer.
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
// Of a generation request: the workers after this one, "host:port,host:port".
inline constexpr const char* kChainHeader = "X-Windlass-Chain";

// nullopt where the path is of no call.
[[nodiscard]] std::optional<ChainVerb> chain_verb_of(std::string_view path);

// Gives the call to the stage and answers when it does; `token` is held until then. `step_port`: this worker's, or 0.
void answer_chain(const net::ServerCall& call, ChainStage& stage, ChainVerb verb, std::string body,
                  const std::shared_ptr<void>& token, int step_port);
// Answers for the stage.
void send_chain_answer(const net::ServerCall& call, ChainAnswer answer, const std::shared_ptr<void>& token);

// Calls over this client.
[[nodiscard]] ChainPost call_over_http(std::shared_ptr<HttpClient> client);

}  // namespace windlass::worker
