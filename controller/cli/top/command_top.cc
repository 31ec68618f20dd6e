// `windlass top` and `windlass wait`: show a live table of a running Windlass, or wait until a service is stable.
#include <csignal>
#include <fstream>
#include <memory>
#include <ostream>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <unistd.h>

#include "controller/cli/console/commands.h"
#include "controller/cli/console/duration_check.h"
#include "controller/cli/console/service_name.h"
#include "controller/cli/live/endpoints.h"
#include "controller/cli/live/held_signals.h"
#include "controller/cli/live/live_display.h"
#include "controller/cli/live/observer.h"
#include "controller/cli/top/terminal_screen.h"
#include "controller/cli/top/top_screen.h"
#include "metrics/host/clock.h"

namespace windlass::cli {
namespace {

struct TopOptions {
  EndpointOptions endpoints;
  std::string interval = "1s";
  std::string record;
  bool once = false;
};

// Polls a running Windlass and records it. When it cannot be reached, reads its endpoints again: a restart may have changed its
// ports.
class Watch {
 public:
  Watch(const EndpointOptions& options, Endpoints endpoints, std::ostream& record)
      : options_(options),
        endpoints_(std::move(endpoints)),
        record_(record),
        observer_(std::make_unique<Observer>(endpoints_)) {}

  Result<void> look() {
    const double now = monotonic_s();
    if (auto seen = observer_->observe(now, view_); !seen.ok()) {
      if (const auto found = options_.resolve(); found.ok() && *found != endpoints_) {
        endpoints_ = *found;
        observer_ = std::make_unique<Observer>(endpoints_);
      }
      return seen;
    }
    seen_s_ = now;
    for (const auto& row : view_.rows()) record_ << csv_line(elapsed_s(), row);
    record_.flush();
    return {};
  }

  [[nodiscard]] const std::vector<ServiceRow>& rows() const { return view_.rows(); }
  [[nodiscard]] double seen_s() const { return seen_s_; }  // time of the last successful poll, or of the start
  [[nodiscard]] double elapsed_s() const { return seen_s_ - start_s_; }

 private:
  const EndpointOptions& options_;
  Endpoints endpoints_;
  std::ostream& record_;
  std::unique_ptr<Observer> observer_;
  LiveView view_;
  double start_s_ = monotonic_s();
  double seen_s_ = start_s_;
};

// Runs until q, Esc, Ctrl-C or the end of the terminal.
void on_terminal(Watch& watch, TerminalScreen& terminal, double interval_s) {
  TopScreen screen;
  std::string trouble;
  double next_s = 0;
  while (true) {
    if (monotonic_s() >= next_s) {
      const auto seen = watch.look();
      trouble = seen.ok() ? "" : seen.error().message;
      if (seen.ok()) screen.take(watch.rows());
      next_s = monotonic_s() + interval_s;
    }
    const std::string problem =
        trouble.empty() ? "" : fmt::format("no data for {:.0f} s: {}", monotonic_s() - watch.seen_s(), trouble);
    const auto [columns, lines] = terminal.size();
    terminal.draw(screen.lines(columns, lines, problem));
    const ScreenEvent event = terminal.wait(next_s - monotonic_s());
    if (event.kind == ScreenEvent::Kind::kEnd) return;
    if (event.kind != ScreenEvent::Kind::kKey) continue;
    if (event.key == 'q' || event.key == 'Q' || event.key == kKeyEscape) return;
    (void)screen.press(event.key);
  }
}

Result<void> top(const TopOptions& options, Console& console) {
  WINDLASS_ASSIGN_OR_RETURN(const Endpoints endpoints, options.endpoints.resolve());
  std::ofstream record;
  if (!options.record.empty()) {
    record.open(options.record, std::ios::trunc);
    if (!record) return Error{ErrorCode::kNotFound, "--record: must be a writable file (got " + options.record + ")"};
    record << csv_header();
  }
  Watch watch(options.endpoints, endpoints, record);
  if (options.once) {
    WINDLASS_RETURN_IF_ERROR(watch.look());
    console.out << table_text(watch.rows());
    return {};
  }
  const double interval_s = std::max(0.1, duration_s(options.interval));
  if (console.terminal) {
    WINDLASS_ASSIGN_OR_RETURN(const auto terminal, TerminalScreen::open(STDIN_FILENO, STDOUT_FILENO));
    on_terminal(watch, *terminal, interval_s);
    return {};
  }
  const HeldSignals ends{SIGINT, SIGTERM};
  LiveDisplay display(console);
  do {
    if (const auto seen = watch.look(); !seen.ok()) {
      display.say(seen.error().message);
    } else {
      display.show(watch.elapsed_s(), watch.rows());
    }
  } while (console.out && ends.within_s(interval_s) == 0);
  return {};
}

struct WaitOptions {
  EndpointOptions endpoints;
  ServiceName service;
  int workers = -1;
  std::string timeout = "5m";
};

// Stable: all desired workers are ready, and none is starting or draining.
bool at_rest(const ServiceRow& row, int workers) {
  const bool enough = workers < 0 ? row.desired > 0 : row.desired == workers;
  return enough && row.ready == row.desired && row.starting == 0 && row.draining == 0;
}

Result<std::string> wait(const WaitOptions& options) {
  const HeldSignals ends{SIGINT, SIGTERM};
  const double start = monotonic_s();
  const double timeout = duration_s(options.timeout);
  std::string last = "no data about it";
  do {
    // Resolve each time: `windlass up` may still be starting.
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
      return Error{ErrorCode::kNotFound, fmt::format("{}: must be an existing ModelService; the controller has: {}",
                                                     options.service.text(), known.empty() ? "none" : known)};
    }
  } while (monotonic_s() - start <= timeout && ends.within_s(0.25) == 0);
  return Error{ErrorCode::kDeadlineExceeded, fmt::format("{}: gave up after {:.0f}s of the {} timeout: {}",
                                                         options.service.text(), monotonic_s() - start, options.timeout, last)};
}

}  // namespace

void add_top(CLI::App& app, CommandContext& context) {
  auto* command = app.add_subcommand("top", "Show workers, load, latency and SLO attainment of a running Windlass, live");
  auto options = std::make_shared<TopOptions>();
  options->endpoints.add_to(*command);
  command->add_option("--interval", options->interval, "Time between updates")->check(duration_check())->capture_default_str();
  command->add_option("--record", options->record, "Also write every update to this CSV file");
  command->add_flag("--once", options->once, "Print one update and exit");
  command->callback([&context, options] {
    if (const auto done = top(*options, context.console); !done.ok()) {
      context.console.err << "windlass top: " << done.error().message << "\n";
      context.exit_code = kFailed;
    }
  });
}

void add_wait(CLI::App& app, CommandContext& context) {
  auto* command = app.add_subcommand("wait", "Wait until all workers of a service are ready and none is starting or stopping");
  auto options = std::make_shared<WaitOptions>();
  options->service.add_to(*command);
  options->endpoints.add_to(*command);
  command->add_option("--workers", options->workers, "Wait for exactly this many workers")->check(CLI::Range(0, 1'000'000));
  command->add_option("--timeout", options->timeout, "Give up and fail after this time")
      ->check(duration_check())
      ->capture_default_str();
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
