// Prober: asks workers that requests go to for their /health and tells the dispatcher whose contact changed (contact.h). Whom
// and how often is the ProbeSchedule's to say. Any HTTP answer is an answer: whether a worker is ready is the controller's to
// say.
//
// Connections are kept for up to kMaxKept workers. A failure that is our own delay (the gateway was held up longer than
// kOwnDelayS) does not count. One thread, as all of the shell.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "gateway/dispatcher.h"
#include "gateway/http_upstream.h"
#include "gateway/net.h"
#include "gateway/probe_schedule.h"

namespace windlass::gateway {

class Prober {
 public:
  Prober(asio::io_context& io, Dispatcher& dispatcher, UpstreamPool& pool);

  void start();
  void stop();
  // A byte of an answer came from there.
  void heard(const std::string& address);
  // A request is at that worker for as long as what is returned lives; it may outlive the prober.
  [[nodiscard]] std::shared_ptr<void> use(const std::string& address);

 private:
  static constexpr std::size_t kMaxKept = 512;
  static constexpr double kAddressesEveryS = 2;  // a worker that has left the table is watched until it holds no request

  asio::awaitable<void> run();
  void look_for_addresses();
  asio::awaitable<void> ask(ProbeSchedule::TargetPtr target);
  asio::awaitable<Probe> probe(const std::string& address, std::unique_ptr<UpstreamConnection>& kept, bool& counts);
  void tell(const std::string& address, Contact before, Contact now);

  asio::io_context& io_;
  Dispatcher& dispatcher_;
  UpstreamPool& pool_;
  asio::steady_timer timer_;
  ProbeSchedule schedule_;
  std::map<std::string, std::unique_ptr<UpstreamConnection>> kept_;
  dispatch::TableVersion seen_;  // whose addresses the schedule has
  double next_addresses_s_ = 0;
  bool stopped_ = false;
};

}  // namespace windlass::gateway
