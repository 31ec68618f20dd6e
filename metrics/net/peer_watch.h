// PeerWatch: notices that the peer of a connection leaves while something else is awaited.
#pragma once

#include <functional>
#include <memory>

#include "metrics/net/stream.h"

namespace windlass::net {

// As long as it lives nobody reads from the stream, and `left` is called once, from the stream's thread, should the peer close
// its side. Writing may go on beside it.
class PeerWatch {
 public:
  PeerWatch(Stream& stream, std::function<void()> left);
  ~PeerWatch();
  PeerWatch(const PeerWatch&) = delete;
  PeerWatch& operator=(const PeerWatch&) = delete;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace windlass::net
