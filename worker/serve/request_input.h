// What is read of a request before anything is done with it: the headers in which a gateway speaks.
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

// A client's request id, if it is one that may go back into a header; else empty.
[[nodiscard]] std::string request_id_of(const net::ServerCall& call);

[[nodiscard]] ApiError bad_header(const char* name, const std::string& found, const std::string& allowed);

// Where the choices' prompts are computed: here for this client, here for another worker, or at another one.
[[nodiscard]] std::variant<std::vector<KvSession>, ApiError> sessions_of(const net::ServerCall& call, std::size_t choices);

}  // namespace windlass::worker
