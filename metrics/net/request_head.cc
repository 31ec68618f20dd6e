// Checks a head line by line, without parser state.
#include "metrics/net/request_head.h"

#include <algorithm>

#include <fmt/format.h>

#include "planner/base/foreign_text.h"

namespace windlass::net {
namespace {

constexpr std::size_t kMaxLengthDigits = 18;

bool is_token_char(char c) {
  if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) return true;
  return std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
}

bool is_token(std::string_view text) { return !text.empty() && std::all_of(text.begin(), text.end(), is_token_char); }

bool is_visible(char c) { return c > ' ' && c < '\x7f'; }

// Valid in a field's value; bytes above ASCII are allowed (obs-text).
bool is_value_char(char c) { return c == '\t' || (static_cast<unsigned char>(c) >= 0x20 && c != '\x7f'); }

bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool same_name(std::string_view a, std::string_view lower) {
  return std::equal(a.begin(), a.end(), lower.begin(), lower.end(),
                    [](char x, char y) { return (x >= 'A' && x <= 'Z' ? static_cast<char>(x - 'A' + 'a') : x) == y; });
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

HeadProblem bad(std::string message) { return {400, std::move(message)}; }

// The fields that frame a message, as far as they have been read.
struct Framing {
  bool http11 = true;
  int hosts = 0;
  int lengths = 0;
  int encodings = 0;
};

std::optional<HeadProblem> check_request_line(std::string_view line, Framing& framing) {
  const std::size_t first = line.find(' ');
  const std::size_t last = line.rfind(' ');
  if (first == std::string_view::npos || first == last || !is_token(line.substr(0, first))) {
    return bad(fmt::format("request line: must be METHOD TARGET HTTP/1.1 (got '{}')", shown_text(line)));
  }
  const std::string_view target = line.substr(first + 1, last - first - 1);
  const std::string_view version = line.substr(last + 1);
  if (!std::all_of(target.begin(), target.end(), is_visible) || target.empty()) {
    return bad(fmt::format("target: must be visible ASCII characters (got '{}')", shown_text(target)));
  }
  if (version != "HTTP/1.1" && version != "HTTP/1.0") {
    const bool other = version.substr(0, 5) == "HTTP/";
    return HeadProblem{other ? 505 : 400, fmt::format("version: must be HTTP/1.1 or HTTP/1.0 (got '{}')", shown_text(version))};
  }
  framing.http11 = version.back() == '1';
  return std::nullopt;
}

std::optional<HeadProblem> check_field(std::string_view line, Framing& framing) {
  if (line.front() == ' ' || line.front() == '\t') return bad("header: must be on one line (got a folded one)");
  const std::size_t colon = line.find(':');
  const std::string_view name = line.substr(0, std::min(colon, line.size()));
  if (colon == std::string_view::npos || !is_token(name)) {
    return bad(fmt::format("header: must be NAME: VALUE without a space before the colon (got '{}')", shown_text(line)));
  }
  const std::string_view value = trimmed(line.substr(colon + 1));
  if (!std::all_of(value.begin(), value.end(), is_value_char)) {
    return bad(fmt::format("header {}: must have no control characters (got some)", shown_text(name)));
  }
  if (same_name(name, "host")) {
    ++framing.hosts;
    if (value.find_first_of(" \t,/@") != std::string_view::npos) {
      return bad(fmt::format("Host: must be HOST or HOST:PORT (got '{}')", shown_text(value)));
    }
  } else if (same_name(name, "content-length")) {
    ++framing.lengths;
    if (value.empty() || value.size() > kMaxLengthDigits || !std::all_of(value.begin(), value.end(), is_digit)) {
      return bad(fmt::format("Content-Length: must be a number of bytes (got '{}')", shown_text(value)));
    }
  } else if (same_name(name, "transfer-encoding")) {
    ++framing.encodings;
    if (!same_name(value, "chunked")) {
      return bad(fmt::format("Transfer-Encoding: must be chunked (got '{}')", shown_text(value)));
    }
  }
  return std::nullopt;
}

std::optional<HeadProblem> check_framing(const Framing& framing) {
  if (framing.hosts > 1 || (framing.http11 && framing.hosts == 0)) {
    return bad(fmt::format("Host: must be given once (got {})", framing.hosts));
  }
  if (framing.lengths > 1) return bad(fmt::format("Content-Length: must be given once (got {})", framing.lengths));
  if (framing.encodings > 1) return bad(fmt::format("Transfer-Encoding: must be given once (got {})", framing.encodings));
  if (framing.encodings > 0 && framing.lengths > 0)
    return bad("Transfer-Encoding: must be given without Content-Length (got both)");
  if (framing.encodings > 0 && !framing.http11) return bad("Transfer-Encoding: must be given in HTTP/1.1 only (got HTTP/1.0)");
  return std::nullopt;
}

}  // namespace

std::optional<HeadProblem> check_request_head(std::string_view head) {
  Framing framing;
  std::size_t lines = 0;
  while (true) {
    const std::size_t end = head.find('\n');
    if (end == std::string_view::npos || end == 0 || head[end - 1] != '\r')
      return bad("line: must end in CRLF (got another end)");
    const std::string_view line = head.substr(0, end - 1);
    head.remove_prefix(end + 1);
    if (line.find('\r') != std::string_view::npos) return bad("line: must have a CR only at its end (got one before)");
    if (lines > 0 && line.empty()) break;
    if (lines > kMaxFields) return HeadProblem{431, fmt::format("headers: must be at most {} (got more)", kMaxFields)};
    const auto problem = lines == 0 ? check_request_line(line, framing) : check_field(line, framing);
    if (problem) return problem;
    ++lines;
  }
  return check_framing(framing);
}

bool may_become_head(std::string_view beginning) {
  if (beginning.empty() || beginning == "\r" || beginning.substr(0, 2) == "\r\n") return true;
  if (!is_token_char(beginning.front())) return false;
  for (std::size_t at = beginning.find('\n'); at != std::string_view::npos; at = beginning.find('\n', at + 1)) {
    if (at == 0 || beginning[at - 1] != '\r') return false;
  }
  return true;
}

std::string_view origin_form(std::string_view target) {
  const std::size_t scheme = target.find("://");
  if (target.empty() || target.front() == '/' || scheme == std::string_view::npos) return target;
  const std::size_t path = target.find_first_of("/?", scheme + 3);
  if (path == std::string_view::npos) return "/";
  return target[path] == '/' ? target.substr(path) : target;
}

}  // namespace windlass::net
