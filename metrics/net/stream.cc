// TLS handshakes and shutdown.
#include "metrics/net/stream.h"

#include <boost/asio/ssl/host_name_verification.hpp>

namespace windlass::net {
namespace {

constexpr auto kHandshakeTimeout = std::chrono::seconds(10);
constexpr auto kGoodbyeTimeout = std::chrono::seconds(1);

}  // namespace

asio::awaitable<error_code> Stream::accept_tls(std::shared_ptr<ssl::context> context) {
  context_ = std::move(context);
  tls_.emplace(tcp_, *context_);
  error_code error;
  tcp_.expires_after(kHandshakeTimeout);
  co_await tls_->async_handshake(ssl::stream_base::server, to(error));
  tcp_.expires_never();
  co_return error;
}

asio::awaitable<error_code> Stream::connect_tls(std::shared_ptr<ssl::context> context, std::string name) {
  context_ = std::move(context);
  tls_.emplace(tcp_, *context_);
  error_code error;
  error_code numeric;
  asio::ip::make_address(name, numeric);
  // SNI allows names only, no addresses.
  if (numeric) SSL_set_tlsext_host_name(tls_->native_handle(), name.c_str());
  tls_->set_verify_mode(ssl::verify_peer);
  tls_->set_verify_callback(ssl::host_name_verification(name));
  tcp_.expires_after(kHandshakeTimeout);
  co_await tls_->async_handshake(ssl::stream_base::client, to(error));
  tcp_.expires_never();
  co_return error;
}

asio::awaitable<void> Stream::end_tls() {
  if (!tls_.has_value() || !tcp_.socket().is_open()) co_return;
  error_code ignored;
  tcp_.expires_after(kGoodbyeTimeout);
  co_await tls_->async_shutdown(to(ignored));
  tcp_.expires_never();
}

void Stream::close() {
  error_code ignored;
  tcp_.socket().close(ignored);
  tls_.reset();
}

}  // namespace windlass::net
