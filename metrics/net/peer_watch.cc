// Waits for bytes, and once there are bytes polls: a peer that pipelines its next request, or closes TLS, has bytes to read,
// and the end of the stream behind them cannot be awaited.
#include "metrics/net/peer_watch.h"

#include <utility>

#include <poll.h>

namespace windlass::net {
namespace {

constexpr auto kLookPeriod = std::chrono::milliseconds(200);

}  // namespace

struct PeerWatch::State {
  tcp::socket* socket = nullptr;  // null: the watch is over
  std::function<void()> left;

  void call() {
    if (std::exchange(socket, nullptr) != nullptr) left();
  }

  static asio::awaitable<void> look(std::shared_ptr<State> state) {
    if (state->socket == nullptr) co_return;  // it ended before this began
    asio::steady_timer timer(state->socket->get_executor());
    while (state->socket != nullptr) {
      error_code ignored;
      timer.expires_after(kLookPeriod);
      co_await timer.async_wait(to(ignored));
      if (state->socket == nullptr) co_return;
      pollfd now{state->socket->native_handle(), POLLRDHUP, 0};
      if (::poll(&now, 1, 0) > 0) state->call();
    }
  }
};

PeerWatch::PeerWatch(Stream& stream, std::function<void()> left) : state_(std::make_shared<State>()) {
  state_->socket = &stream.socket();
  state_->left = std::move(left);
  stream.socket().async_wait(tcp::socket::wait_read, [state = state_](const error_code& error) {
    if (error || state->socket == nullptr) return;
    char byte = 0;
    error_code peeked;
    state->socket->receive(asio::buffer(&byte, 1), tcp::socket::message_peek, peeked);
    if (peeked) {
      state->call();
    } else {
      asio::co_spawn(state->socket->get_executor(), State::look(state), asio::detached);
    }
  });
}

PeerWatch::~PeerWatch() {
  tcp::socket* socket = std::exchange(state_->socket, nullptr);
  if (socket == nullptr || !socket->is_open()) return;
  error_code ignored;
  socket->cancel(ignored);
}

}  // namespace windlass::net
