// The bookkeeping of the pool, and connecting.
#include "gateway/http_upstream.h"

#include <boost/asio/ip/address.hpp>
#include <sys/socket.h>

namespace windlass::gateway {
namespace {

// Shorter than the keep-alive time of every engine we know, so that our side closes first.
constexpr auto kMaxIdle = std::chrono::seconds(15);
constexpr std::size_t kMaxIdlePerAddress = 64;

}  // namespace

bool closed_or_readable(tcp::socket& socket) {
  char byte = 0;
  const auto n = ::recv(socket.native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return n >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
}

std::unique_ptr<UpstreamConnection> UpstreamPool::take_idle(const std::string& address) {
  const auto found = idle_.find(address);
  if (found == idle_.end()) return nullptr;
  auto& connections = found->second;
  std::unique_ptr<UpstreamConnection> taken;
  while (taken == nullptr && !connections.empty()) {
    auto candidate = std::move(connections.back());
    connections.pop_back();
    const bool fresh = std::chrono::steady_clock::now() - candidate->idle_since < kMaxIdle;
    if (fresh && !closed_or_readable(candidate->stream.socket())) taken = std::move(candidate);
  }
  if (connections.empty()) idle_.erase(found);
  return taken;
}

asio::awaitable<error_code> UpstreamPool::connect(UpstreamConnection& connection, std::string address,
                                                  std::chrono::microseconds limit) {
  error_code error = asio::error::invalid_argument;
  const auto parsed = parse_host_port(address);
  if (!parsed.ok()) co_return error;
  const auto endpoints = co_await resolve_all(*parsed, error);
  for (const auto& endpoint : endpoints) {
    connection.stream.expires_after(limit);
    co_await connection.stream.async_connect(endpoint, to(error));
    if (!error || error == asio::error::operation_aborted) break;
  }
  if (!error) {
    connection.stream.expires_never();
    error_code ignored;
    connection.stream.socket().set_option(tcp::no_delay(true), ignored);
  }
  co_return error;
}

void UpstreamPool::release(const std::string& address, std::unique_ptr<UpstreamConnection> connection) {
  drop_old();
  auto& connections = idle_[address];
  if (connections.size() >= kMaxIdlePerAddress) return;
  connection->reused = true;
  connection->idle_since = std::chrono::steady_clock::now();
  connections.push_back(std::move(connection));
}

std::size_t UpstreamPool::idle_count() const {
  std::size_t total = 0;
  for (const auto& [address, connections] : idle_) total += connections.size();
  return total;
}

// Without this, a connection to a dead worker would stay until its address came back.
void UpstreamPool::drop_old() {
  const auto oldest = std::chrono::steady_clock::now() - kMaxIdle;
  for (auto it = idle_.begin(); it != idle_.end();) {
    std::erase_if(it->second, [&](const auto& connection) { return connection->idle_since < oldest; });
    it = it->second.empty() ? idle_.erase(it) : std::next(it);
  }
}

asio::awaitable<std::size_t> read_body(UpstreamConnection& upstream, AnswerParser& parser, char* into, std::size_t size,
                                       error_code& error) {
  auto& body = parser.get().body();
  body.data = into;
  body.size = size;
  body.more = true;
  co_await http::async_read_some(upstream.stream, upstream.buffer, parser, to(error));
  if (error == http::error::need_buffer) error = {};
  co_return size - body.size;
}

asio::awaitable<std::vector<tcp::endpoint>> resolve_all(HostPort address, error_code& error) {
  error = {};
  std::vector<tcp::endpoint> endpoints;
  const auto numeric = asio::ip::make_address(address.host, error);
  if (!error) {
    endpoints.emplace_back(numeric, static_cast<std::uint16_t>(std::stoi(address.port)));
    co_return endpoints;
  }
  tcp::resolver resolver(co_await asio::this_coro::executor);
  const auto results = co_await resolver.async_resolve(address.host, address.port, to(error));
  if (error) co_return endpoints;
  for (const auto& result : results) endpoints.push_back(result.endpoint());
  co_return endpoints;
}

}  // namespace windlass::gateway
