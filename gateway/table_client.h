// TableClient: long-polls the routing table from the leading controller for as long as the gateway runs.
//
// It tries all addresses of all controllers (names are resolved again in every round) and stays with the one that answers. It
// pauses, with jitter and growing delays, only after a whole round without an answer. Each poll tells the controller the
// gateway's id, its metrics address, its table version and its load. The last good table stays in use whatever happens here.
// Reading a table of ten thousand chains takes a tenth of a second, so a separate thread does it while streams go on;
// everything else runs on the io_context.
#pragma once

#include <functional>
#include <random>
#include <string>
#include <vector>

#include <boost/asio/thread_pool.hpp>

#include "gateway/net.h"
#include "gateway/options.h"
#include "planner/dispatch/routing_table.h"

namespace windlass::gateway {

struct TableClientOptions {
  std::vector<Url> controllers;
  std::string id;
  std::string advertise;   // HOST:PORT of the admin side
  bool admin_tls = false;  // the admin side uses TLS
  double wait_s = 2;       // long-poll wait; each poll also reports our load, by which slots are shared
  std::function<std::shared_ptr<ssl::context>()> tls = nullptr;  // for https; REQUIRES: set where a controller is at https
  std::function<std::string()> token = nullptr;                  // sent as a bearer token; null: none
  std::function<std::string()> load = nullptr;                   // the X-Windlass-Load header (load_report.h); null: none
  std::function<std::string()> over_share = nullptr;             // the X-Windlass-Over-Share header; null: none
};

class TableClient {
 public:
  // Calls on_table with every table that a controller sends; it returns true when the table was newer than the one in use.
  // version() gives the `after` parameter.
  TableClient(asio::io_context& io, TableClientOptions options, std::function<bool(dispatch::RoutingTable)> on_table,
              std::function<dispatch::TableVersion()> version);

  // Runs until stop().
  void start();
  void stop();

 private:
  enum class Outcome { kNews, kNothingNew, kFailed };

  asio::awaitable<void> run();
  // Polls one address until it fails; returns true when it answered at least once.
  asio::awaitable<bool> poll_while_good(Url controller, tcp::endpoint endpoint);
  asio::awaitable<Outcome> poll_once(Url controller);
  asio::awaitable<Result<dispatch::RoutingTable>> read_table(std::string text);
  Outcome complain(const Url& controller, const std::string& problem);
  asio::awaitable<void> pause(double seconds);

  asio::io_context& io_;
  TableClientOptions options_;
  std::function<bool(dispatch::RoutingTable)> on_table_;
  std::function<dispatch::TableVersion()> version_;
  Stream stream_;
  beast::flat_buffer buffer_;
  asio::steady_timer timer_;
  std::minstd_rand random_;
  bool stopped_ = false;
  std::string last_problem_;     // logged only when it changes
  asio::thread_pool reader_{1};  // reads tables; last member, so destroyed before what its thread uses
};

}  // namespace windlass::gateway
