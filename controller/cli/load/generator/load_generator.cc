// Sends requests and measures answers, one coroutine per request. Server-sent events are scanned for substrings rather than
// parsed, since the client shares its cores with the servers that it measures. A quote inside a JSON string is always escaped,
// so `"content":"` can only be a key and the start of its value.
#include "controller/cli/load/generator/load_generator.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <deque>
#include <limits>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "metrics/net/asio.h"
#include "metrics/net/host_port.h"

namespace windlass::load {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using tcp = asio::ip::tcp;
using boost::system::error_code;
using Clock = std::chrono::steady_clock;

constexpr double kRecentS = 10;
constexpr int kMaxRetries = 20;
constexpr double kStopGraceS = 1;
constexpr auto kLingerForMore = std::chrono::seconds(1);  // for servers that ignore "Connection: close"
constexpr auto kProgressEvery = std::chrono::milliseconds(500);
// Reasoning is generated like other text. vLLM names it "reasoning"; its older versions and others "reasoning_content".
constexpr std::array<std::string_view, 4> kTextKeys{"\"content\"", "\"text\"", "\"reasoning_content\"", "\"reasoning\""};
constexpr std::size_t kMaxBodyBytes = 64U << 20U;

auto to(error_code& error) { return asio::redirect_error(asio::use_awaitable, error); }

Clock::duration duration(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

struct Target {
  net::HostPort address;
  std::vector<tcp::endpoint> endpoints;
};

Result<Target> parse_url(const std::string& url) {
  constexpr std::string_view kScheme = "http://";
  const Error bad{ErrorCode::kInvalidArgument, fmt::format("url: must be http://HOST:PORT (got '{}')", url)};
  if (url.substr(0, kScheme.size()) != kScheme) return bad;
  std::string_view rest = std::string_view(url).substr(kScheme.size());
  if (rest.ends_with('/')) rest.remove_suffix(1);
  auto address = net::parse_host_port(rest, 80);
  if (!address.ok() || address->port == "0") return bad;
  return Target{std::move(address).value(), {}};
}

// Whether the event's JSON has `key` with a non-empty string.
bool has_text(std::string_view json, std::string_view key) {
  for (auto at = json.find(key); at != std::string_view::npos; at = json.find(key, at + 1)) {
    auto value = json.find_first_not_of(" :", at + key.size());
    if (value == std::string_view::npos || json[value] != '"') continue;
    if (value + 1 < json.size() && json[value + 1] != '"') return true;
  }
  return false;
}

// What one answer has shown so far. Fed with the body as it arrives.
struct AnswerReader {
  bool events = false;  // text/event-stream
  int done = 0;
  int texts = 0;
  int prompt_tokens = -1, tokens = -1, cached_tokens = 0;
  bool error_event = false;
  std::string error_text;
  std::string partial;

  void read_usage(std::string_view text) {
    const auto json = nlohmann::json::parse(text, nullptr, false);
    if (!json.is_object() || !json.contains("usage") || !json["usage"].is_object()) return;
    const auto count = [](const nlohmann::json& from, const char* name, int otherwise) {
      return from.is_object() && from.contains(name) && from[name].is_number_integer() ? from[name].get<int>() : otherwise;
    };
    const nlohmann::json& usage = json["usage"];
    prompt_tokens = count(usage, "prompt_tokens", -1);
    tokens = count(usage, "completion_tokens", -1);
    if (usage.contains("prompt_tokens_details")) cached_tokens = count(usage["prompt_tokens_details"], "cached_tokens", 0);
  }

  // Returns the number of events with text among the bytes.
  int feed(std::string_view bytes) {
    const int before = texts;
    partial.append(bytes);
    if (!events) return 0;
    std::size_t from = 0;
    for (auto end = partial.find('\n'); end != std::string::npos; end = partial.find('\n', from)) {
      line(std::string_view(partial).substr(from, end - from));
      from = end + 1;
    }
    partial.erase(0, from);
    return texts - before;
  }

  void line(std::string_view text) {
    if (text.substr(0, 5) != "data:") return;
    text.remove_prefix(5);
    while (!text.empty() && (text.front() == ' ')) text.remove_prefix(1);
    while (!text.empty() && (text.back() == '\r')) text.remove_suffix(1);
    if (text == "[DONE]") {
      ++done;
      return;
    }
    if (std::any_of(kTextKeys.begin(), kTextKeys.end(), [&](std::string_view key) { return has_text(text, key); })) ++texts;
    if (text.find("\"usage\":{") != std::string_view::npos || text.find("\"usage\": {") != std::string_view::npos)
      read_usage(text);
    if (text.substr(0, 8) == "{\"error\"") {
      error_event = true;
      error_text = std::string(text.substr(0, 200));
    }
  }
};

class Generator {
 public:
  // `times_s`, `lengths`: of each request.
  Generator(const LoadOptions& options, std::vector<double> times_s, std::vector<workload::TokenPair> lengths, Target target,
            const std::function<void(const LoadProgress&)>& on_progress, std::stop_token stop)
      : options_(options),
        target_(std::move(target)),
        on_progress_(on_progress),
        stop_(std::move(stop)),
        times_s_(std::move(times_s)),
        lengths_(std::move(lengths)),
        results_(times_s_.size()),
        pacer_(io_),
        reporter_(io_) {}

  LoadResult run() {
    began_ = Clock::now();
    asio::co_spawn(io_, send_all(), asio::detached);
    asio::co_spawn(io_, report(), asio::detached);
    io_.run();
    results_.resize(sent_);
    if (on_progress_) on_progress_(progress());
    return summarise(std::move(results_), now_s(), options_.ttft_slo_s, options_.tpot_slo_s);
  }

 private:
  [[nodiscard]] double now_s() const { return std::chrono::duration<double>(Clock::now() - began_).count(); }

  asio::awaitable<void> send_all() {
    for (std::size_t i = 0; i < times_s_.size() && !stop_.stop_requested(); ++i) {
      // Split long waits, so that a stop request is noticed.
      while (now_s() < times_s_[i] && !stop_.stop_requested()) {
        error_code ignored;
        pacer_.expires_at(began_ + duration(std::min(times_s_[i], now_s() + 0.2)));
        co_await pacer_.async_wait(to(ignored));
      }
      if (stop_.stop_requested()) break;
      results_[i].index = i;
      results_[i].scheduled_s = times_s_[i];
      ++sent_;
      ++in_flight_;
      asio::co_spawn(io_, request(i), asio::detached);
    }
    all_sent_ = true;
    if (in_flight_ == 0) reporter_.cancel();
  }

  asio::awaitable<void> report() {
    std::optional<double> stopped_s;
    while (!all_sent_ || in_flight_ > 0) {
      error_code ignored;
      reporter_.expires_after(kProgressEvery);
      co_await reporter_.async_wait(to(ignored));
      if (on_progress_) on_progress_(progress());
      if (!stop_.stop_requested()) continue;
      if (!stopped_s.has_value()) stopped_s = now_s();
      if (now_s() - *stopped_s > kStopGraceS) {
        io_.stop();
        co_return;
      }
    }
  }

  asio::awaitable<void> request(std::size_t index) {
    RequestResult& result = results_[index];
    const double deadline_s = result.scheduled_s + options_.request_timeout_s;
    while (true) {
      double retry_after_s = 0;
      co_await attempt(index, deadline_s, retry_after_s);
      const bool again = options_.retry && retry_after_s > 0 && result.retries < kMaxRetries &&
                         now_s() + retry_after_s < deadline_s && !stop_.stop_requested();
      if (!again) break;
      ++result.retries;
      asio::steady_timer timer(io_, duration(retry_after_s));
      error_code ignored;
      co_await timer.async_wait(to(ignored));
    }
    if (result.outcome == Outcome::kLost) result.finished_s = now_s();
    recent_.push_back(index);
    --in_flight_;
    ++finished_[result.outcome];
    duplicated_ += result.duplicated ? 1 : 0;
    retried_ += result.retries > 0 ? 1 : 0;
    if (all_sent_ && in_flight_ == 0) reporter_.cancel();
  }

  // Sets retry_after_s if the answer asks for a retry. (A reference parameter is safe here: the caller awaits the coroutine.)
  asio::awaitable<void> attempt(std::size_t index, double deadline_s, double& retry_after_s) {
    RequestResult& result = results_[index];
    result.outcome = Outcome::kLost;
    result.status = 0;
    result.problem = "not answered before the load was stopped";
    const std::string id = fmt::format("load-{}-{}-{}", options_.seed, index, result.retries);
    const std::string message = message_text(index, id);
    beast::tcp_stream stream(io_);
    error_code error = asio::error::host_not_found;
    stream.expires_at(began_ + duration(deadline_s));
    for (const auto& endpoint : target_.endpoints) {
      co_await stream.async_connect(endpoint, to(error));
      if (!error) break;
    }
    if (error) {
      result.problem = fmt::format("could not connect: {}", error.message());
      co_return;
    }
    error_code ignored;
    stream.socket().set_option(tcp::no_delay(true), ignored);
    co_await asio::async_write(stream, asio::buffer(message), to(error));
    beast::flat_buffer buffer;
    http::response_parser<http::buffer_body> parser;
    parser.body_limit(std::numeric_limits<std::uint64_t>::max());  // Beast 1.74 treats boost::none as 0
    co_await http::async_read_header(stream, buffer, parser, to(error));
    if (error) {
      result.problem = fmt::format("no answer: {}", error == beast::error::timeout ? "timeout" : error.message());
      co_return;
    }
    const auto& head = parser.get();
    result.status = static_cast<int>(head.result_int());
    result.chain = std::string(head["X-Windlass-Worker"]);
    const auto answered_id = head.find("X-Request-Id");
    if (answered_id != head.end() && answered_id->value() != id) result.duplicated = true;
    const std::string retry_after(head[http::field::retry_after]);
    AnswerReader reader;
    reader.events = head[http::field::content_type].substr(0, 17) == "text/event-stream";
    co_await read_answer(index, stream, buffer, parser, reader, error);
    if (error) {
      result.problem = fmt::format("the answer broke off: {}", error == beast::error::timeout ? "timeout" : error.message());
      co_return;
    }
    judge(result, reader);
    result.finished_s = now_s();
    if (result.outcome == Outcome::kRejected && (result.status == 429 || result.status == 503)) {
      std::from_chars(retry_after.data(), retry_after.data() + retry_after.size(), retry_after_s);
    }
    // The answer is complete and we asked for the connection to close: any further bytes are a second answer.
    std::array<char, 64> scrap;
    stream.expires_after(kLingerForMore);
    const std::size_t extra =
        buffer.size() > 0 ? buffer.size() : co_await stream.async_read_some(asio::buffer(scrap), to(ignored));
    if (extra > 0) result.duplicated = true;
  }

  asio::awaitable<void> read_answer(std::size_t index, beast::tcp_stream& stream, beast::flat_buffer& buffer,
                                    http::response_parser<http::buffer_body>& parser, AnswerReader& reader, error_code& error) {
    RequestResult& result = results_[index];
    std::array<char, 16384> bytes;
    std::optional<double> first_s;
    double last_s = 0;
    while (!parser.is_done()) {
      auto& body = parser.get().body();
      body.data = bytes.data();
      body.size = bytes.size();
      body.more = true;
      co_await http::async_read_some(stream, buffer, parser, to(error));
      if (error == http::error::need_buffer) error = {};
      if (reader.feed({bytes.data(), bytes.size() - body.size}) > 0) {
        last_s = now_s();
        if (!first_s.has_value()) first_s = last_s;
      }
      if (error) co_return;
      if (reader.partial.size() > kMaxBodyBytes) {
        error = make_error_code(http::error::body_limit);
        co_return;
      }
    }
    if (!reader.events && result.status == 200) reader.read_usage(reader.partial);
    result.tokens = reader.tokens >= 0 ? reader.tokens : reader.texts;
    result.prompt_tokens = std::max(0, reader.prompt_tokens);
    result.cached_tokens = std::clamp(reader.cached_tokens, 0, result.prompt_tokens);
    if (first_s.has_value()) {
      result.ttft_s = *first_s - result.scheduled_s;
      if (result.tokens > 1) result.tpot_s = (last_s - *first_s) / (result.tokens - 1);
    }
  }

  void judge(RequestResult& result, const AnswerReader& reader) const {
    if (result.status != 200) {
      result.outcome = Outcome::kRejected;
      const auto json = nlohmann::json::parse(reader.partial, nullptr, false);
      std::string text = reader.partial.substr(0, 200);
      if (json.is_object() && json.contains("error") && json["error"].is_object() && json["error"].contains("message") &&
          json["error"]["message"].is_string()) {
        text = json["error"]["message"].get<std::string>();
      }
      result.problem = fmt::format("status {}: {}", result.status, text);
      return;
    }
    if (reader.done > 1) result.duplicated = true;
    if (reader.error_event) {
      result.problem = "the stream ended with an error: " + reader.error_text;
    } else if (options_.stream && reader.done == 0) {
      result.problem = "the stream ended without [DONE]";
    } else if (!options_.stream && !nlohmann::json::accept(reader.partial)) {
      result.problem = "the answer is not JSON";
    } else {
      result.outcome = Outcome::kCompleted;
      result.problem.clear();
    }
  }

  [[nodiscard]] std::string message_text(std::size_t index, const std::string& id) const {
    const workload::TokenPair& lengths = lengths_[index];
    nlohmann::json body{
        {"model", options_.model},
        {"messages",
         nlohmann::json::array({{{"role", "user"}, {"content", prompt_text(index, lengths.input_tokens, options_.seed)}}})},
        {"max_tokens", lengths.output_tokens},
        {"stream", options_.stream}};
    if (options_.stream && options_.include_usage) body["stream_options"] = {{"include_usage", true}};
    if (options_.ignore_eos) body["ignore_eos"] = true;
    const std::string text = body.dump();
    return fmt::format(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nX-Request-Id: {}\r\n"
        "Connection: close\r\nContent-Length: {}\r\n\r\n{}",
        net::to_string(target_.address), id, text.size(), text);
  }

  [[nodiscard]] LoadProgress progress() {
    LoadProgress p;
    p.elapsed_s = now_s();
    p.total_s = total_s(options_.phases);
    p.planned = times_s_.size();
    p.sent = sent_;
    p.in_flight = in_flight_;
    p.completed = finished_[Outcome::kCompleted];
    p.rejected = finished_[Outcome::kRejected];
    p.lost = finished_[Outcome::kLost];
    p.duplicated = duplicated_;
    p.retried = retried_;
    const double from_s = std::max(0.0, p.elapsed_s - kRecentS);
    while (!recent_.empty() && results_[recent_.front()].finished_s < from_s) recent_.pop_front();
    const auto first = std::lower_bound(times_s_.begin(), times_s_.begin() + static_cast<std::ptrdiff_t>(sent_), from_s);
    const auto arrivals = std::distance(first, times_s_.begin() + static_cast<std::ptrdiff_t>(sent_));
    if (p.elapsed_s > from_s) p.arrivals_per_s = static_cast<double>(arrivals) / (p.elapsed_s - from_s);
    std::vector<RequestResult> window;
    for (const std::size_t index : recent_) window.push_back(results_[index]);
    const LoadResult summary = summarise(std::move(window), kRecentS, options_.ttft_slo_s, options_.tpot_slo_s);
    if (summary.ttft_s.has_value()) p.ttft_p95_s = summary.ttft_s->p95;
    if (summary.tpot_s.has_value()) p.tpot_p95_s = summary.tpot_s->p95;
    p.attainment = summary.attainment;
    return p;
  }

  const LoadOptions& options_;
  Target target_;
  const std::function<void(const LoadProgress&)>& on_progress_;
  std::stop_token stop_;
  std::vector<double> times_s_;
  std::vector<workload::TokenPair> lengths_;
  std::vector<RequestResult> results_;
  asio::io_context io_{1};
  asio::steady_timer pacer_, reporter_;
  Clock::time_point began_;
  std::size_t sent_ = 0, in_flight_ = 0, duplicated_ = 0, retried_ = 0;
  std::map<Outcome, std::size_t> finished_;
  std::deque<std::size_t> recent_;
  bool all_sent_ = false;
};

}  // namespace

Result<LoadResult> run_load(const LoadOptions& options, const std::function<void(const LoadProgress&)>& on_progress,
                            std::stop_token stop) {
  const auto invalid = [](std::string message) { return Error{ErrorCode::kInvalidArgument, std::move(message)}; };
  if (options.model.empty()) return invalid("model: must be the name of a served model (got nothing)");
  if (options.phases.empty()) return invalid("phases: must have at least one RATE/DURATION (got none)");
  if (options.max_tokens < 1) return invalid(fmt::format("max tokens: must be at least 1 (got {})", options.max_tokens));
  if (options.prompt_tokens < 1)
    return invalid(fmt::format("prompt tokens: must be at least 1 (got {})", options.prompt_tokens));
  WINDLASS_ASSIGN_OR_RETURN(Target target, parse_url(options.url));
  asio::io_context io;
  error_code error;
  for (const auto& entry : tcp::resolver(io).resolve(target.address.host, target.address.port, error))
    target.endpoints.push_back(entry.endpoint());
  if (error) return invalid(fmt::format("url: must have a host that resolves (got '{}': {})", options.url, error.message()));
  std::vector<double> times_s = arrival_times_s(options.phases, options.arrivals, options.seed);
  WINDLASS_ASSIGN_OR_RETURN(std::vector<workload::TokenPair> lengths,
                            request_lengths({options.prompt_tokens, options.max_tokens}, options.length_cv,
                                            options.context_tokens, options.seed, times_s.size()));
  Generator generator(options, std::move(times_s), std::move(lengths), std::move(target), on_progress, std::move(stop));
  return generator.run();
}

}  // namespace windlass::load
