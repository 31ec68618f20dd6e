// Everything but ask() runs on the client's own thread: no lock.
#include "worker/serve/http_client.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <map>
#include <optional>
#include <thread>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/string.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/serializer.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <fmt/core.h>
#include <pplx/pplxtasks.h>
#include <sys/socket.h>

namespace windlass::worker {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
using boost::system::error_code;
using Tcp = asio::ip::tcp;

constexpr auto kMostIdle = std::chrono::seconds(15);  // shorter than workers keep them, so that it is we who close
constexpr std::size_t kMostIdlePerAddress = 64;
constexpr std::size_t kMostAddresses = 256;

auto to(error_code& error) { return asio::redirect_error(asio::use_awaitable, error); }

struct KeptConnection {
  explicit KeptConnection(asio::io_context& io) : stream(io) {}

  beast::tcp_stream stream;
  beast::flat_buffer buffer;
  std::chrono::steady_clock::time_point idle_since;
};
using ConnectionPtr = std::unique_ptr<KeptConnection>;

// Nothing is to come over a connection that nobody asks over.
bool is_usable(KeptConnection& connection) {
  char byte = 0;
  const auto found = ::recv(connection.stream.socket().native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return found < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
}

// What has come of a call over one connection.
struct Exchanged {
  Result<HttpAnswer> answer;
  bool broken = false;  // the connection, before anything came
  bool usable = false;  // the connection, for another call
};

Error no_answer(const HttpCall& call, std::string_view what, const std::string& why) {
  return {ErrorCode::kUnavailable, fmt::format("{}: {}: {}", call.address, what, why)};
}

std::string why_no_answer(const error_code& error, std::size_t most_bytes) {
  if (error == beast::http::error::body_limit)
    return fmt::format("found a longer one, allowed is at most {} bytes", most_bytes);
  if (error == beast::error::timeout) return "has not come in time";
  return error.message();
}

}  // namespace

std::string HttpAnswer::header(std::string_view name) const {
  const auto found = std::find_if(headers.begin(), headers.end(), [&](const auto& each) {
    return beast::iequals({each.first.data(), each.first.size()}, {name.data(), name.size()});
  });
  return found == headers.end() ? "" : found->second;
}

class HttpClient::Io {
 public:
  Io() : work_(asio::make_work_guard(io_)), thread_([this] { io_.run(); }) {}
  ~Io() {
    io_.stop();
    thread_.join();
  }
  Io(const Io&) = delete;
  Io& operator=(const Io&) = delete;

  // Whoever asks, and what he holds, is let go on another thread than this one's, which cannot end itself.
  struct Asked {
    std::shared_ptr<HttpClient> client;
    HttpCall call;
    HttpAnswered answered;
    std::optional<Result<HttpAnswer>> answer = std::nullopt;
  };
  void ask(std::shared_ptr<Asked> asked) { asio::co_spawn(io_, answer(std::move(asked)), asio::detached); }

 private:
  asio::awaitable<void> answer(std::shared_ptr<Asked> asked) {
    asked->answer = co_await answer_to(asked->call);
    pplx::create_task([asked = std::move(asked)] {
      const auto client = std::move(asked->client);
      const auto answered = std::move(asked->answered);
      answered(std::move(*asked->answer));
    });
  }

  asio::awaitable<Result<HttpAnswer>> answer_to(const HttpCall& call) {
    ConnectionPtr connection = take_idle(call.address);
    while (true) {
      const bool kept = connection != nullptr;
      if (!kept) {
        connection = std::make_unique<KeptConnection>(io_);
        const error_code error = co_await connect(*connection, call);
        if (error) co_return no_answer(call, "connection", why_no_answer(error, 0));
      }
      Exchanged exchanged = co_await exchange(*connection, call);
      if (exchanged.usable) keep(call.address, std::move(connection));
      connection.reset();
      if (!kept || !exchanged.broken) co_return std::move(exchanged.answer);
    }
  }

  static std::chrono::microseconds patience(const HttpCall& call) {
    return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::duration<double>(call.timeout_s));
  }

