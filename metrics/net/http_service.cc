// An Outbox per call connects the server's thread, on which a coroutine writes, with the threads that answer.
#include "metrics/net/http_service.h"

#include <algorithm>
#include <mutex>
#include <thread>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "metrics/net/peer_watch.h"
#include "planner/base/percent.h"

namespace windlass::net {
namespace {

constexpr std::size_t kMaxUnsentBytes = std::size_t{64} << 20U;
constexpr std::size_t kWriteBytes = 256U << 10U;  // per write, each within kWriteTimeout
constexpr auto kWriteTimeout = std::chrono::seconds(60);
constexpr std::string_view kLastChunk = "0\r\n\r\n";

// If the work throws, the call fails and is answered when it is released; the program continues.
void run_guarded(const std::function<void()>& work) {
  try {
    work();
  } catch (const std::exception& e) {
    spdlog::warn("a request's handler failed: {}", e.what());
  } catch (...) {
    spdlog::warn("a request's handler threw something other than a std::exception");
  }
}

// True for "Connection: close", which the server writes itself.
bool is_close(const std::pair<std::string, std::string>& header) {
  return beast::iequals(header.first, "Connection") && beast::iequals(header.second, "close");
}

// Header lines; drops headers that would break out of their line.
std::string lines_of(const std::vector<std::pair<std::string, std::string>>& headers) {
  std::string lines;
  for (const auto& header : headers) {
    const auto& [name, value] = header;
    if (is_close(header) || value.find_first_of(std::string_view("\r\n\0", 3)) != std::string::npos) continue;
    lines += fmt::format("{}: {}\r\n", name, value);
  }
  return lines;
}

}  // namespace

// Threads post work for the service here while it exists.
struct ServiceCore {
  std::mutex mutex;
  asio::io_context* io = nullptr;  // null: closed
  asio::thread_pool* pool = nullptr;

  template <class Work>
  void on_io(Work work) {
    const std::scoped_lock lock(mutex);
    if (io != nullptr) asio::post(*io, std::move(work));
  }
  template <class Work>
  void on_pool(Work work) {
    const std::scoped_lock lock(mutex);
    if (pool != nullptr) asio::post(*pool, std::move(work));
  }
};

struct HttpService::Io {
  asio::io_context context{1};
  asio::executor_work_guard<asio::io_context::executor_type> work{context.get_executor()};
  asio::thread_pool pool;
  HttpServer server;
  std::thread thread;

  Io(std::size_t threads, HttpServer::Handler handler, HttpServer::Options options)
      : pool(threads), server(context, std::move(handler), std::move(options)) {}
};

namespace {

// Wakes the coroutine that writes an answer; used on the service's thread.
struct Signal {
  asio::steady_timer timer;
  Stream* stream;  // null: nobody is writing
};

// The data to write for one answer; any thread, with the mutex held.
struct Outbox {
  std::mutex mutex;
  bool answered = false;   // `bytes` holds or held a head
  bool streaming = false;  // begun and not ended
  bool over = false;
  bool broken = false;    // break the connection after `bytes`
  bool too_slow = false;  // or immediately, whatever is being written
  bool keep_alive = true;
  bool chunked = true;
  bool no_body = false;  // HEAD
  std::string bytes;
  ServerCall::Done done;
  std::function<void()> left;
  bool has_left = false;
  std::function<void()> wake;

  // True for the first answer; then stores `done`.
  [[nodiscard]] bool take(const HttpResponse& response, ServerCall::Done& on_end) {
    if (answered || over) return false;
    answered = true;
    keep_alive = keep_alive && std::none_of(response.headers.begin(), response.headers.end(), is_close);
    done = std::exchange(on_end, nullptr);
    return true;
  }
  void put(std::string_view piece) {
    if (no_body || piece.empty()) return;
    if (chunked) {
      bytes += fmt::format("{:x}\r\n", piece.size());
      bytes += piece;
      bytes += "\r\n";
    } else {
      bytes += piece;
    }
    if (bytes.size() <= kMaxUnsentBytes) return;
    bytes.clear();
    too_slow = true;
    end(true);
  }
  void end(bool as_broken) {
    over = true;
    streaming = false;
    broken = broken || as_broken;
  }
};

}  // namespace

struct ServerCall::Request {
  std::shared_ptr<ServiceCore> core;
  std::shared_ptr<Outbox> outbox;
  HttpRequest http;
  std::string method, target, path;

