// Polls the controllers in rounds.
#include "gateway/table_client.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "gateway/http_upstream.h"

namespace windlass::gateway {
namespace {

constexpr auto kConnectTimeout = std::chrono::seconds(2);
constexpr double kGraceS = 10;  // beyond the requested wait
constexpr double kFirstPauseS = 0.1;
constexpr double kMaxPauseS = 5;
constexpr std::uint64_t kMaxTableBytes = 16U << 20U;

}  // namespace

TableClient::TableClient(asio::io_context& io, TableClientOptions options, std::function<bool(dispatch::RoutingTable)> on_table,
                         std::function<dispatch::TableVersion()> version)
    : io_(io),
      options_(std::move(options)),
      on_table_(std::move(on_table)),
      version_(std::move(version)),
      stream_(io),
      timer_(io),
      random_(std::random_device{}()) {}

void TableClient::start() { asio::co_spawn(io_, run(), asio::detached); }

void TableClient::stop() {
  stopped_ = true;
  error_code ignored;
  stream_.socket().close(ignored);
  timer_.cancel();
}

asio::awaitable<void> TableClient::run() {
  double pause_s = kFirstPauseS;
  while (!stopped_) {
    bool answered = false;
    for (const Url& controller : options_.controllers) {
      error_code error;
      const auto endpoints = co_await resolve_all(controller.address, error);
      if (error) spdlog::debug("resolving {}: {}", controller.address.host, error.message());
      for (const auto& endpoint : endpoints) {
        const bool good = co_await poll_while_good(controller, endpoint);
        if (stopped_) co_return;
        answered = answered || good;
      }
    }
    if (answered) pause_s = kFirstPauseS;
    const double jitter = std::uniform_real_distribution<double>(0.5, 1.0)(random_);
    co_await pause(pause_s * jitter);
    pause_s = std::min(kMaxPauseS, pause_s * 2);
  }
}

asio::awaitable<bool> TableClient::poll_while_good(Url controller, tcp::endpoint endpoint) {
  bool answered = false;
  bool connected = false;
  while (!stopped_) {
    error_code error;
    if (!connected) {
      stream_.close();
      buffer_.clear();
      stream_.expires_after(kConnectTimeout);
      co_await stream_.tcp_layer().async_connect(endpoint, to(error));
      if (stopped_) co_return answered;
      if (error) {
        spdlog::debug("connecting to the controller {}: {}", to_string(controller), error.message());
        break;
      }
      if (controller.tls) {
        error = co_await stream_.connect_tls(options_.tls(), controller.address.host);
        if (stopped_) co_return answered;
        if (error) {
          (void)complain(controller, fmt::format("TLS: {}", error.message()));
          break;
        }
      }
    }
    const Outcome outcome = co_await poll_once(controller);
    if (outcome == Outcome::kFailed || stopped_) break;
    answered = true;
    connected = stream_.socket().is_open();
    // Pause when a controller answers immediately without news, or we would loop at full speed.
    if (outcome == Outcome::kNothingNew) co_await pause(0.1);
  }
  stream_.close();
  co_return answered;
}

asio::awaitable<TableClient::Outcome> TableClient::poll_once(Url controller) {
  const std::string request = fmt::format(
      "GET /v1/routing-table?gateway={}&admin={}{}&after={}&wait={}s HTTP/1.1\r\nHost: {}\r\nAccept: "
      "application/json\r\n{}{}{}\r\n",
      options_.id, options_.advertise, options_.admin_tls ? "&tls=1" : "", dispatch::to_string(version_()), options_.wait_s,
      to_string(controller.address),
      options_.token == nullptr ? "" : fmt::format("Authorization: Bearer {}\r\n", options_.token()),
      options_.load == nullptr ? "" : fmt::format("X-Windlass-Load: {}\r\n", options_.load()),
      options_.over_share == nullptr ? "" : fmt::format("X-Windlass-Over-Share: {}\r\n", options_.over_share()));
  error_code error;
  stream_.expires_after(std::chrono::milliseconds(static_cast<std::int64_t>((options_.wait_s + kGraceS) * 1000)));
  co_await asio::async_write(stream_, asio::buffer(request), to(error));
  http::response_parser<http::string_body> parser;
  parser.body_limit(kMaxTableBytes);
  if (!error) co_await http::async_read(stream_, buffer_, parser, to(error));
  if (stopped_) co_return Outcome::kFailed;
  if (error) co_return complain(controller, fmt::format("long poll: {}", error.message()));
  const bool keep = parser.keep_alive();
  const int status = static_cast<int>(parser.get().result_int());
  if (!keep) stream_.close();
  if (status == 401)
    co_return complain(controller, "--token-file: must be the token that the controller expects (got status 401)");
  if (status == 304) co_return Outcome::kNothingNew;
  // Standbys answer 503. That is no problem: the leader is elsewhere.
  if (status == 503) co_return Outcome::kFailed;
  if (status != 200)
    co_return complain(controller, fmt::format("GET /v1/routing-table: must be status 200, 304 or 503 (got {})", status));
  auto table = co_await read_table(std::move(parser.get().body()));
  if (stopped_) co_return Outcome::kFailed;
  if (!table.ok())
    co_return complain(controller, fmt::format("routing table: {}; the last good one stays in use", table.error().message));
  const auto version = table->version;
  const auto before = version_();
  if (!on_table_(std::move(table).value())) {
    if (version < before) {
      (void)complain(controller, fmt::format("routing table {} is older than {}, which stays in use",
                                             dispatch::to_string(version), dispatch::to_string(before)));
    }
    co_return Outcome::kNothingNew;
  }
  last_problem_.clear();
  co_return Outcome::kNews;
}

// Parses on the reader thread, then returns to the io_context with the table.
asio::awaitable<Result<dispatch::RoutingTable>> TableClient::read_table(std::string text) {
  // optional: values passed between executors must have a default constructor.
  using Read = std::optional<Result<dispatch::RoutingTable>>;
  const auto read = [](std::string json) -> asio::awaitable<Read> { co_return dispatch::routing_table_from_json(json); };
  Read table = co_await asio::co_spawn(reader_, read(std::move(text)), asio::use_awaitable);
  co_return std::move(*table);
}

TableClient::Outcome TableClient::complain(const Url& controller, const std::string& problem) {
  if (problem != last_problem_) spdlog::warn("controller {}: {}", to_string(controller), problem);
  last_problem_ = problem;
  return Outcome::kFailed;
}

asio::awaitable<void> TableClient::pause(double seconds) {
  error_code ignored;
  timer_.expires_after(std::chrono::microseconds(static_cast<std::int64_t>(seconds * 1e6)));
  co_await timer_.async_wait(to(ignored));
}

}  // namespace windlass::gateway
