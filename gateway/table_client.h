// TableClient: long-polls the routing table from whichever controller leads, for as long as the gateway runs.
//
// It goes through all addresses of all controllers (names are resolved anew on every round), stays with the one that answers,
// and waits with jittered, growing pauses only after a whole round in which none did. Its poll tells the controller who we are,
// where our metrics stand, which version we obey and what we have to do. The last good table stays in use whatever happens
// here. A table of ten thousand chains takes a tenth of a second to read, so that is done on a thread of its own and the
// streams go on meanwhile; everything else here runs on the io_context.
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
  bool admin_tls = false;  // which speaks TLS
  double wait_s = 2;       // asked for in a poll; what we have to do is told with each, and slots follow it
  std::function<std::shared_ptr<ssl::context>()> tls = nullptr;  // for https; REQUIRES: set where a controller is at https
  std::function<std::string()> token = nullptr;                  // sent as a bearer token; null: none
  std::function<std::string()> load = nullptr;                   // the X-Windlass-Load header (load_report.h); null: none
  std::function<std::string()> over_share = nullptr;             // the X-Windlass-Over-Share header; null: none
};

class TableClient {
 public:
  // on_table is called with every table that a controller sends; true: it was newer than the one in use.
  // version() is what `after` says.
  TableClient(asio::io_context& io, TableClientOptions options, std::function<bool(dispatch::RoutingTable)> on_table,
              std::function<dispatch::TableVersion()> version);

  // Runs until stop().
  void start();
  void stop();

 private:
  enum class Outcome { kNews, kNothingNew, kFailed };

  asio::awaitable<void> run();
  // Polls one address until it fails; true when it answered at least once.
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
  std::string last_problem_;     // logged once until it changes
  asio::thread_pool reader_{1};  // reads tables; the last member, so that it has ended before what it works for
};

}  // namespace windlass::gateway
