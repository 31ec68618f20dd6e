// Accepts connections, reads requests, and answers what is not a valid request.
#include "metrics/net/http_server.h"

#include <algorithm>
#include <array>
#include <limits>

#include <boost/asio/ip/v6_only.hpp>
#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "metrics/net/request_head.h"

namespace windlass::net {
namespace {

constexpr std::size_t kReadBytes = 4U << 10U;     // of a head
constexpr std::size_t kBufferBytes = 64U << 10U;  // at least, for the part of a body that is not parsed yet
constexpr auto kLingerTimeout = std::chrono::seconds(2);
constexpr std::size_t kMaxLingerBytes = std::size_t{16} << 20U;
constexpr auto kWarnPeriod = std::chrono::seconds(10);
constexpr std::string_view kHeadEnd = "\r\n\r\n";
constexpr std::string_view kJson = "application/json";

std::string_view text_in(const beast::flat_buffer& buffer) {
  return {static_cast<const char*>(buffer.data().data()), buffer.size()};
}

// Explains why a body could not be read; its head was good.
Refusal explain(const error_code& error, std::size_t max_body_bytes) {
  if (error == http::error::body_limit) {
    return {413, fmt::format("The request's body must be at most {} bytes long (got more).", max_body_bytes), "body_too_large",
            ""};
  }
  const bool is_http = error.category() == http::make_error_code(http::error::bad_chunk).category();
  if (is_http && error != http::error::end_of_stream && error != http::error::partial_message) {
    return {400, fmt::format("The request is not HTTP/1.1: {}.", error.message()), "bad_http", ""};
  }
  return {};
}

std::string peer_of(const tcp::socket& socket) {
  error_code error;
  const auto endpoint = socket.remote_endpoint(error);
  return error ? std::string() : endpoint.address().to_string();
}

}  // namespace

struct HttpServer::Session {
  Session(tcp::socket socket, std::string from, std::size_t head_bytes)
      : stream(std::move(socket)), peer(std::move(from)), buffer(std::max(kBufferBytes, head_bytes + kReadBytes)) {}

  Stream stream;
  const std::string peer;
  beast::flat_buffer buffer;
  Sessions::iterator in_sessions;
  std::optional<Sessions::iterator> in_waiting;
};

HttpServer::HttpServer(asio::io_context& io, Handler handler, Options options)
    : io_(io), handler_(std::move(handler)), options_(std::move(options)), acceptor_(io) {}
HttpServer::~HttpServer() = default;

Result<void> HttpServer::listen(const HostPort& address) {
  const auto failed = [&](const error_code& error) {
    return Error{ErrorCode::kUnavailable, fmt::format("cannot listen on {}: {}", to_string(address), error.message())};
  };
  error_code error;
  tcp::resolver resolver(io_);
  const auto found = resolver.resolve(address.host, address.port, tcp::resolver::passive, error);
  if (error) return failed(error);
  tcp::endpoint endpoint = found.begin()->endpoint();
  acceptor_.open(endpoint.protocol(), error);
  if (endpoint.address() == asio::ip::address_v6::any()) {  // of both families
    if (error == asio::error::address_family_not_supported) {
      endpoint = {tcp::v4(), endpoint.port()};
      acceptor_.open(endpoint.protocol(), error);
    } else if (!error) {
      acceptor_.set_option(asio::ip::v6_only(false), error);
    }
  }
  if (!error) acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor_.bind(endpoint, error);
  if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
  if (error) return failed(error);
  note_bound();
  accept();
  return {};
}

Result<void> HttpServer::adopt(int listening_socket) {
  int listens = 0;
  socklen_t size = sizeof listens;
  sockaddr_storage address{};
  socklen_t address_size = sizeof address;
  if (::getsockopt(listening_socket, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) != 0 || listens == 0 ||
      ::getsockname(listening_socket, reinterpret_cast<sockaddr*>(&address), &address_size) != 0) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("must be the number of a socket that listens (got {})", listening_socket)};
  }
  error_code error;
  acceptor_.assign(address.ss_family == AF_INET6 ? tcp::v6() : tcp::v4(), listening_socket, error);
  if (error) return Error{ErrorCode::kInvalidArgument, fmt::format("socket {}: {}", listening_socket, error.message())};
  note_bound();
  return {};
}