  ~Request() {
    // The last copy was released without an answer, or in the middle of one.
    const std::scoped_lock lock(outbox->mutex);
    if (outbox->over) return;
    if (!outbox->answered) {
      outbox->keep_alive = false;
      outbox->answered = true;
      outbox->bytes = simple_response(500, "text/plain", "", false);
      outbox->end(false);
    } else {
      outbox->end(true);
    }
    outbox->wake();
  }
};

const std::string& ServerCall::method() const { return request_->method; }
const std::string& ServerCall::target() const { return request_->target; }
const std::string& ServerCall::path() const { return request_->path; }
std::string& ServerCall::body() const { return request_->http.body(); }

std::string ServerCall::header(std::string_view name) const {
  const auto found = request_->http.find({name.data(), name.size()});
  return found == request_->http.end() ? std::string() : std::string(found->value());
}

std::string ServerCall::query(std::string_view name) const {
  const std::size_t mark = target().find('?');
  if (mark == std::string::npos) return "";
  for (std::string_view rest = std::string_view(target()).substr(mark + 1); !rest.empty();) {
    const std::string_view pair = rest.substr(0, rest.find('&'));
    rest.remove_prefix(std::min(pair.size() + 1, rest.size()));
    const std::size_t equals = pair.find('=');
    if (pair.substr(0, equals) != name) continue;
    return equals == std::string_view::npos ? "" : percent_decoded(pair.substr(equals + 1)).value_or("");
  }
  return "";
}

void ServerCall::answer(HttpResponse response, Done done) const {
  Outbox& outbox = *request_->outbox;
  {
    const std::scoped_lock lock(outbox.mutex);
    if (outbox.take(response, done)) {
      const bool bodyless = response.status == 304 || response.status == 204;
      outbox.bytes = bodyless ? fmt::format("HTTP/1.1 {} {}\r\n{}{}\r\n", response.status, reason_phrase(response.status),
                                            outbox.keep_alive ? "" : "Connection: close\r\n", lines_of(response.headers))
                              : simple_response(response.status, response.content_type, outbox.no_body ? "" : response.body,
                                                outbox.keep_alive, lines_of(response.headers));
      outbox.end(false);
      outbox.wake();
    }
  }
  if (done) request_->core->on_io([done = std::move(done)] { done(false); });
}

void ServerCall::begin(HttpResponse response, Done done) const {
  Outbox& outbox = *request_->outbox;
  {
    const std::scoped_lock lock(outbox.mutex);
    if (outbox.take(response, done)) {
      outbox.streaming = true;
      outbox.keep_alive = outbox.keep_alive && outbox.chunked;
      outbox.bytes =
          fmt::format("HTTP/1.1 {} {}\r\nContent-Type: {}\r\n{}{}{}\r\n", response.status, reason_phrase(response.status),
                      response.content_type, outbox.chunked ? "Transfer-Encoding: chunked\r\n" : "",
                      outbox.keep_alive ? "" : "Connection: close\r\n", lines_of(response.headers));
      outbox.put(response.body);
      outbox.wake();
    }
  }
  if (done) request_->core->on_io([done = std::move(done)] { done(false); });
}

void ServerCall::write(std::string piece) const {
  Outbox& outbox = *request_->outbox;
  const std::scoped_lock lock(outbox.mutex);
  if (!outbox.streaming) return;
  outbox.put(piece);
  outbox.wake();
}

void ServerCall::finish() const {
  Outbox& outbox = *request_->outbox;
  const std::scoped_lock lock(outbox.mutex);
  if (!outbox.streaming) return;
  if (outbox.chunked && !outbox.no_body) outbox.bytes += kLastChunk;
  outbox.end(false);
  outbox.wake();
}

void ServerCall::break_off() const {
  Outbox& outbox = *request_->outbox;
  const std::scoped_lock lock(outbox.mutex);
  if (outbox.over) return;
  outbox.answered = true;
  outbox.end(true);
  outbox.wake();
}

void ServerCall::on_left(std::function<void()> left) const {
  Outbox& outbox = *request_->outbox;
  {
    const std::scoped_lock lock(outbox.mutex);
    if (!outbox.has_left) {
      outbox.left = std::move(left);
      return;
    }
  }
  request_->core->on_io(std::move(left));
}

void ServerCall::post(std::function<void()> work) const {
  request_->core->on_pool([work = std::move(work)] { run_guarded(work); });
}

namespace {

// Writes one answer as it arrives; true when the connection may carry another request.
class Writer {
 public:
  Writer(Stream& stream, std::shared_ptr<Outbox> outbox, std::shared_ptr<Signal> signal)
      : stream_(stream), outbox_(std::move(outbox)), signal_(std::move(signal)) {}
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;
  // Runs however it ends, also when the service ends.
  ~Writer() {
    signal_->stream = nullptr;
    ServerCall::Done done;
    std::function<void()> left;
    {
      const std::scoped_lock lock(outbox_->mutex);
      outbox_->wake = [] {};
      outbox_->end(true);
      outbox_->answered = true;
      done = std::exchange(outbox_->done, nullptr);
      left = std::exchange(outbox_->left, nullptr);
      outbox_->has_left = !sent_;
    }
    if (left && !sent_) left();
    if (done) done(sent_);
  }

