// Implements trace_load.h.
#include "tests/cluster/kwok/trace_load.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <limits>
#include <mutex>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "metrics/net/asio.h"

namespace windlass::testing {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using tcp = asio::ip::tcp;
using boost::system::error_code;
using Clock = std::chrono::steady_clock;

auto to(error_code& error) { return asio::redirect_error(asio::use_awaitable, error); }

Clock::duration duration(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

tcp::endpoint endpoint_of(const std::string& address) {
  const std::size_t colon = address.rfind(':');
  return {asio::ip::make_address(address.substr(0, colon)), static_cast<unsigned short>(std::stoi(address.substr(colon + 1)))};
}

std::string request_text(const PlannedRequest& planned, std::size_t number) {
  std::string prompt = fmt::format("{}", number);
  for (int i = 1; i < planned.input_tokens; ++i) prompt += " a";
  const nlohmann::json body = {{"model", planned.model},
                               {"messages", {{{"role", "user"}, {"content", prompt}}}},
                               {"max_tokens", planned.output_tokens},
                               {"stream", true}};
  const std::string text = body.dump();
  return fmt::format(
      "POST /v1/chat/completions HTTP/1.1\r\nHost: gateway\r\nContent-Type: application/json\r\nContent-Length: {}\r\n"
      "Connection: close\r\n\r\n{}",
      text.size(), text);
}

}  // namespace

double quantile(const std::vector<double>& sorted, double q) {
  if (sorted.empty()) return 0;
  const auto index = static_cast<std::size_t>(std::ceil(q * static_cast<double>(sorted.size())));
  return sorted[std::clamp<std::size_t>(index, 1, sorted.size()) - 1];
}

struct TraceLoad::Impl {
  explicit Impl(TraceLoadOptions options_in) : options(std::move(options_in)), pacer(io) {
    for (const std::string& gateway : options.gateways) gateways.push_back(endpoint_of(gateway));
    so_far.planned = static_cast<int>(options.requests.size());
    began = Clock::now();
    asio::co_spawn(io, send_all(), asio::detached);
    thread = std::jthread([this] { io.run(); });
  }
  ~Impl() { io.stop(); }

  [[nodiscard]] double now_s() const { return std::chrono::duration<double>(Clock::now() - began).count(); }

  asio::awaitable<void> send_all() {
    for (std::size_t i = 0; i < options.requests.size(); ++i) {
      error_code ignored;
      pacer.expires_at(began + duration(options.requests[i].at_s));
      co_await pacer.async_wait(to(ignored));
      {
        const std::lock_guard lock(mutex);
        ++so_far.sent;
        so_far.max_late_ms = std::max(so_far.max_late_ms, static_cast<int>((now_s() - options.requests[i].at_s) * 1e3));
      }
      asio::co_spawn(io, request(i), asio::detached);
    }
  }

  asio::awaitable<void> request(std::size_t number) {
    const PlannedRequest& planned = options.requests[number];
    const double begin_s = now_s();
    std::string failure;
    int status = 0;
    double first_s = 0, last_s = 0;
    bool done = false;
    error_code error;
    beast::tcp_stream stream(io);
    stream.expires_after(duration(options.timeout_s));
    co_await stream.async_connect(gateways[number % gateways.size()], to(error));
    if (error) failure = "connecting: " + error.message();
    if (!error) {
      const std::string text = request_text(planned, number);
      co_await asio::async_write(stream, asio::buffer(text), to(error));
    }
    http::response_parser<http::buffer_body> parser;
    parser.body_limit(std::numeric_limits<std::uint64_t>::max());  // Beast 1.74 treats "none" as 0
    beast::flat_buffer buffer;
    if (!error) {
      co_await http::async_read_header(stream, buffer, parser, to(error));
      if (!error) status = static_cast<int>(parser.get().result_int());
    }
    std::string partial;
    std::array<char, 16384> bytes{};
    while (!error && !parser.is_done()) {
      parser.get().body().data = bytes.data();
      parser.get().body().size = bytes.size();
      co_await http::async_read_some(stream, buffer, parser, to(error));
      if (error == http::error::need_buffer) error = {};
      if (error) break;
      partial.append(bytes.data(), bytes.size() - parser.get().body().size);
      for (auto end = partial.find('\n'); end != std::string::npos; end = partial.find('\n')) {
        const std::string_view line = std::string_view(partial).substr(0, end);
        if (line.find("\"content\":\"") != std::string_view::npos) {
          last_s = now_s();
          if (first_s == 0) first_s = last_s;
        }
        done = done || line == "data: [DONE]";
        if (line.find("\"error\"") != std::string_view::npos) failure = std::string(line.substr(0, 160));
        partial.erase(0, end + 1);
      }
    }
    if (error && failure.empty()) failure = fmt::format("status {}: {}", status, error.message());
    if (status != 200 && failure.empty()) failure = fmt::format("HTTP {}: {}", status, partial.substr(0, 160));
    if (status == 200 && !done && failure.empty()) failure = "incomplete stream";
    note(planned, status, failure, begin_s, first_s - begin_s, last_s - first_s);
  }

  void note(const PlannedRequest& planned, int status, const std::string& failure, double begin_s, double ttft, double rest) {
    const std::lock_guard lock(mutex);
    if (!failure.empty()) {
      const bool refusal = status == 429 || status == 503;
      ++(refusal ? so_far.refused : so_far.lost);
      ++so_far.failures[planned.model + ": " + failure];
      return;
    }
    ++so_far.answered;
    auto& slowest = so_far.slowest;
    const auto slower = [](const SlowAnswer& a, const SlowAnswer& b) { return a.ttft_s > b.ttft_s; };
    const SlowAnswer answer{ttft, begin_s, planned.model};
    slowest.insert(std::upper_bound(slowest.begin(), slowest.end(), answer, slower), answer);
    if (slowest.size() > TraceLoadReport::kSlowest) slowest.pop_back();
    const double tpot = planned.output_tokens > 1 ? rest / (planned.output_tokens - 1) : 0;
    so_far.ttft_s.push_back(ttft);
    if (planned.output_tokens > 1) so_far.tpot_s.push_back(tpot);
    if (ttft <= options.ttft_slo_s && tpot <= options.tpot_slo_s) ++so_far.attained;
  }

  TraceLoadOptions options;
  asio::io_context io{1};
  asio::steady_timer pacer;
  std::vector<tcp::endpoint> gateways;
  Clock::time_point began;
  mutable std::mutex mutex;
  TraceLoadReport so_far;  // guarded by mutex
  std::jthread thread;     // last: it uses everything above
};

TraceLoad::TraceLoad(TraceLoadOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}
TraceLoad::~TraceLoad() = default;

double TraceLoad::elapsed_s() const { return impl_->now_s(); }

bool TraceLoad::finished() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->so_far.sent == impl_->so_far.planned && impl_->so_far.in_flight() == 0;
}

TraceLoadReport TraceLoad::report() const {
  TraceLoadReport report;
  {
    const std::lock_guard lock(impl_->mutex);
    report = impl_->so_far;
  }
  std::sort(report.ttft_s.begin(), report.ttft_s.end());
  std::sort(report.tpot_s.begin(), report.tpot_s.end());
  return report;
}

}  // namespace windlass::testing
