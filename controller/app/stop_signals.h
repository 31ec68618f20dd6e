// SIGTERM and SIGINT as calls on a thread of their own. Handlers rather than blocked signals: a library may start threads
// before main does anything (OpenBLAS, which Cbc brings along, does), and a signal that meets a thread without the mask would
// end the process.
#pragma once

#include <csignal>
#include <functional>
#include <thread>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>

namespace windlass {

// While it lives, no SIGTERM or SIGINT ends the process. One per process at a time.
class StopSignals {
 public:
  explicit StopSignals(std::function<void()> on_signal)
      : on_signal_(std::move(on_signal)), signals_(io_, SIGTERM, SIGINT), thread_([this] {
          wait();
          io_.run();
        }) {}
  ~StopSignals() {
    io_.stop();
    thread_.join();
  }
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

 private:
  void wait() {
    signals_.async_wait([this](const boost::system::error_code& error, int /*signal*/) {
      if (error) return;
      on_signal_();
      wait();
    });
  }

  std::function<void()> on_signal_;
  boost::asio::io_context io_{1};
  boost::asio::signal_set signals_;
  std::thread thread_;
};

}  // namespace windlass