void HttpServer::note_bound() {
  error_code error;
  const auto local = acceptor_.local_endpoint(error);
  bound_ = HostPort{local.address().to_string(), std::to_string(local.port())};
}

void HttpServer::accept() { asio::co_spawn(io_, accept_loop(), asio::detached); }

void HttpServer::stop_accepting() {
  stopping_ = true;
  error_code ignored;
  acceptor_.close(ignored);
  // Connections without a complete head.
  for (Session* session : waiting_) session->stream.socket().shutdown(tcp::socket::shutdown_receive, ignored);
}

void HttpServer::warn(const std::string& text) {
  const auto now = std::chrono::steady_clock::now();
  if (now - warned_ < kWarnPeriod) return;
  warned_ = now;
  spdlog::warn("{}: {}", to_string(bound_), text);
}

asio::awaitable<void> HttpServer::accept_loop() {
  while (!stopping_) {
    error_code error;
    tcp::socket socket = co_await acceptor_.async_accept(to(error));
    if (stopping_) co_return;
    if (error) {
      // Probably out of descriptors: connections in use will free some.
      warn("accepting: " + error.message());
      asio::steady_timer pause(io_, std::chrono::milliseconds(50));
      co_await pause.async_wait(to(error));
      continue;
    }
    std::string peer = peer_of(socket);
    if (!make_room(peer)) {
      const auto own = of_peer_.find(peer);
      warn(fmt::format("refusing a connection from {}: {} connections in total and {} from there; the limits are {} and {}",
                       peer, sessions_.size(), own == of_peer_.end() ? 0 : own->second, options_.limits.connections,
                       options_.limits.connections_per_peer));
      continue;
    }
    error_code ignored;
    socket.set_option(tcp::no_delay(true), ignored);
    auto session = std::make_shared<Session>(std::move(socket), std::move(peer), options_.limits.head_bytes);
    asio::co_spawn(io_, serve(std::move(session)), asio::detached);
  }
}

