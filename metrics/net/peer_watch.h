// PeerWatch: notices that the peer of a connection leaves while the code waits for something else.
#pragma once

#include <functional>
#include <memory>

#include "metrics/net/stream.h"

namespace windlass::net {

// While it exists nobody may read from the stream. `left` is called once, on the stream's thread, if the peer closes its side.
// Writing may continue.
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
