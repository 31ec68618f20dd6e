// Small messages leave at once: without that, every answer would wait for the acknowledgement of the one before.
#include "worker/serve/http_clients.h"

#include <charconv>
#include <chrono>
#include <optional>
#include <stdexcept>

#include <boost/asio/ip/tcp.hpp>
#include <cpprest/containerstream.h>
#include <fmt/core.h>

#include "worker/serve/exchange.h"

namespace windlass::worker {
namespace {

constexpr std::size_t kMostClients = 256;
constexpr std::string_view kNotSent = "Failed to write request";  // as cpprestsdk has it, of headers and of bodies

// The bytes that a body is said to have; nullopt where they come in chunks, or until the connection ends.
std::optional<std::size_t> said_bytes(const web::http::http_headers& headers) {
  const std::string length = header_of(headers, "Content-Length");
  std::size_t bytes = 0;
  const auto [end, failure] = std::from_chars(length.data(), length.data() + length.size(), bytes);
  if (failure != std::errc{} || end != length.data() + length.size()) return std::nullopt;
  if (!header_of(headers, "Transfer-Encoding").empty()) return std::nullopt;
  return bytes;
}

}  // namespace

pplx::task<WorkerAnswer> HttpClients::ask(const std::string& address, std::function<web::http::http_request()> make,
                                          double timeout_s, std::size_t most_bytes) {
  return ask_once(address, make(), timeout_s, most_bytes)
      .then([self = shared_from_this(), address, make = std::move(make), timeout_s,
             most_bytes](const pplx::task<WorkerAnswer>& done) {
        try {
          return pplx::task_from_result(done.get());
        } catch (const web::http::http_exception& e) {
          if (!std::string_view(e.what()).starts_with(kNotSent)) throw;
        }
        self->forget(address, timeout_s);
        return self->ask_once(address, make(), timeout_s, most_bytes);
      });
}

void HttpClients::forget(const std::string& address, double timeout_s) {
  const std::scoped_lock lock(mutex_);
  clients_.erase({address, timeout_s});  // and with it the connections that it keeps
}

pplx::task<WorkerAnswer> HttpClients::ask_once(const std::string& address, const web::http::http_request& request,
                                               double timeout_s, std::size_t most_bytes) {
  pplx::cancellation_token_source connection;
  return to(address, timeout_s)
      ->request(request, connection.get_token())
      .then([connection, most_bytes](const web::http::http_response& head) {
        const auto bytes = said_bytes(head.headers());
        if (!bytes || *bytes > most_bytes) {
          connection.cancel();
          throw std::runtime_error(fmt::format("Content-Length: found {}, allowed is at most {}",
                                               bytes ? std::to_string(*bytes) : "no whole number", most_bytes));
        }
        concurrency::streams::container_buffer<std::string> body;
        return head.body().read_to_end(body).then([head, body](std::size_t) mutable {
          return WorkerAnswer{head, std::move(body.collection())};
        });
      });
}

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