  asio::awaitable<error_code> connect(KeptConnection& connection, const HttpCall& call) {
    const std::size_t colon = call.address.rfind(':');
    if (colon == std::string::npos) co_return asio::error::invalid_argument;
    std::string host = call.address.substr(0, colon);
    if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
    error_code error;
    Tcp::resolver resolver(io_);
    const auto found = co_await resolver.async_resolve(host, call.address.substr(colon + 1), to(error));
    if (error) co_return error;
    connection.stream.expires_after(patience(call));
    co_await connection.stream.async_connect(found, to(error));
    if (error) co_return error;
    // Small messages leave at once: else each would wait for the acknowledgement of the one before.
    error_code slower;
    connection.stream.socket().set_option(Tcp::no_delay(true), slower);
    co_return error;
  }

  static asio::awaitable<Exchanged> exchange(KeptConnection& connection, const HttpCall& call) {
    beast::http::request<beast::http::string_body> request(beast::http::string_to_verb(call.method), call.target, 11,
                                                           call.body);
    request.set(beast::http::field::host, call.address);
    if (!call.body.empty()) request.set(beast::http::field::content_type, "application/octet-stream");
    request.prepare_payload();
    beast::http::request_serializer<beast::http::string_body> serializer(request);
    error_code error;
    while (!error && !serializer.is_done()) {
      connection.stream.expires_after(patience(call));
      co_await beast::http::async_write_some(connection.stream, serializer, to(error));
    }
    if (error) co_return Exchanged{no_answer(call, "call", why_no_answer(error, 0)), error != beast::error::timeout, false};
    beast::http::response_parser<beast::http::string_body> parser;
    parser.body_limit(call.most_bytes);
    while (!error && !parser.is_done()) {
      connection.stream.expires_after(patience(call));
      co_await beast::http::async_read_some(connection.stream, connection.buffer, parser, to(error));
    }
    if (error) {
      const bool broken = !parser.got_some() && error != beast::error::timeout;
      co_return Exchanged{no_answer(call, "answer", why_no_answer(error, call.most_bytes)), broken, false};
    }
    connection.stream.expires_never();
    const bool usable = parser.keep_alive();
    auto message = parser.release();
    HttpAnswer answer{static_cast<int>(message.result_int()), {}, std::move(message.body())};
    for (const auto& field : message) answer.headers.emplace_back(std::string(field.name_string()), std::string(field.value()));
    co_return Exchanged{std::move(answer), false, usable};
  }

  ConnectionPtr take_idle(const std::string& address) {
    drop_old();
    const auto it = idle_.find(address);
    if (it == idle_.end()) return nullptr;
    ConnectionPtr taken;
    while (taken == nullptr && !it->second.empty()) {
      if (is_usable(*it->second.back())) taken = std::move(it->second.back());
      it->second.pop_back();
    }
    if (it->second.empty()) idle_.erase(it);
    return taken;
  }

  void keep(const std::string& address, ConnectionPtr connection) {
    if (idle_.size() >= kMostAddresses && idle_.count(address) == 0) return;
    auto& connections = idle_[address];
    if (connections.size() >= kMostIdlePerAddress) return;
    connection->idle_since = std::chrono::steady_clock::now();
    connections.push_back(std::move(connection));
  }

  void drop_old() {
    const auto oldest = std::chrono::steady_clock::now() - kMostIdle;
    for (auto it = idle_.begin(); it != idle_.end();) {
      std::erase_if(it->second, [&](const ConnectionPtr& each) { return each->idle_since < oldest; });
      it = it->second.empty() ? idle_.erase(it) : std::next(it);
    }
  }

  asio::io_context io_;
  std::map<std::string, std::vector<ConnectionPtr>> idle_;  // by address
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  std::thread thread_;
};

std::shared_ptr<HttpClient> HttpClient::make() { return std::shared_ptr<HttpClient>(new HttpClient); }

HttpClient::HttpClient() : io_(std::make_unique<Io>()) {}

HttpClient::~HttpClient() = default;

void HttpClient::ask(HttpCall call, HttpAnswered answered) {
  io_->ask(std::make_shared<Io::Asked>(Io::Asked{shared_from_this(), std::move(call), std::move(answered)}));
}

}  // namespace windlass::worker