// Closes an idle connection for a new one, preferably of the peer that holds the most.
bool HttpServer::make_room(const std::string& peer) {
  const auto own = of_peer_.find(peer);
  if (own != of_peer_.end() && own->second >= options_.limits.connections_per_peer && !close_longest_waiting(peer))
    return false;
  if (sessions_.size() < options_.limits.connections) return true;
  const auto most =
      std::max_element(of_peer_.begin(), of_peer_.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return most != of_peer_.end() && (close_longest_waiting(most->first) || close_longest_waiting(""));
}

// Empty: any peer.
bool HttpServer::close_longest_waiting(const std::string& peer) {
  const auto found = std::find_if(waiting_.begin(), waiting_.end(),
                                  [&](const Session* session) { return peer.empty() || session->peer == peer; });
  if (found == waiting_.end()) return false;
  Session& session = **found;
  works(session);
  error_code ignored;
  session.stream.socket().close(ignored);
  return true;
}

void HttpServer::waits(Session& session) {
  if (!session.in_waiting) session.in_waiting = waiting_.insert(waiting_.end(), &session);
}

void HttpServer::works(Session& session) {
  if (!session.in_waiting) return;
  waiting_.erase(*session.in_waiting);
  session.in_waiting.reset();
}

asio::awaitable<void> HttpServer::serve(std::shared_ptr<Session> session) {
  session->in_sessions = sessions_.insert(sessions_.end(), session.get());
  ++of_peer_[session->peer];
  waits(*session);
  bool open = true;
  try {
    if (options_.tls != nullptr) {
      const error_code failed = co_await session->stream.accept_tls(options_.tls());
      open = !failed;
    }
    while (open && (!stopping_ || session->buffer.size() > 0)) open = co_await serve_one(*session);
  } catch (const std::exception& e) {  // out of memory
    warn(fmt::format("a connection failed: {}", e.what()));
  }
  works(*session);
  co_await session->stream.end_tls();
  error_code ignored;
  session->stream.socket().shutdown(tcp::socket::shutdown_send, ignored);
  sessions_.erase(session->in_sessions);
  if (--of_peer_[session->peer] == 0) of_peer_.erase(session->peer);
}

// Answers, then keeps reading for a moment: closing with unread bytes would reset the connection and lose the answer.
asio::awaitable<void> HttpServer::refuse(Session& session, const Refusal& refused) {
  Stream& stream = session.stream;
  const std::string text = simple_response(refused.status, kJson, options_.refusal_body(refused), false, refused.headers);
  stream.expires_after(kLingerTimeout);
  error_code error;
  co_await asio::async_write(stream, asio::buffer(text), to(error));
  if (error) co_return;
  stream.socket().shutdown(tcp::socket::shutdown_send, error);
  waits(session);
  std::array<char, 8192> scrap;
  std::size_t total = 0;
  while (!error && total < kMaxLingerBytes) total += co_await stream.async_read_some(asio::buffer(scrap), to(error));
}

// Reads until the buffer starts with a complete, valid head. Returns false if there is none; `refused` is then the answer.
asio::awaitable<bool> HttpServer::read_head(Session& session, Refusal& refused) {
  Stream& stream = session.stream;
  beast::flat_buffer& buffer = session.buffer;
  const std::size_t max_bytes = options_.limits.head_bytes;
  bool idle = buffer.size() == 0;  // between two requests
  stream.expires_after(idle ? options_.limits.idle_time : options_.limits.head_time);
  while (true) {
    while (text_in(buffer).substr(0, 2) == "\r\n") buffer.consume(2);  // allowed between requests (RFC 9112, 2.2)
    const std::string_view text = text_in(buffer);
    const std::size_t end = text.find(kHeadEnd);
    if (end != std::string_view::npos && end + kHeadEnd.size() <= max_bytes) {
      const auto problem = check_request_head(text.substr(0, end + kHeadEnd.size()));
      if (!problem) co_return true;
      const bool too_many = problem->status == 431;
      refused = {problem->status,
                 fmt::format("The request is not {}: {}.", too_many ? "allowed" : "HTTP/1.1", problem->message),
                 too_many ? "head_too_large" : "bad_http", ""};
      co_return false;
    }
    if (text.size() >= max_bytes || end != std::string_view::npos) {
      refused = {431, fmt::format("The request's head must be at most {} bytes long (got more).", max_bytes), "head_too_large",
                 ""};
      co_return false;
    }
    if (!may_become_head(text)) {
      refused = {400, "The request is not HTTP/1.1.", "bad_http", ""};
      co_return false;
    }
    error_code error;
    const std::size_t n = co_await stream.async_read_some(buffer.prepare(kReadBytes), to(error));
    if (error) co_return false;
    buffer.commit(n);
    // The limits for idle and for slow connections differ.
    if (std::exchange(idle, false)) stream.expires_after(options_.limits.head_time);
  }
}

asio::awaitable<bool> HttpServer::read_body(Session& session, http::request_parser<http::string_body>& parser,
                                            MemoryBudget::Part& part, Refusal& refused) {
  Stream& stream = session.stream;
  const std::size_t max_bytes = options_.max_body ? options_.max_body(parser.get().base()) : options_.limits.body_bytes;
  parser.body_limit(max_bytes);
  // Checked before a byte is read: a client that announces too much need not send it.
  const auto announced = parser.content_length();
  error_code error;
  if (announced && *announced > max_bytes) error = http::error::body_limit;
  if (!error && beast::iequals(parser.get()[http::field::expect], "100-continue")) {
    static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
    co_await asio::async_write(stream, asio::buffer(kContinue.data(), kContinue.size()), to(error));
  }
  parser.eager(true);
  while (!error && !parser.is_done()) {
    co_await http::async_read_some(stream, session.buffer, parser, to(error));
    if (!part.resize(parser.get().body().size())) {
      warn(fmt::format("refusing a request: the bodies of current requests hold {} bytes of at most {}",
                       options_.memory->held_bytes(), options_.memory->max_bytes()));
      refused = {503,
                 fmt::format("The server has no memory left for this request: current requests hold {} bytes of at most {}.",
                             options_.memory->held_bytes(), options_.memory->max_bytes()),
                 "too_many_bytes", "Retry-After: 1\r\n"};
      co_return false;
    }
  }
  if (error) refused = explain(error, max_bytes);
  co_return !error;
}

asio::awaitable<bool> HttpServer::serve_one(Session& session) {
  Stream& stream = session.stream;
  waits(session);
  Refusal refused;
  bool good = co_await read_head(session, refused);
  if (!stream.socket().is_open()) co_return false;  // another connection took its place while its head arrived
  http::request_parser<http::string_body> parser;
  MemoryBudget::Part part(options_.memory);
  http::request_header<> head;
  if (good) {
    works(session);
    stream.expires_after(options_.limits.body_time);
    parser.header_limit(options_.limits.head_bytes);
    parser.body_limit(std::numeric_limits<std::uint64_t>::max());  // until the head is known
    error_code error;
    const std::size_t used = parser.put(session.buffer.data(), error);
    if (error == http::error::need_more) error = {};
    session.buffer.consume(used);
    if (!error && !parser.is_header_done()) error = http::error::partial_message;
    if (error) {
      refused = {400, fmt::format("The request is not HTTP/1.1: {}.", error.message()), "bad_http", ""};
    } else {
      head = parser.get().base();  // the trailers after the body do not belong to the head
      if (options_.admit) refused = options_.admit(head).value_or(Refusal{});
    }
    good = refused.status == 0;
  }
  if (good) good = co_await read_body(session, parser, part, refused);
  if (!good) {
    // The partial body is useless, and must not take memory from others while the client reads its answer.
    parser.get().body() = std::string();
    static_cast<void>(part.resize(0));
    if (refused.status != 0) co_await refuse(session, refused);
    co_return false;
  }
  stream.expires_never();
  HttpRequest request(std::move(head), std::move(parser.get().body()));
  request.memory = std::move(part);
  const std::string_view target(request.target().data(), request.target().size());
  if (const std::string_view origin = origin_form(target); origin.size() != target.size()) {
    const std::string kept(origin);
    request.target(kept);
  }
  const bool go_on = co_await handler_(stream, request);
  co_return go_on;
}

std::size_t connections_within_file_limit(std::size_t wanted) {
  constexpr std::size_t kOtherFiles = 64;
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0) return wanted;
  if (files.rlim_cur < files.rlim_max) {
    files.rlim_cur = files.rlim_max;
    static_cast<void>(::setrlimit(RLIMIT_NOFILE, &files));
    static_cast<void>(::getrlimit(RLIMIT_NOFILE, &files));
  }
  if (files.rlim_cur == RLIM_INFINITY) return wanted;
  const auto most = static_cast<std::size_t>(files.rlim_cur);
  return std::min(wanted, most > 2 * kOtherFiles ? (most - kOtherFiles) / 2 : kOtherFiles);
}

std::string_view reason_phrase(int status) {
  const auto text = http::obsolete_reason(http::int_to_status(static_cast<unsigned>(status)));
  return {text.data(), text.size()};
}

std::string simple_response(int status, std::string_view content_type, std::string_view body, bool keep_alive,
                            std::string_view headers) {
  return fmt::format("HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\n{}{}\r\n{}", status, reason_phrase(status),
                     content_type, body.size(), keep_alive ? "" : "Connection: close\r\n", headers, body);
}

}  // namespace windlass::net