  asio::awaitable<bool> run() {
    PeerWatch watch(stream_, [this] { peer_left(); });
    while (true) {
      bool over = false, broken = false, keep_alive = false;
      std::string bytes;
      {
        const std::scoped_lock lock(outbox_->mutex);
        bytes = std::exchange(outbox_->bytes, {});
        over = outbox_->over;
        broken = outbox_->broken;
        keep_alive = outbox_->keep_alive;
        if (bytes.empty() && !over) signal_->timer.expires_at(asio::steady_timer::time_point::max());
      }
      bool written = true;
      for (std::size_t at = 0; at < bytes.size() && written; at += kWriteBytes) {
        error_code error;
        stream_.expires_after(kWriteTimeout);
        co_await asio::async_write(stream_, asio::buffer(bytes.data() + at, std::min(kWriteBytes, bytes.size() - at)),
                                   to(error));
        written = !error;
      }
      stream_.expires_never();
      if (broken) {
        error_code ignored;
        stream_.socket().close(ignored);
      }
      // A peer may leave as soon as it has the last byte.
      sent_ = over && written && !broken;
      if (sent_) co_return keep_alive && !gone_;
      if (broken || gone_ || !written) co_return false;
      if (bytes.empty()) {
        error_code ignored;
        co_await signal_->timer.async_wait(to(ignored));
        if (gone_) co_return false;
      }
    }
  }

 private:
  void peer_left() {
    gone_ = true;
    signal_->timer.cancel();
  }

  Stream& stream_;
  std::shared_ptr<Outbox> outbox_;
  std::shared_ptr<Signal> signal_;
  bool gone_ = false;
  bool sent_ = false;
};

}  // namespace

HttpService::HttpService(HttpServer::Options options, Handler handler, int threads)
    : core_(std::make_shared<ServiceCore>()), handler_(std::move(handler)) {
  const auto serve = [this](Stream& stream, HttpRequest& http) -> asio::awaitable<bool> {
    auto outbox = std::make_shared<Outbox>();
    auto signal = std::make_shared<Signal>(Signal{asio::steady_timer(io_->context), &stream});
    outbox->keep_alive = http.keep_alive();
    outbox->chunked = http.version() >= 11;
    outbox->no_body = http.method() == http::verb::head;
    outbox->wake = [core = core_, signal, &outbox = *outbox] {
      core->on_io([signal, too_slow = outbox.too_slow] {
        signal->timer.cancel();
        error_code ignored;
        if (too_slow && signal->stream != nullptr) signal->stream->socket().close(ignored);
      });
    };
    Writer writer(stream, outbox, signal);
    {
      auto request = std::make_shared<ServerCall::Request>();
      request->core = core_;
      request->outbox = outbox;
      request->method = std::string(http.method_string());
      request->target = std::string(http.target());
      request->path = request->target.substr(0, request->target.find('?'));
      request->http = std::move(http);
      core_->on_pool([this, call = ServerCall(std::move(request))] { run_guarded([&] { handler_(call); }); });
    }
    const bool go_on = co_await writer.run();
    co_return go_on;
  };
  io_ = std::make_unique<Io>(static_cast<std::size_t>(threads), serve, std::move(options));
  const std::scoped_lock lock(core_->mutex);
  core_->io = &io_->context;
  core_->pool = &io_->pool;
}

HttpService::~HttpService() { close(0); }

Result<void> HttpService::open(const HostPort& address) {
  if (auto listening = io_->server.listen(address); !listening.ok()) return listening;
  io_->thread = std::thread([io = io_.get()] { io->context.run(); });
  return {};
}

HostPort HttpService::bound() const { return io_->server.bound(); }

bool HttpService::close(double limit_s) {
  if (io_ == nullptr) return true;
  bool empty = true;
  if (io_->thread.joinable()) {
    auto wait_for_end = [this, limit_s, &empty]() -> asio::awaitable<void> {
      asio::steady_timer timer(io_->context);
      const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(limit_s);
      io_->server.stop_accepting();
      while (io_->server.connections() > 0 && std::chrono::steady_clock::now() < end) {
        error_code ignored;
        timer.expires_after(std::chrono::milliseconds(5));
        co_await timer.async_wait(to(ignored));
      }
      empty = io_->server.connections() == 0;
      io_->context.stop();
    };
    asio::co_spawn(io_->context, std::move(wait_for_end), asio::detached);
    io_->thread.join();
  }
  {
    const std::scoped_lock lock(core_->mutex);
    core_->io = nullptr;
    core_->pool = nullptr;
  }
  io_->pool.stop();
  io_->pool.join();
  io_.reset();
  return empty;
}

}  // namespace windlass::net
