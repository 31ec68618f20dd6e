// Reads and validates the headers; see request_input.h.
#include "worker/serve/request_input.h"

#include <algorithm>

#include <fmt/core.h>

#include "worker/parallel/chain_wire.h"
#include "worker/parallel/kv_wire.h"
#include "worker/serve/exchange.h"

namespace windlass::worker {

std::string request_id_of(const net::ServerCall& call) {
  std::string id = call.header("X-Request-Id");
  const bool good = id.size() <= 128 && std::all_of(id.begin(), id.end(), [](char c) { return c > ' ' && c <= '~'; });
  return good ? id : "";
}

ApiError bad_header(const char* name, const std::string& found, const std::string& allowed) {
  return {400, fmt::format("{}: must be {} (got '{}')", name, allowed, found.substr(0, 60)), "invalid_request_error", "", ""};
}

std::variant<std::vector<KvSession>, ApiError> sessions_of(const net::ServerCall& call, std::size_t choices) {
  std::vector<KvSession> sessions(choices);
  const std::string phase = call.header(kPhaseHeader);
  const std::string prefilled = call.header(kPrefilledHeader);
  if (phase == "prefill") {
    for (KvSession& each : sessions) each.id = new_session_id();
  } else if (!phase.empty()) {
    return bad_header(kPhaseHeader, phase, "prefill or absent");
  } else if (!prefilled.empty()) {
    const auto ids = sessions_from(prefilled);
    if (!ids.ok() || ids->size() != choices) {
      return bad_header(kPrefilledHeader, prefilled, fmt::format("a prefill worker's answer, with {} sessions", choices));
    }
    const std::string address = call.header(kPrefillAddressHeader);
    if (!is_worker_address(address)) return bad_header(kPrefillAddressHeader, address, "HOST:PORT");
    for (std::size_t i = 0; i < choices; ++i) sessions[i] = {(*ids)[i], address};
  }
  return sessions;
}

}  // namespace windlass::worker
