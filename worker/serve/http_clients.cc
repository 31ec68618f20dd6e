// Small messages leave at once: without that, every answer would wait for the acknowledgement of the one before.
#include "worker/serve/http_clients.h"

#include <chrono>

#include <boost/asio/ip/tcp.hpp>

namespace windlass::worker {
namespace {

constexpr std::size_t kMostClients = 256;

}  // namespace

std::shared_ptr<web::http::client::http_client> HttpClients::to(const std::string& address, double timeout_s) {
  const std::scoped_lock lock(mutex_);
  const std::pair key(address, timeout_s);
  if (clients_.size() >= kMostClients && clients_.count(key) == 0) clients_.clear();  // whoever asks holds his own
  auto& client = clients_[key];
  if (client == nullptr) {
    web::http::client::http_client_config config;
    config.set_timeout(std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::duration<double>(timeout_s)));
    config.set_max_redirects(0);
    config.set_nativehandle_options([](web::http::client::native_handle handle) {
      boost::system::error_code ignored;  // then it is slower
      static_cast<boost::asio::ip::tcp::socket*>(handle)->set_option(boost::asio::ip::tcp::no_delay(true), ignored);
    });
    client = std::make_shared<web::http::client::http_client>(web::uri("http://" + address), config);
  }
  return client;
}

}  // namespace windlass::worker
