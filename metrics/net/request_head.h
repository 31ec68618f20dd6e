// What a request's head must be before anything believes it (RFC 9112, RFC 9110). Pure.
//
// Beast's parser is lenient where programs that pass a message on may not be: it joins folded lines, takes any
// Transfer-Encoding, and several Hosts. Two programs that read one message differently can be made to take a part of it for
// another request.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace windlass::net {

inline constexpr std::size_t kMaxFields = 128;

// A message that is refused: the answer's status and what is wrong, for a person.
struct HeadProblem {
  int status = 400;
  std::string message;
};

// `head`: from the request line to the empty line, both CRLFs of its end included. Refused: a line that does not end in CRLF or
// holds control characters; a request line that is not "METHOD TARGET HTTP/1.0 or 1.1"; folded lines; a space before a colon;
// no Host in HTTP/1.1, or several; a Content-Length that is no number, or several; any Transfer-Encoding but one "chunked",
// which allows no Content-Length beside it; more than kMaxFields fields (431).
[[nodiscard]] std::optional<HeadProblem> check_request_head(std::string_view head);

// Whether the beginning of a head, as far as it has come in, can still become one: a client that speaks another protocol would
// else wait for an answer, and we for an empty line.
[[nodiscard]] bool may_become_head(std::string_view beginning);

// The path and query of a target, which may be a whole URI (RFC 9112, 3.2.2): "http://host/a?b" is "/a?b".
[[nodiscard]] std::string_view origin_form(std::string_view target);

}  // namespace windlass::net
