// Prober: sends GET /v1/models to workers and tells the dispatcher when a worker's contact changes (contact.h). ProbeSchedule
// decides which workers to probe and how often. Any HTTP answer counts as contact; the controller decides whether a worker is
// ready.
//
// Keeps open connections to at most kMaxKept workers. A failure does not count when the gateway itself was delayed by more than
// kOwnDelayS. Runs on the shell's single thread.
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
  // Records that a byte arrived from the worker.
  void heard(const std::string& address);
  // Marks a request as being at that worker while the returned handle lives; the handle may outlive the prober.
  [[nodiscard]] std::shared_ptr<void> use(const std::string& address);

 private:
  static constexpr std::size_t kMaxKept = 512;
  static constexpr double kAddressesEveryS = 2;  // a worker that left the table is watched while it holds requests

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
  dispatch::TableVersion seen_;  // table version that the schedule has the addresses of
  double next_addresses_s_ = 0;
  bool stopped_ = false;
};

}  // namespace windlass::gateway
