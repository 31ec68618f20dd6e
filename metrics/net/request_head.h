// Checks the form of a request's head before any other code uses it (RFC 9112, RFC 9110). Pure.
//
// Beast's parser is more lenient than a proxy may be: it joins folded lines, and accepts any Transfer-Encoding and several
// Hosts. When two programs read one message differently, an attacker can make one of them take part of it for another request
// (request smuggling).
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace windlass::net {

inline constexpr std::size_t kMaxFields = 128;

// A refused message: the status of the answer and the problem, for people.
struct HeadProblem {
  int status = 400;
  std::string message;
};

// `head` reaches from the request line to the empty line, including its CRLF. Refused: a line that does not end in CRLF or
// holds control characters; a request line that is not "METHOD TARGET HTTP/1.0 or 1.1"; folded lines; a space before a colon;
// no Host in HTTP/1.1, or several; a Content-Length that is not a number, or several; any Transfer-Encoding other than one
// "chunked" without a Content-Length; more than kMaxFields fields (431).
[[nodiscard]] std::optional<HeadProblem> check_request_head(std::string_view head);

// Whether the bytes received so far can still become a head. A client that speaks another protocol would otherwise wait for an
// answer while we wait for an empty line.
[[nodiscard]] bool may_become_head(std::string_view beginning);

// The path and query of a target, which may be a whole URI (RFC 9112, 3.2.2): "http://host/a?b" gives "/a?b".
[[nodiscard]] std::string_view origin_form(std::string_view target);

}  // namespace windlass::net
