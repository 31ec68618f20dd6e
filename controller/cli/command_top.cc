// `windlass top`: the live table of a running Windlass. `windlass wait`: until a service has come to rest.
#include <chrono>
#include <csignal>
#include <ctime>
#include <fstream>
#include <ostream>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <unistd.h>

#include "controller/cli/clock.h"
#include "controller/cli/commands.h"
#include "controller/cli/duration_check.h"
#include "controller/cli/endpoints.h"
#include "controller/cli/live_display.h"
#include "controller/cli/observer.h"
#include "controller/cli/service_name.h"

namespace windlass::cli {
namespace {

// Sleeps between two looks; false when SIGINT or SIGTERM came instead. REQUIRES: both are blocked (block_signals).
bool wait_s(double seconds) {
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGINT);
  sigaddset(&ends, SIGTERM);
  const timespec wait{static_cast<time_t>(seconds),
                      static_cast<long>((seconds - static_cast<double>(static_cast<time_t>(seconds))) * 1e9)};
  return sigtimedwait(&ends, nullptr, &wait) < 0;
}

void block_signals() {
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGINT);
  sigaddset(&ends, SIGTERM);
  sigprocmask(SIG_BLOCK, &ends, nullptr);
}

struct TopOptions {
  EndpointOptions endpoints;
  std::string interval = "1s";
  std::string record;
  bool once = false;
};

Result<void> top(const TopOptions& options, Console& console) {
  block_signals();
  WINDLASS_ASSIGN_OR_RETURN(const Endpoints endpoints, options.endpoints.resolve());
  std::ofstream record;
  if (!options.record.empty()) {
    record.open(options.record, std::ios::trunc);
    if (!record) return Error{ErrorCode::kNotFound, "--record: " + options.record + ": cannot be written"};
    record << csv_header();
  }
  Observer observer(endpoints);
  LiveView view;
  if (options.once) {
    WINDLASS_RETURN_IF_ERROR(observer.observe(monotonic_s(), view));
    console.out << table_text(view.rows());
    for (const auto& row : view.rows()) record << csv_line(0, row);
    return {};
  }
  LiveDisplay display(console);
  const double start = monotonic_s();
  do {
    const double now = monotonic_s();
    if (const auto seen = observer.observe(now, view); !seen.ok()) {
      display.say(seen.error().message);
      continue;
    }
    display.show(now - start, view.rows());
    for (const auto& row : view.rows()) record << csv_line(now - start, row);
    record.flush();
  } while (console.out && wait_s(std::max(0.1, duration_s(options.interval))));
  return {};
}

struct WaitOptions {
  EndpointOptions endpoints;
  ServiceName service;
  int workers = -1;
  std::string timeout = "5m";
};

// At rest: as many are ready as are wanted, and none is coming or going.
bool at_rest(const ServiceRow& row, int workers) {
  const bool enough = workers < 0 ? row.desired > 0 : row.desired == workers;
  return enough && row.ready == row.desired && row.starting == 0 && row.draining == 0;
}

Result<std::string> wait(const WaitOptions& options) {
  block_signals();
  const double start = monotonic_s();
  const double timeout = duration_s(options.timeout);
  std::string last = "nothing was seen of it";
  do {
    // Read anew each time: `windlass up` may still be on its way.
    const auto endpoints = options.endpoints.resolve();
    if (!endpoints.ok()) {
      last = endpoints.error().message;
      continue;
    }
    Observer observer(*endpoints);
    LiveView view;
    if (const auto seen = observer.observe(monotonic_s(), view); !seen.ok()) {
      last = seen.error().message;
      continue;
    }
    bool found = false;
    for (const auto& row : view.rows()) {
      if (row.name != options.service.name || row.name_space != options.service.name_space) continue;
      found = true;
      last = state_text(row);
      if (at_rest(row, options.workers)) return last;
    }
    if (!found) {
      std::string known;
      for (const auto& row : view.rows()) known += (known.empty() ? "" : ", ") + row.title();
      return Error{ErrorCode::kNotFound, fmt::format("{}: found no such ModelService; the controller knows: {}",
                                                     options.service.text(), known.empty() ? "none" : known)};
    }
  } while (monotonic_s() - start <= timeout && wait_s(0.25));
  return Error{ErrorCode::kDeadlineExceeded, fmt::format("{}: gave up after {:.0f}s of {}: {}", options.service.text(),
                                                         monotonic_s() - start, options.timeout, last)};
}

}  // namespace

void add_top(CLI::App& app, CommandContext& context) {
  auto* command = app.add_subcommand("top", "Show workers, load, latency and attainment of a running Windlass, live");
  auto options = std::make_shared<TopOptions>();
  options->endpoints.add_to(*command);
  command->add_option("--interval", options->interval, "Time between two looks")
      ->check(duration_check())
      ->capture_default_str();
  command->add_option("--record", options->record, "Also write every look to this file, as CSV");
  command->add_flag("--once", options->once, "Look once");
  command->callback([&context, options] {
    if (const auto done = top(*options, context.console); !done.ok()) {
      context.console.err << "windlass top: " << done.error().message << "\n";
      context.exit_code = kFailed;
    }
  });
}

void add_wait(CLI::App& app, CommandContext& context) {
  auto* command = app.add_subcommand("wait", "Wait until a service's workers are all ready and none is coming or going");
  auto options = std::make_shared<WaitOptions>();
  options->service.add_to(*command);
  options->endpoints.add_to(*command);
  command->add_option("--workers", options->workers, "Wait for exactly so many workers")->check(CLI::Range(0, 1'000'000));
  command->add_option("--timeout", options->timeout, "Fail after this time")->check(duration_check())->capture_default_str();
  command->callback([&context, options] {
    const auto state = wait(*options);
    if (!state.ok()) {
      context.console.err << "windlass wait: " << state.error().message << "\n";
      context.exit_code = kFailed;
      return;
    }
    context.console.out << *state << "\n";
  });
}

}  // namespace windlass::cli
