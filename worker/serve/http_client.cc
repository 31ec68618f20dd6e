// Everything except ask() runs on the client's own thread, so no lock is needed.
#include "worker/serve/http_client.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <map>
#include <thread>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/string.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/buffer_body.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/serializer.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <fmt/core.h>
#include <pplx/pplxtasks.h>
#include <pplx/threadpool.h>
#include <sys/socket.h>

#include "metrics/net/beast_parser.h"
#include "metrics/net/host_port.h"

namespace windlass::worker {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
using boost::system::error_code;
using Tcp = asio::ip::tcp;

using Micros = std::chrono::microseconds;
using HeadParser = beast::http::response_parser<beast::http::empty_body>;
using BodyParser = beast::http::response_parser<beast::http::buffer_body>;

constexpr auto kMaxIdle = std::chrono::seconds(15);  // shorter than the workers' limit, so that the client closes first
constexpr auto kLookForIdle = std::chrono::seconds(5);
constexpr std::size_t kMaxIdlePerAddress = 64;
constexpr std::size_t kMaxAddresses = 256;
// Bytes per read. Chunk extensions or trailers longer than twice this make an answer invalid.
constexpr std::size_t kAnswerReadBytes = 64U << 10U;
// Growth step of the buffer for an answer of unknown length.
constexpr std::size_t kAnswerGrowBytes = 64U << 10U;

constexpr std::size_t kTaskThreads = 4;  // cpprestsdk's default is 40

// Call before the first task.
void limit_task_threads() {
  static const bool once = [] {
    crossplat::threadpool::initialize_with_threads(kTaskThreads);
    return true;
  }();
  static_cast<void>(once);
}

auto to(error_code& error) { return asio::redirect_error(asio::use_awaitable, error); }

struct KeptConnection {
  explicit KeptConnection(asio::io_context& io) : stream(io) { buffer.reserve(kAnswerReadBytes); }

