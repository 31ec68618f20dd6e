// Generates requests of every kind, and parses answers strictly.
#include "tests/unit/metrics/net/simulated_peer.h"

#include <array>
#include <charconv>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "metrics/net/asio.h"

namespace windlass::net {
namespace {

using Random = SimulatedPeer::Random;

std::size_t below(Random& random, std::size_t bound) {
  return std::uniform_int_distribution<std::size_t>(0, bound - 1)(random);
}

bool one_in(Random& random, std::size_t n) { return below(random, n) == 0; }

// Requests that the server refuses, with the status.
struct Wrong {
  std::string_view bytes;
  int status;
};
constexpr std::array<Wrong, 15> kWrong = {{
    {"GET / HTTP/1.1\r\n\r\n", 400},
    {"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", 400},
    {"GET / HTTP/1.1\nHost: a\n\n", 400},
    {"GET / HTTP/1.1\r\nHost : a\r\n\r\n", 400},
    {"GET / HTTP/1.1\r\nHost: a\r\n folded: 1\r\n\r\n", 400},
    {"GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505},
    {"\x16\x03\x01\x02", 400},
    {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\nabc", 400},
    {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n", 400},
    {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10000000\r\n\r\nabc", 413},
    {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n", 400},
    {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\naXX\r\n0\r\n\r\n", 400},
    {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\nfffffff\r\n", 413},
    {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 400},
    {"POST /refused HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nabc", 401},
}};

Ask wrong_ask(Random& random) {
  Ask ask;
  const Wrong& wrong = kWrong[below(random, kWrong.size())];
  ask.bytes = wrong.bytes;
  ask.status = wrong.status;
  if (one_in(random, 10)) {
    ask.bytes = fmt::format("GET / HTTP/1.1\r\nHost: a\r\nX: {}", std::string(3000, 'x'));
    ask.status = 431;
  }
  const std::size_t end = ask.bytes.find("\r\n\r\n");
  ask.head_bytes = end == std::string::npos ? ask.bytes.size() : end + 4;
  ask.last = true;
  return ask;
}

std::string chunks(std::string_view body, Random& random) {
  std::string text;
  while (!body.empty()) {
    const std::size_t n = 1 + below(random, body.size());
    text += fmt::format("{:x}{}\r\n{}\r\n", n, one_in(random, 3) ? ";x=\"y\"" : "", body.substr(0, n));
    body.remove_prefix(n);
  }
  return text + (one_in(random, 3) ? "0\r\nX-Trailer: 1\r\n\r\n" : "0\r\n\r\n");
}

Reply random_reply(Random& random, bool lazy) {
  static constexpr std::array<Reply, 4> kWhole = {Reply::kNow, Reply::kLater, Reply::kEmpty, Reply::kLast};
  static constexpr std::array<Reply, 9> kAll = {Reply::kNow,  Reply::kLater, Reply::kStream, Reply::kPieces,     Reply::kEmpty,
                                                Reply::kLast, Reply::kDrop,  Reply::kBreak,  Reply::kBreakInside};
  // Requests that end the connection are rare.
  Reply reply = lazy ? kWhole[below(random, kWhole.size())] : kAll[below(random, kAll.size())];
  if (reply >= Reply::kLast && !one_in(random, 4)) reply = Reply::kNow;
  return reply;
}

Ask right_ask(AskName name, Random& random, bool lazy, std::size_t body_bytes) {
  Ask ask;
  ask.reply = name.reply = random_reply(random, lazy);
  const std::string path = fmt::format("/{}/{}/{}/{}", name.peer, name.index, static_cast<int>(name.reply), name.bytes);
  const bool http10 = name.reply <= Reply::kStream && one_in(random, 12);
  // HEAD is answered before the pieces, which it does not get.
  const bool any = !http10 && name.reply != Reply::kPieces && name.reply < Reply::kBreak;
  std::string method = std::array{"GET", "POST", "PUT", "HEAD"}[below(random, any ? 4 : 3)];
  ask.head_only = method == "HEAD";
  std::string body;
  if (method[0] == 'P') body = answer_to({name.peer, name.index + 1, {}, below(random, body_bytes)}, "", "");
  if (!body.empty() && one_in(random, 10)) body.clear();
  ask.has_body = !body.empty();
  std::string fields, framed = body;
  if (method[0] == 'P') {
    if (!http10 && one_in(random, 2)) {
      fields = "transfer-encoding: Chunked\r\n";
      framed = chunks(body, random);
    } else {
      fields = fmt::format("Content-Length:  {}\r\n", body.size());
    }
    ask.body_waits = !http10 && !lazy && one_in(random, 6);
    if (ask.body_waits) fields += "Expect: 100-continue\r\n";
  }
  const bool closes = !http10 && one_in(random, 12);
  if (closes) fields += "Connection: close\r\n";
  ask.bytes = fmt::format("{}{} {}{} HTTP/1.{}\r\nHost: h\r\n{}\r\n", one_in(random, 8) ? "\r\n" : "", method,
                          one_in(random, 8) ? "http://h" : "", path, http10 ? 0 : 1, fields);
  ask.head_bytes = ask.bytes.size();
  ask.bytes += framed;
  ask.last = http10 || closes || name.reply >= Reply::kLast;
  ask.whole =
      name.reply == Reply::kNow || name.reply == Reply::kLater || name.reply == Reply::kEmpty || name.reply == Reply::kLast;
  ask.status = name.reply == Reply::kEmpty ? 204 : name.reply == Reply::kDrop ? 500 : name.reply >= Reply::kBreak ? 0 : 200;
  ask.answer = answer_to(name, method, body);
  return ask;
}

}  // namespace

std::optional<AskName> parse_target(std::string_view path) {
  std::array<std::size_t, 4> numbers{};
  for (std::size_t& number : numbers) {
    if (path.empty() || path.front() != '/') return std::nullopt;
    const auto parsed = std::from_chars(path.data() + 1, path.data() + path.size(), number);
    if (parsed.ec != std::errc()) return std::nullopt;
    path.remove_prefix(static_cast<std::size_t>(parsed.ptr - path.data()));
  }
  return AskName{numbers[0], numbers[1], static_cast<Reply>(numbers[2]), numbers[3]};
}

std::string answer_to(const AskName& name, std::string_view method, std::string_view body) {
  if (name.reply == Reply::kEmpty || name.reply == Reply::kDrop) return "";
  std::string text = fmt::format("{} {} {} {}\n", name.peer, name.index, method, body);
  static constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz";
  const std::string_view letters = kLetters.substr((7 * name.peer + 3 * name.index) % 26, 26);
  const std::size_t size = text.size() + name.bytes;
  while (text.size() < size) text += letters;
  text.resize(size);
  return text;
}

std::vector<Ask> random_asks(std::size_t peer, Random& random, bool lazy, AskSizes sizes) {
  std::vector<Ask> asks;
  const std::size_t n = 1 + below(random, 6);
  while (asks.size() < n && (asks.empty() || !asks.back().last)) {
    // A peer that does not read would not see its refusal.
    const bool wrong = !lazy && one_in(random, 8);
    asks.push_back(wrong
                       ? wrong_ask(random)
                       : right_ask({peer, asks.size(), {}, below(random, sizes.answer_bytes)}, random, lazy, sizes.body_bytes));
  }
  // Requests after the last are never answered.
  if (asks.back().last && one_in(random, 2)) {
    asks.push_back(right_ask({peer, asks.size(), {}, 0}, random, lazy, 10));
    asks.back().body_waits = false;
  }
  return asks;
}

SimulatedPeer::SimulatedPeer(std::size_t number, SimulatedKernel& kernel, const Link& link, PeerManner manner,
                             std::vector<Ask> asks)
    : number_(number), kernel_(kernel), manner_(manner), asks_(std::move(asks)), connection_(kernel.connect(link)) {
  ::fcntl(connection_.fd, F_SETFL, O_NONBLOCK);
  for (const Ask& ask : asks_) {
    begins_.push_back(out_.size());
    out_ += ask.bytes;
  }
  begins_.push_back(out_.size());
}

SimulatedPeer::~SimulatedPeer() {
  if (connection_.fd >= 0) ::close(connection_.fd);
}

std::ptrdiff_t SimulatedPeer::sent_of(std::size_t index) const {
  return static_cast<std::ptrdiff_t>(sent_) - static_cast<std::ptrdiff_t>(begins_[index]);
}

std::size_t SimulatedPeer::may_send_up_to() const {
  std::size_t end = std::min(out_.size(), manner_.leave_at);
  for (std::size_t i = answered_; i < asks_.size(); ++i) {
    if (i > answered_ && manner_.waits) return std::min(end, begins_[i]);
    if (asks_[i].body_waits && (i > answered_ || !continued_)) return std::min(end, begins_[i] + asks_[i].head_bytes);
  }
  return end;
}

bool SimulatedPeer::send(std::size_t max_bytes) {
  if (left_ || ended_) return false;
  if (sent_ >= manner_.leave_at) {
    leave(manner_.leave);
    return true;
  }
  const std::size_t n = std::min(max_bytes, may_send_up_to() - std::min(sent_, may_send_up_to()));
  if (n == 0) return false;
  const ssize_t sent = ::send(connection_.fd, out_.data() + sent_, n, MSG_NOSIGNAL);
  if (sent > 0) sent_ += static_cast<std::size_t>(sent);
  return sent > 0;
}

bool SimulatedPeer::read(std::size_t max_bytes) {
  if (connection_.fd < 0 || ended_) return false;
  const ssize_t n = ::recv(connection_.fd, piece_.data(), std::min(max_bytes, piece_.size()), 0);
  if (n < 0 && errno == EAGAIN) return false;
  if (n > 0) {
    in_.append(piece_.data(), static_cast<std::size_t>(n));
  } else {
    ended_ = true;
  }
  if (problem_.empty()) parse();
  return true;
}

void SimulatedPeer::leave(Leave how) {
  if (left_) return;
  left_ = true;
  if (how == Leave::kFinishWriting) {
    ::shutdown(connection_.fd, SHUT_WR);
    return;
  }
  if (how == Leave::kReset) kernel_.reset(connection_.id);
  ::close(std::exchange(connection_.fd, -1));
}

// Parses what has arrived so far.
void SimulatedPeer::parse() {
  while (parsed_ < in_.size()) {
    const std::string_view rest = std::string_view(in_).substr(parsed_);
    if (answered_ == asks_.size() || (answered_ > 0 && asks_[answered_ - 1].last) || refused_) {
      problem_ = fmt::format("peer {}: '{}' behind its last answer", number_, rest.substr(0, 200));
      return;
    }
    const Ask& ask = asks_[answered_];
    http::response_parser<http::string_body> parser;
    parser.eager(true);
    parser.skip(ask.head_only);
    error_code error;
    std::size_t used = parser.put(asio::buffer(rest), error);
    const bool ends_orderly = ended_ && !kernel_.was_reset(connection_.id);
    if (!error && !parser.is_done() && parser.need_eof() && ends_orderly) parser.put_eof(error);
    const auto& got = parser.get();
    const auto failed = [&](std::string_view what) {
      problem_ = fmt::format("peer {}, ask {} ('{}'): {}: '{}'", number_, answered_, ask.bytes.substr(0, 100), what,
                             rest.substr(0, 300));
    };
    if (error && error != http::error::need_more) return failed(error.message());
    if (!parser.is_header_done()) return;
    if (got.result_int() == 100) {
      if (!ask.body_waits || continued_) return failed("a '100 Continue' that nobody waits for");
      continued_ = true;
      parsed_ += used;
      continue;
    }
    const int status = static_cast<int>(got.result_int());
    const bool no_memory = ask.has_body && status == 503;
    if (!no_memory) {
      const bool right = ask.status < 400;
      if (sent_of(answered_) < (right ? static_cast<std::ptrdiff_t>(ask.bytes.size()) : 1)) return failed("nobody asked yet");
      if (status != (ask.reply == Reply::kBreakInside ? 200 : ask.status))
        return failed(fmt::format("expected {}", ask.status));
      if (right && ask.answer.compare(0, got.body().size(), got.body()) != 0) return failed("another body");
      if (ask.status == 0 && parser.is_done()) return failed("what breaks off is whole");
    }
    if (!parser.is_done()) return;
    if (ask.status == 200 && !no_memory && !ask.head_only && got.body() != ask.answer) return failed("half a body");
    if (got.keep_alive() == (ask.last || no_memory)) return failed("wrong Connection");
    refused_ = no_memory || (status >= 400 && ask.reply != Reply::kDrop);
    ++answered_;
    continued_ = false;
    parsed_ += used;
  }
}

bool SimulatedPeer::complete() const {
  std::size_t expected = 0;
  const Ask* last = nullptr;
  while (expected < asks_.size() && last == nullptr) {
    if (asks_[expected].last) last = &asks_[expected];
    if (asks_[expected].status != 0) ++expected;
  }
  if (last == nullptr) return answered_ == expected && parsed_ == in_.size();
  return answered_ == expected && ended_ && (parsed_ == in_.size() || last->reply == Reply::kBreakInside);
}

}  // namespace windlass::net
