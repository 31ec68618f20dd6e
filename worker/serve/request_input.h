// What is read of a request before anything is done with it: its body, and the headers in which a gateway speaks.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include <cpprest/http_msg.h>
#include <pplx/pplxtasks.h>

#include "worker/engine/request.h"
#include "worker/serve/openai_api.h"

namespace windlass::worker {

inline constexpr std::size_t kMaxBodyBytes = 4U << 20U;
inline constexpr std::size_t kReadBytes = 16U << 10U;

// A body as far as it is allowed; the rest is read and thrown away, because cpprestsdk answers only after the whole body came
// in and would otherwise keep it in memory.
struct Body {
  std::string bytes;
  std::size_t most = kMaxBodyBytes;
  bool too_large = false;
  std::array<std::uint8_t, kReadBytes> piece;
};

[[nodiscard]] pplx::task<std::shared_ptr<Body>> read_body(const web::http::http_request& request, std::shared_ptr<Body> body);

// A client's request id, if it is one that may go back into a header; else empty.
[[nodiscard]] std::string request_id_of(const web::http::http_request& request);

[[nodiscard]] ApiError bad_header(const char* name, const std::string& found, const std::string& allowed);

// Where the choices' prompts are computed: here for this client, here for another worker, or at another one.
[[nodiscard]] std::variant<std::vector<KvSession>, ApiError> sessions_of(const web::http::http_request& request,
                                                                         std::size_t choices);

}  // namespace windlass::worker
