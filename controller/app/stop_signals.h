// Calls a function when SIGTERM or SIGINT arrives, on a separate thread. It installs handlers instead of blocking the signals.
// Blocking is not safe: a library may start threads before main (OpenBLAS, a dependency of Cbc, does), and a signal to a thread
// that does not block it would end the process.
#pragma once

#include <csignal>
#include <functional>
#include <thread>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>

namespace windlass {

// While this object lives, SIGTERM and SIGINT do not end the process. At most one per process.
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
