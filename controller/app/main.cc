// The program windlass-controller: parses flags, handles signals and runs the composition root.
#include <csignal>
#include <iostream>

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include "controller/app/app.h"
#include "controller/app/stop_signals.h"

int main(int argc, char** argv) {
  const auto flags = windlass::controller::parse_flags(argc, argv);
  if (flags.exit_status) return *flags.exit_status;
  spdlog::set_default_logger(spdlog::stderr_logger_mt("windlass-controller"));
  spdlog::set_level(spdlog::level::from_str(flags.options.log_level == "error" ? "err" : flags.options.log_level));

  std::signal(SIGPIPE, SIG_IGN);

  windlass::controller::Waker waker;
  bool asked = false;
  const windlass::StopSignals signals([&] {
    if (asked) _exit(130);  // a second signal ends the process immediately
    asked = true;
    waker.stop();
  });

  if (const auto result = windlass::controller::run(flags.options, waker); !result.ok()) {
    std::cerr << "windlass-controller: " << result.error().message << "\n";
    return 1;
  }
  return 0;
}
