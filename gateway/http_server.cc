// Accepting, reading and the answers to what is no request.
#include "gateway/http_server.h"

#include <array>

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "gateway/http_text.h"
#include "gateway/http_upstream.h"
#include "gateway/openai.h"

namespace windlass::gateway {
namespace {

constexpr std::uint32_t kMaxHeadBytes = 16U << 10U;
constexpr auto kRequestTimeout = std::chrono::seconds(30);
constexpr auto kIdleTimeout = std::chrono::seconds(75);
constexpr auto kLingerTimeout = std::chrono::seconds(2);
constexpr std::size_t kMaxLingerBytes = kMaxBodyBytes;
constexpr auto kWarnPeriod = std::chrono::seconds(10);

struct Refused {
  int status = 0;  // 0: close without an answer
  std::string message;
  const char* code = "";
  std::string_view extra = {};  // header lines
};

Refused explain(const error_code& error) {
  if (error == http::error::header_limit) {
    return {431, fmt::format("The request's head: found more than {} bytes, allowed are {}.", kMaxHeadBytes, kMaxHeadBytes),
            "head_too_large"};
  }
  if (error == http::error::body_limit) {
    return {413, fmt::format("The request's body: found more than {} bytes, allowed are {}.", kMaxBodyBytes, kMaxBodyBytes),
            "body_too_large"};
  }
  if (error.category() == http::make_error_code(http::error::bad_method).category() && error != http::error::end_of_stream &&
      error != http::error::partial_message) {
    return {400, fmt::format("The request is not HTTP/1.1: {}.", error.message()), "bad_http"};
  }
  return {};
}

// Answers, then reads on for a moment: closing with unread bytes would reset the connection, and the answer with it.
asio::awaitable<void> refuse(Stream& stream, Refused refused) {
  const std::string text = simple_response(refused.status, "application/json",
                                           error_body(refused.status, refused.message, refused.code), false, refused.extra);
  stream.expires_after(kLingerTimeout);
  error_code error;
  co_await asio::async_write(stream, asio::buffer(text), to(error));
  if (error) co_return;
  stream.socket().shutdown(tcp::socket::shutdown_send, error);
  std::array<char, 8192> scrap;
  std::size_t total = 0;
  while (!error && total < kMaxLingerBytes) total += co_await stream.async_read_some(asio::buffer(scrap), to(error));
}

}  // namespace

struct HttpServer::Session {
  Session(tcp::socket socket) : stream(std::move(socket)) {}

  Stream stream;
  beast::flat_buffer buffer;
  bool idle = true;  // between two requests
};

// What the bodies of all requests in hand hold; outlives the server in coroutines that are never resumed.
struct HttpServer::Bodies {
  explicit Bodies(std::size_t max_bytes) : most(max_bytes) {}

  const std::size_t most;
  std::size_t held = 0;
  std::chrono::steady_clock::time_point warned{};

  // One request's part.
  class Part {
   public:
    explicit Part(std::shared_ptr<Bodies> all) : all_(std::move(all)) {}
    ~Part() { all_->held -= bytes_; }
    Part(const Part&) = delete;
    Part& operator=(const Part&) = delete;

    // False: it does not fit.
    bool grow_to(std::size_t bytes) {
      if (bytes > bytes_ && all_->held + (bytes - bytes_) > all_->most) return false;
      all_->held += bytes - bytes_;
      bytes_ = bytes;
      return true;
    }

   private:
    std::shared_ptr<Bodies> all_;
    std::size_t bytes_ = 0;
  };

