// TableClient: long-polls the routing table from whichever controller leads, for as long as the gateway runs.
//
// It goes through all addresses of all controllers (names are resolved anew on every round), stays with the one that answers,
// and waits with jittered, growing pauses only after a whole round in which none did. Its poll tells the controller who we are,
// where our metrics stand and which version we obey. The last good table stays in use whatever happens here.
#pragma once

#include <functional>
#include <random>
#include <string>
#include <vector>

#include "gateway/net.h"
#include "gateway/options.h"
#include "planner/dispatch/routing_table.h"

namespace windlass::gateway {

struct TableClientOptions {
  std::vector<HostPort> controllers;
  std::string id;
  std::string advertise;  // HOST:PORT of the admin side
  double wait_s = 20;     // asked for in a poll
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
  asio::awaitable<bool> poll_while_good(HostPort controller, tcp::endpoint endpoint);
  asio::awaitable<Outcome> poll_once(HostPort controller);
  asio::awaitable<void> pause(double seconds);

  asio::io_context& io_;
  TableClientOptions options_;
  std::function<bool(dispatch::RoutingTable)> on_table_;
  std::function<dispatch::TableVersion()> version_;
  beast::tcp_stream stream_;
  beast::flat_buffer buffer_;
  asio::steady_timer timer_;
  std::minstd_rand random_;
  bool stopped_ = false;
  std::string last_problem_;  // logged once until it changes
};

}  // namespace windlass::gateway
