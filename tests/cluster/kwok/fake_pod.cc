// Implements fake_pod.h.
#include "tests/cluster/kwok/fake_pod.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <deque>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "metrics/net/beast_parser.h"

namespace windlass::testing {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using boost::system::error_code;
using nlohmann::json;

constexpr std::size_t kMaxBodyBytes = 16U << 20U;

std::int64_t broken_requests = 0;

auto to(error_code& error) { return asio::redirect_error(asio::use_awaitable, error); }

double now_s() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

std::chrono::steady_clock::time_point at(double seconds) {
  return std::chrono::steady_clock::time_point(
      std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(seconds)));
}

std::string whole(int status, const std::string& type, const std::string& body, const std::string& more = "") {
  return fmt::format("HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\n{}\r\n{}", status,
                     http::obsolete_reason(http::int_to_status(static_cast<unsigned>(status))).to_string(), type, body.size(),
                     more, body);
}

std::string error_text(int status, const std::string& message, const std::string& rejected = "") {
  const json body = {{"error", {{"message", message}, {"type", status == 503 ? "server_error" : "invalid_request_error"}}}};
  return whole(status, "application/json", body.dump(),
               rejected.empty() ? "" : fmt::format("X-Windlass-Rejected: {}\r\nRetry-After: 1\r\n", rejected));
}

// The number of tokens of a text: its words.
int words_of(const json& text) {
  if (!text.is_string()) return 0;
  int words = 0;
  bool inside = false;
  for (const char c : text.get_ref<const std::string&>()) {
    const bool space = c == ' ' || c == '\n';
    words += !space && !inside ? 1 : 0;
    inside = !space;
  }
  return words;
}

int prompt_tokens(const json& body) {
  int tokens = words_of(body.value("prompt", json()));
  for (const json& message : body.value("messages", json::array())) {
    if (message.is_object()) tokens += words_of(message.value("content", json()));
  }
  return std::max(1, tokens);
}

std::string words(int first, int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += first + i == 1 ? "w" : " w";
  return text;
}

std::string chunked(const std::string& bytes) { return fmt::format("{:x}\r\n{}\r\n", bytes.size(), bytes); }

}  // namespace

struct FakePod::Request {
  explicit Request(asio::io_context& io) : wake(io) {}

  asio::steady_timer wake;  // cancelled when there is something to write
  std::deque<Emission> ready;
};

FakePod::FakePod(asio::io_context& io, FakePodOptions options)
    : io_(io),
      options_(std::move(options)),
      engine_(options_.engine),
      acceptor_(io),
      timer_(io),
      registry_(std::make_unique<metrics::Registry>()),
      metrics_(std::make_unique<metrics::WorkerMetrics>(*registry_, options_.served_name)) {}

FakePod::~FakePod() = default;

std::int64_t FakePod::broken() { return broken_requests; }

