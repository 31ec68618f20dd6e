// Prober: asks every worker that requests go to for its /health, several times a second, and tells the dispatcher whose contact
// changed (contact.h). Any HTTP answer is an answer: whether a worker is ready is the controller's to say.
//
// One coroutine for each address, over one kept connection; workers from whom bytes come anyway are not asked. A failure that
// is our own delay (the gateway was held up longer than kOwnDelayS) does not count. One thread, as all of the shell.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>

#include "gateway/contact.h"
#include "gateway/dispatcher.h"
#include "gateway/http_upstream.h"
#include "gateway/net.h"

namespace windlass::gateway {

class Prober {
 public:
  Prober(asio::io_context& io, Dispatcher& dispatcher, UpstreamPool& pool);

  void start();
  void stop();
  // A byte of an answer came from there.
  void heard(const std::string& address);

 private:
  struct Target {
    explicit Target(double now_s) : tracker(now_s) {}
    ContactTracker tracker;
    bool wanted = true;
  };

  asio::awaitable<void> run();
  asio::awaitable<void> watch(std::string address, std::shared_ptr<Target> target);
  asio::awaitable<Probe> probe(const std::string& address, std::unique_ptr<UpstreamConnection>& kept, bool& counts);
  void tell(const std::string& address, Contact before, Contact now);

  asio::io_context& io_;
  Dispatcher& dispatcher_;
  UpstreamPool& pool_;
  asio::steady_timer timer_;
  std::map<std::string, std::shared_ptr<Target>> targets_;
  bool stopped_ = false;
};

}  // namespace windlass::gateway