  beast::tcp_stream stream;
  beast::flat_buffer buffer{2 * kAnswerReadBytes};
  std::chrono::steady_clock::time_point idle_since;
};
using ConnectionPtr = std::unique_ptr<KeptConnection>;

// False if data or an end arrived on an idle connection.
bool is_usable(KeptConnection& connection) {
  char byte = 0;
  const auto found = ::recv(connection.stream.socket().native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return found < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
}

// Outcome of a call over one connection.
struct Exchanged {
  Result<HttpAnswer> answer;
  bool usable = false;   // the connection can be reused
  bool unheard = false;  // it broke before anything arrived
  bool out = false;      // the whole call was sent
};

Error no_answer(const HttpCall& call, std::string_view what, std::string_view why) {
  return {ErrorCode::kUnavailable, fmt::format("{}: {}: {}", call.address, what, why)};
}

std::string why_no_answer(const error_code& error, std::size_t max_bytes) {
  if (error == beast::http::error::body_limit) return fmt::format("must have at most {} bytes (got more)", max_bytes);
  if (error == beast::error::timeout) return "did not arrive in time";
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
  explicit Io(std::string token)
      : token_(std::move(token)), look_(io_), work_(asio::make_work_guard(io_)), thread_([this] { io_.run(); }) {}
  ~Io() {
    io_.stop();
    thread_.join();
  }
  Io(const Io&) = delete;
  Io& operator=(const Io&) = delete;

  struct Asked {
    HttpCall call;
    HttpAnswered answered;
    Result<HttpAnswer> answer;

    // On another thread than the caller's, which also destroys what the call held.
    static void tell(std::shared_ptr<Asked> asked) {
      pplx::create_task([asked = std::move(asked)] {
        const auto answered = std::move(asked->answered);
        answered(std::move(asked->answer));
      });
    }
  };
  void ask(std::shared_ptr<Asked> asked) { asio::co_spawn(io_, answer(std::move(asked)), asio::detached); }

 private:
  asio::awaitable<void> answer(std::shared_ptr<Asked> asked) {
    try {
      asked->answer = co_await answer_to(asked->call);
    } catch (const std::exception& e) {  // e.g. out of memory
      asked->answer = no_answer(asked->call, "answer", e.what());
    }
    Asked::tell(std::move(asked));
  }

  asio::awaitable<Result<HttpAnswer>> answer_to(const HttpCall& call) {
    const auto begun = std::chrono::steady_clock::now();
    Micros patience = std::chrono::duration_cast<Micros>(std::chrono::duration<double>(call.timeout_s));
    if (ConnectionPtr kept = take_idle(call.address); kept != nullptr) {
      Exchanged exchanged = co_await exchange(*kept, call, patience);
      if (exchanged.usable) keep(call.address, std::move(kept));
      if (!exchanged.unheard || (exchanged.out && !call.repeatable)) co_return std::move(exchanged.answer);
      patience -= std::chrono::duration_cast<Micros>(std::chrono::steady_clock::now() - begun);
      if (patience <= Micros::zero()) co_return std::move(exchanged.answer);
    }
    auto made = std::make_unique<KeptConnection>(io_);
    const error_code error = co_await connect(*made, call.address, patience);
    if (error) co_return no_answer(call, "connection", why_no_answer(error, 0));
    Exchanged exchanged = co_await exchange(*made, call, patience);
    if (exchanged.usable) keep(call.address, std::move(made));
    co_return std::move(exchanged.answer);
  }

  asio::awaitable<error_code> connect(KeptConnection& connection, const std::string& address, Micros patience) {
    const auto parsed = net::parse_host_port(address);
    if (!parsed.ok()) co_return asio::error::invalid_argument;
    const std::string& host = parsed->host;
    const auto port = static_cast<std::uint16_t>(std::stoi(parsed->port));
    error_code error;
    std::vector<Tcp::endpoint> endpoints;
    if (const auto numeric = asio::ip::make_address(host, error); !error) {
      endpoints.emplace_back(numeric, port);
    } else {
      error = co_await resolve(host, port, patience, endpoints);
      if (error) co_return error;
    }
    connection.stream.expires_after(patience);
    co_await connection.stream.async_connect(endpoints, to(error));
    if (error) co_return error;
    // Disable Nagle's algorithm: otherwise a small message waits until the previous one is acknowledged.
    error_code slower;
    connection.stream.socket().set_option(Tcp::no_delay(true), slower);
    co_return error;
  }

  // The resolver cannot be interrupted, so the caller stops waiting when its time is up.
  asio::awaitable<error_code> resolve(const std::string& host, std::uint16_t port, Micros patience,
                                      std::vector<Tcp::endpoint>& endpoints) {
    struct Resolving {
      explicit Resolving(asio::io_context& io) : resolver(io), over(io) {}
      Tcp::resolver resolver;
      asio::steady_timer over;
      error_code error = beast::error::timeout;
      std::vector<Tcp::endpoint> endpoints;
    };
    const auto resolving = std::make_shared<Resolving>(io_);
    resolving->over.expires_after(patience);
    resolving->resolver.async_resolve(host, std::to_string(port), [resolving](const error_code& error, const auto& found) {
      resolving->error = error;
      for (const auto& each : found) resolving->endpoints.push_back(each.endpoint());
      resolving->over.cancel();
    });
    error_code ignored;
    co_await resolving->over.async_wait(to(ignored));
    endpoints = std::move(resolving->endpoints);
    co_return resolving->error;
  }

  asio::awaitable<Exchanged> exchange(KeptConnection& connection, const HttpCall& call, Micros patience) {
    beast::http::request<beast::http::string_body> request(beast::http::string_to_verb(call.method), call.target, 11,
                                                           call.body);
    request.set(beast::http::field::host, call.address);
    if (!token_.empty()) request.set(beast::http::field::authorization, "Bearer " + token_);
    if (!call.body.empty()) request.set(beast::http::field::content_type, "application/octet-stream");
    request.prepare_payload();
    beast::http::request_serializer<beast::http::string_body> serializer(request);
    error_code error;
    while (!error && !serializer.is_done()) {
      connection.stream.expires_after(patience);
      co_await beast::http::async_write_some(connection.stream, serializer, to(error));
    }
    if (error) {
      const bool unheard = error != beast::error::timeout;
      co_return Exchanged{no_answer(call, "call", why_no_answer(error, 0)), false, unheard, false};
    }
    HeadParser head;
    head.body_limit(call.max_bytes);
    while (!error && !head.is_header_done()) {
      connection.stream.expires_after(patience);
      co_await beast::http::async_read_some(connection.stream, connection.buffer, head, to(error));
    }
    if (error) {
      const bool unheard = !head.got_some() && error != beast::error::timeout;
      co_return Exchanged{no_answer(call, "answer", why_no_answer(error, call.max_bytes)), false, unheard, true};
    }
    HttpAnswer answer;
    answer.status = static_cast<int>(head.get().result_int());
    // Interim (1xx) answers were not requested.
    if (answer.status < 200) co_return Exchanged{no_answer(call, "answer", fmt::format("unexpected status {}", answer.status))};
    for (const auto& field : head.get())
      answer.headers.emplace_back(std::string(field.name_string()), std::string(field.value()));
    if (const auto length = head.content_length()) answer.body.reserve(*length);
    BodyParser body(std::move(head));
    error = co_await read_body(connection, body, patience, answer.body);
    if (error) co_return Exchanged{no_answer(call, "answer", why_no_answer(error, call.max_bytes))};
    connection.stream.expires_never();
    // A connection with bytes after the answer cannot be reused.
    co_return Exchanged{std::move(answer), body.keep_alive() && connection.buffer.size() == 0};
  }

  static asio::awaitable<error_code> read_body(KeptConnection& connection, BodyParser& parser, Micros patience,
                                               std::string& bytes) {
    error_code error;
    while (!parser.is_done()) {
      const std::size_t had = bytes.size();
      const std::size_t room = std::max(bytes.capacity() - had, std::size_t{1});
      bytes.resize(had + (room > 1 ? std::min(room, kAnswerGrowBytes) : kAnswerGrowBytes));
      auto& into = parser.get().body();
      into.data = bytes.data() + had;
      into.size = bytes.size() - had;
      into.more = true;
      connection.stream.expires_after(patience);
      co_await beast::http::async_read_some(connection.stream, connection.buffer, parser, to(error));
      bytes.resize(bytes.size() - into.size);
      if (error == beast::http::error::need_buffer) error = {};
      if (error) break;
    }
    co_return error;
  }

  ConnectionPtr take_idle(const std::string& address) {
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
    if (idle_.size() >= kMaxAddresses && idle_.count(address) == 0) return;
    auto& connections = idle_[address];
    if (connections.size() >= kMaxIdlePerAddress) return;
    connection->idle_since = std::chrono::steady_clock::now();
    connections.push_back(std::move(connection));
    if (looking_) return;
    looking_ = true;
    asio::co_spawn(io_, look_for_idle(), asio::detached);
  }

  // Runs while there are idle connections.
  asio::awaitable<void> look_for_idle() {
    while (!idle_.empty()) {
      error_code ignored;
      look_.expires_after(kLookForIdle);
      co_await look_.async_wait(to(ignored));
      const auto oldest = std::chrono::steady_clock::now() - kMaxIdle;
      for (auto it = idle_.begin(); it != idle_.end();) {
        std::erase_if(it->second, [&](const ConnectionPtr& each) { return each->idle_since < oldest || !is_usable(*each); });
        it = it->second.empty() ? idle_.erase(it) : std::next(it);
      }
    }
    looking_ = false;
  }

  const std::string token_;
  asio::io_context io_;
  std::map<std::string, std::vector<ConnectionPtr>> idle_;  // by address
  asio::steady_timer look_;
  bool looking_ = false;
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  std::thread thread_;
};

HttpClient::HttpClient(std::string token) {
  limit_task_threads();
  io_ = std::make_unique<Io>(std::move(token));
}

HttpClient::~HttpClient() { end(); }

void HttpClient::ask(HttpCall call, HttpAnswered answered) {
  const Error ended = no_answer(call, "call", "this worker is stopping");
  auto asked = std::make_shared<Io::Asked>(Io::Asked{std::move(call), std::move(answered), ended});
  const std::scoped_lock lock(mutex_);
  if (io_ == nullptr) return Io::Asked::tell(std::move(asked));
  io_->ask(std::move(asked));
}

void HttpClient::end() {
  std::unique_ptr<Io> ends;
  const std::scoped_lock lock(mutex_);
  std::swap(ends, io_);
}

}  // namespace windlass::worker
