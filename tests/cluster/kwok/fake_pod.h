// FakePod: a worker's container as seen over the network. It listens on its pod's own address, answers OpenAI's API with the
// latencies of the planner's model, and serves /health, /ready and /metrics like windlass-worker.
//
// A response has as many words as the request asks tokens for. A draining pod finishes its requests and refuses new ones; a
// killed pod breaks every connection, like a killed process. Runs on its io_context's one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>  // Asio 1.18's awaitable.h uses std::exchange without it

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/beast/http/string_body.hpp>
#include <nlohmann/json.hpp>

#include "metrics/bundles.h"
#include "planner/base/result.h"
#include "tests/cluster/kwok/fake_engine.h"

namespace windlass::testing {

struct FakePodOptions {
  std::string name;
  std::string served_name;
  std::string address;  // "127.64.3.1"
  int port = 8000;
  FakeEngineOptions engine;
};

class FakePod : public std::enable_shared_from_this<FakePod> {
 public:
  FakePod(boost::asio::io_context& io, FakePodOptions options);
  ~FakePod();

  // kUnavailable: cannot listen on the address.
  [[nodiscard]] Result<void> open();
  void drain() { draining_ = true; }
  // The requests this breaks are counted in broken().
  void kill();

  [[nodiscard]] const FakePodOptions& options() const { return options_; }
  [[nodiscard]] int in_flight() const { return static_cast<int>(requests_.size()); }
  [[nodiscard]] static std::int64_t broken();  // over all pods of this process

 private:
  using Tcp = boost::asio::ip::tcp;
  using Stream = boost::beast::tcp_stream;
  using Message = boost::beast::http::request<boost::beast::http::string_body>;
  struct Request;
  struct Asked;

  boost::asio::awaitable<void> accept_loop();
  boost::asio::awaitable<void> session(Tcp::socket socket);
  boost::asio::awaitable<bool> answer(Stream& stream, const Message& message);
  boost::asio::awaitable<bool> generate(Stream& stream, const Message& message);
  std::string submit(const nlohmann::json& body, std::int64_t id, Asked& asked);
  std::string take_ready(Request& request, Asked& asked);
  [[nodiscard]] static std::string event_of(const Asked& asked, const Emission& piece);
  [[nodiscard]] static std::string last_events(const Asked& asked);
  [[nodiscard]] static nlohmann::json whole_answer(const Asked& asked);
  void tick();
  std::string metrics_page();

  boost::asio::io_context& io_;
  FakePodOptions options_;
  FakeEngine engine_;
  Tcp::acceptor acceptor_;
  boost::asio::steady_timer timer_;
  std::map<std::int64_t, Request*> requests_;
  std::set<Stream*> streams_;
  std::int64_t next_ = 0;
  bool draining_ = false;
  bool gone_ = false;
  std::unique_ptr<metrics::Registry> registry_;
  std::unique_ptr<metrics::WorkerMetrics> metrics_;
};

}  // namespace windlass::testing
