// The limits of an HttpServer, per client and in total.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace windlass::net {

inline constexpr std::size_t kMaxBodyBytes = std::size_t{16} << 20U;
inline constexpr std::size_t kMaxAnswerBytes = std::size_t{64} << 20U;  // of an answer that is not streamed
inline constexpr std::size_t kMaxConnections = 16384;
inline constexpr std::size_t kMaxConnectionsPerPeer = 8192;

struct HttpLimits {
  std::uint32_t head_bytes = 16U << 10U;   // beyond: 431
  std::size_t body_bytes = kMaxBodyBytes;  // per request; beyond: 413
  // Beyond these, a new connection replaces the one that has waited longest without a complete head. If all connections have a
  // running request, the new one is closed.
  std::size_t connections = kMaxConnections;
  std::size_t connections_per_peer = kMaxConnectionsPerPeer;
  std::chrono::milliseconds head_time{10'000};  // from the first byte of a head to its last
  std::chrono::milliseconds body_time{30'000};  // from there to the last byte of the body
  std::chrono::milliseconds idle_time{75'000};  // between two requests
};

}  // namespace windlass::net
