// What an HttpServer lets one client, and all of them, take.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace windlass::net {

inline constexpr std::size_t kMaxBodyBytes = std::size_t{16} << 20U;
inline constexpr std::size_t kMaxAnswerBytes = std::size_t{64} << 20U;  // of a completion that is not streamed
inline constexpr std::size_t kMaxConnections = 16384;
inline constexpr std::size_t kMaxConnectionsPerPeer = 8192;

struct HttpLimits {
  std::uint32_t head_bytes = 16U << 10U;   // else 431
  std::size_t body_bytes = kMaxBodyBytes;  // of one request; else 413
  // Beyond these the connection that has waited longest without a whole head is closed for a new one; where all have requests
  // in hand, the new one is closed.
  std::size_t connections = kMaxConnections;
  std::size_t connections_per_peer = kMaxConnectionsPerPeer;
  std::chrono::milliseconds head_time{10'000};  // from a head's first byte to its last
  std::chrono::milliseconds body_time{30'000};  // from there to the body's last
  std::chrono::milliseconds idle_time{75'000};  // between two requests
};

}  // namespace windlass::net