Result<void> FakePod::open() {
  error_code error;
  const Tcp::endpoint endpoint(asio::ip::make_address(options_.address, error), static_cast<unsigned short>(options_.port));
  if (!error) acceptor_.open(endpoint.protocol(), error);
  if (!error) acceptor_.set_option(Tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor_.bind(endpoint, error);
  if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
  if (error) {
    return Error{ErrorCode::kUnavailable, fmt::format("pod {}: cannot listen on {}:{}: {}", options_.name, options_.address,
                                                      options_.port, error.message())};
  }
  asio::co_spawn(io_, accept_loop(), asio::detached);
  return {};
}

void FakePod::kill() {
  if (gone_) return;
  gone_ = true;
  broken_requests += in_flight();
  error_code ignored;
  acceptor_.close(ignored);
  timer_.cancel();
  for (Stream* stream : streams_) stream->close();
  for (auto& [id, request] : requests_) request->wake.cancel();
}

asio::awaitable<void> FakePod::accept_loop() {
  const auto self = shared_from_this();
  while (!gone_) {
    error_code error;
    Tcp::socket socket = co_await acceptor_.async_accept(to(error));
    if (gone_) co_return;
    if (error) {
      asio::steady_timer pause(io_, std::chrono::milliseconds(50));
      co_await pause.async_wait(to(error));
      continue;
    }
    error_code ignored;
    socket.set_option(Tcp::no_delay(true), ignored);
    asio::co_spawn(io_, session(std::move(socket)), asio::detached);
  }
}

asio::awaitable<void> FakePod::session(Tcp::socket socket) {
  const auto self = shared_from_this();
  Stream stream(std::move(socket));
  streams_.insert(&stream);
  boost::beast::flat_buffer buffer;
  for (bool go_on = true; go_on && !gone_;) {
    http::request_parser<http::string_body> parser;
    parser.body_limit(kMaxBodyBytes);
    error_code error;
    co_await http::async_read(stream, buffer, parser, to(error));
    if (error) break;
    go_on = co_await answer(stream, parser.get()) && parser.get().keep_alive();
  }
  streams_.erase(&stream);
}

asio::awaitable<bool> FakePod::answer(Stream& stream, const Message& message) {
  const std::string path(message.target().substr(0, message.target().find('?')));
  if (path == "/v1/chat/completions" || path == "/v1/completions") co_return co_await generate(stream, message);
  std::string text;
  if (path == "/health") {
    text = whole(200, "application/json", R"({"status":"ok"})");
  } else if (path == "/ready") {
    text = whole(draining_ ? 503 : 200, "application/json", draining_ ? R"({"status":"draining"})" : R"({"status":"ready"})");
  } else if (path == "/metrics") {
    text = whole(200, metrics::kExpositionContentType, metrics_page());
  } else if (path == "/v1/models") {
    text = whole(200, "application/json", json{{"object", "list"}, {"data", {{{"id", options_.served_name}}}}}.dump());
  } else {
    text = error_text(404, "path: must be one of this server's paths (got " + path + ")");
  }
  error_code error;
  co_await asio::async_write(stream, asio::buffer(text), to(error));
  co_return !error;
}

// A request in progress: what it asked for and how far it is.
struct FakePod::Asked {
  int input = 0, output = 0;
  bool streamed = false, usage = false, chat = false;
  std::string name, model;
  double begin_s = 0, first_s = 0;
  bool finished = false;

  [[nodiscard]] json head(const std::string& object) const {
    return {{"id", name}, {"object", object}, {"created", std::time(nullptr)}, {"model", model}};
  }
  [[nodiscard]] json tokens() const {
    return {{"prompt_tokens", input}, {"completion_tokens", output}, {"total_tokens", input + output}};
  }
  [[nodiscard]] json chunk() const { return head(chat ? "chat.completion.chunk" : "text_completion"); }
};

std::string FakePod::event_of(const Asked& asked, const Emission& piece) {
  json chunk = asked.chunk();
  const std::string text = words(piece.generated - piece.tokens + 1, piece.tokens);
  json choice = {{"index", 0}, {"finish_reason", piece.finished ? json("length") : json()}};
  if (asked.chat) {
    choice["delta"] = {{"content", text}};
  } else {
    choice["text"] = text;
  }
  chunk["choices"] = json::array({choice});
  return "data: " + chunk.dump() + "\n\n";
}

std::string FakePod::last_events(const Asked& asked) {
  std::string out;
  if (asked.usage) {
    json chunk = asked.chunk();
    chunk["choices"] = json::array();
    chunk["usage"] = asked.tokens();
    out += "data: " + chunk.dump() + "\n\n";
  }
  return out + "data: [DONE]\n\n";
}

json FakePod::whole_answer(const Asked& asked) {
  json answer = asked.head(asked.chat ? "chat.completion" : "text_completion");
  json choice = {{"index", 0}, {"finish_reason", "length"}};
  if (asked.chat) {
    choice["message"] = {{"role", "assistant"}, {"content", words(1, asked.output)}};
  } else {
    choice["text"] = words(1, asked.output);
  }
  answer["choices"] = json::array({choice});
  answer["usage"] = asked.tokens();
  return answer;
}

// Empty if the engine accepted it; otherwise the response that refuses it.
std::string FakePod::submit(const json& body, std::int64_t id, Asked& asked) {
  if (!body.is_object()) return error_text(400, "body: must be a JSON object");
  if (body.value("model", "") != options_.served_name) {
    return error_text(404, fmt::format("model: must be '{}', the model of this worker (got '{}')", options_.served_name,
                                       body.value("model", "")));
  }
  if (draining_) return error_text(503, "this worker is draining and accepts no requests", "draining");
  asked.input = prompt_tokens(body);
  asked.output = std::max(1, body.value("max_tokens", body.value("max_completion_tokens", 16)));
  tick();
  if (!engine_.submit(id, asked.input, asked.output, asked.begin_s))
    return error_text(503, "too many requests are waiting", "full");
  return "";
}

// Takes what the engine has produced for a request and counts it. Returns the events of a stream.
std::string FakePod::take_ready(Request& request, Asked& asked) {
  std::string out;
  while (!request.ready.empty()) {
    const Emission piece = request.ready.front();
    request.ready.pop_front();
    if (asked.first_s == 0) {
      asked.first_s = now_s();
      metrics_->time_to_first_token.observe(asked.first_s - asked.begin_s);
    }
    metrics_->generation_tokens.add(piece.tokens);
    asked.finished = piece.finished;
    if (asked.streamed) out += event_of(asked, piece);
  }
  return out;
}

asio::awaitable<bool> FakePod::generate(Stream& stream, const Message& message) {
  const auto self = shared_from_this();
  error_code error;
  const json body = json::parse(message.body(), nullptr, false);
  const std::int64_t id = next_++;
  Asked asked;
  asked.begin_s = now_s();
  if (const std::string refusal = submit(body, id, asked); !refusal.empty()) {
    metrics_->requests_finished("rejected").add();
    co_await asio::async_write(stream, asio::buffer(refusal), to(error));
    co_return !error;
  }

  Request request(io_);
  requests_[id] = &request;
  tick();
  metrics_->prompt_tokens.add(asked.input);
  asked.streamed = body.value("stream", false);
  asked.usage = asked.streamed && body.contains("stream_options") && body["stream_options"].value("include_usage", false);
  asked.chat = message.target().find("chat") != boost::beast::string_view::npos;
  asked.name = fmt::format("fake-{}-{}", options_.name, id);
  asked.model = options_.served_name;
  if (asked.streamed) {
    static const std::string kHead =
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\nTransfer-Encoding: chunked\r\n\r\n";
    co_await asio::async_write(stream, asio::buffer(kHead), to(error));
  }
  while (!error && !asked.finished && !gone_) {
    if (request.ready.empty()) {
      request.wake.expires_at(std::chrono::steady_clock::time_point::max());
      error_code woken;
      co_await request.wake.async_wait(to(woken));
      continue;
    }
    std::string out = take_ready(request, asked);
    if (!asked.streamed) continue;
    if (asked.finished) out += last_events(asked);
    const std::string bytes = chunked(out) + (asked.finished ? "0\r\n\r\n" : "");
    co_await asio::async_write(stream, asio::buffer(bytes), to(error));
  }
  requests_.erase(id);
  if (gone_) co_return false;
  if (!asked.finished) {
    engine_.cancel(id, now_s());
    metrics_->requests_finished("abort").add();
    tick();
    co_return false;
  }
  const double end_s = now_s();
  if (asked.output > 1) metrics_->time_per_output_token.observe((end_s - asked.first_s) / (asked.output - 1));
  metrics_->e2e_request_latency.observe(end_s - asked.begin_s);
  metrics_->requests_finished("length").add();
  if (!asked.streamed) {
    const std::string text = whole(200, "application/json", whole_answer(asked).dump());
    co_await asio::async_write(stream, asio::buffer(text), to(error));
  }
  co_return !error;
}

// Advances the engine to now, sends out what it produced and sets the timer for the next event.
void FakePod::tick() {
  for (const Emission& piece : engine_.advance(now_s())) {
    const auto found = requests_.find(piece.request);
    if (found == requests_.end()) continue;
    found->second->ready.push_back(piece);
    found->second->wake.cancel();
  }
  const auto next_s = engine_.next_event_s();
  if (!next_s) {
    timer_.cancel();
    return;
  }
  timer_.expires_at(at(*next_s));
  timer_.async_wait([self = weak_from_this()](const error_code& error) {
    const auto pod = self.lock();
    if (!error && pod && !pod->gone_) pod->tick();
  });
}

std::string FakePod::metrics_page() {
  metrics_->requests_running.set(engine_.running());
  metrics_->requests_waiting.set(engine_.waiting());
  metrics_->kv_cache_usage_ratio.set(engine_.kv_use());
  return registry_->exposition();
}

}  // namespace windlass::testing