  Refused refuse() {
    const auto now = std::chrono::steady_clock::now();
    if (now - warned > kWarnPeriod) {
      warned = now;
      spdlog::warn("requests are refused: the bodies in hand hold {} bytes, allowed are {} (--max-body-memory)", held, most);
    }
    return {503, fmt::format("The gateway holds {} bytes of requests, allowed are {}.", held, most), "too_many_bytes",
            "Retry-After: 1\r\n"};
  }
};

HttpServer::HttpServer(asio::io_context& io, Handler handler, TlsContext tls, std::size_t max_body_bytes)
    : io_(io),
      handler_(std::move(handler)),
      tls_(std::move(tls)),
      acceptor_(io),
      bodies_(std::make_shared<Bodies>(max_body_bytes)) {}
HttpServer::~HttpServer() = default;

Result<void> HttpServer::listen(const HostPort& address) {
  const auto failed = [&](const error_code& error) {
    return Error{ErrorCode::kUnavailable, fmt::format("cannot listen on {}: {}", to_string(address), error.message())};
  };
  error_code error;
  tcp::resolver resolver(io_);
  const auto found = resolver.resolve(address.host, address.port, tcp::resolver::passive, error);
  if (error) return failed(error);
  const tcp::endpoint endpoint = found.begin()->endpoint();
  acceptor_.open(endpoint.protocol(), error);
  if (!error) acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor_.bind(endpoint, error);
  if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
  if (error) return failed(error);
  const auto local = acceptor_.local_endpoint(error);
  bound_ = HostPort{local.address().to_string(), std::to_string(local.port())};
  asio::co_spawn(io_, accept_loop(), asio::detached);
  return {};
}

void HttpServer::stop_accepting() {
  stopping_ = true;
  error_code ignored;
  acceptor_.close(ignored);
  for (Session* session : sessions_) {
    if (session->idle) session->stream.socket().shutdown(tcp::socket::shutdown_receive, ignored);
  }
}

asio::awaitable<void> HttpServer::accept_loop() {
  while (!stopping_) {
    error_code error;
    tcp::socket socket = co_await acceptor_.async_accept(to(error));
    if (stopping_) co_return;
    if (error) {
      // Out of descriptors, most likely: those in use will be given back.
      spdlog::warn("accepting on {}: {}", to_string(bound_), error.message());
      asio::steady_timer pause(io_, std::chrono::milliseconds(50));
      co_await pause.async_wait(to(error));
      continue;
    }
    error_code ignored;
    socket.set_option(tcp::no_delay(true), ignored);
    auto session = std::make_shared<Session>(std::move(socket));
    asio::co_spawn(io_, serve(std::move(session)), asio::detached);
  }
}

asio::awaitable<void> HttpServer::serve(std::shared_ptr<Session> session) {
  sessions_.insert(session.get());
  if (tls_ != nullptr) {
    const error_code failed = co_await session->stream.accept_tls(tls_());
    if (failed) {
      sessions_.erase(session.get());
      co_return;
    }
  }
  while (!stopping_ || session->buffer.size() > 0) {
    const bool go_on = co_await serve_one(session);
    if (!go_on) break;
  }
  sessions_.erase(session.get());
  co_await session->stream.end_tls();
  error_code ignored;
  session->stream.socket().shutdown(tcp::socket::shutdown_send, ignored);
}

asio::awaitable<bool> HttpServer::serve_one(std::shared_ptr<Session> session) {
  Stream& stream = session->stream;
  http::request_parser<http::string_body> parser;
  parser.header_limit(kMaxHeadBytes);
  parser.body_limit(kMaxBodyBytes);
  error_code error;
  session->idle = session->buffer.size() == 0;
  if (session->idle) {
    // Wait for the first byte by itself: being idle and being slow have different limits.
    stream.expires_after(kIdleTimeout);
    const std::size_t n = co_await stream.async_read_some(session->buffer.prepare(16384), to(error));
    session->buffer.commit(n);
    if (error) co_return false;
    session->idle = false;
  }
  stream.expires_after(kRequestTimeout);
  co_await http::async_read_header(stream, session->buffer, parser, to(error));
  if (!error && beast::iequals(parser.get()[http::field::expect], "100-continue")) {
    static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
    co_await asio::async_write(stream, asio::buffer(kContinue.data(), kContinue.size()), to(error));
  }
  Bodies::Part part(bodies_);
  Refused refused;
  parser.eager(true);
  while (!error && refused.status == 0 && !parser.is_done()) {
    co_await http::async_read_some(stream, session->buffer, parser, to(error));
    if (!part.grow_to(parser.get().body().size())) refused = bodies_->refuse();
  }
  if (error) refused = explain(error);
  if (error || refused.status != 0) {
    // What was read of it is of no use, and must not keep others out while the client reads its answer.
    parser.get().body() = std::string();
    part.grow_to(0);
    if (refused.status != 0) co_await refuse(stream, std::move(refused));
    co_return false;
  }
  stream.expires_never();
  const bool go_on = co_await handler_(stream, parser.get());
  co_return go_on;
}

}  // namespace windlass::gateway
