// Reads the headers that a gateway sets on a request, before anything else is done with it.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "metrics/net/http_service.h"
#include "worker/engine/request.h"
#include "worker/serve/openai_api.h"

namespace windlass::worker {

inline constexpr std::size_t kMaxBodyBytes = 4U << 20U;

// The client's request id if it may be echoed in a header; otherwise empty.
[[nodiscard]] std::string request_id_of(const net::ServerCall& call);

[[nodiscard]] ApiError bad_header(const char* name, const std::string& found, const std::string& allowed);

// Where the prompts of the choices are computed: here for this client, here for another worker, or on another worker.
[[nodiscard]] std::variant<std::vector<KvSession>, ApiError> sessions_of(const net::ServerCall& call, std::size_t choices);

}  // namespace windlass::worker
