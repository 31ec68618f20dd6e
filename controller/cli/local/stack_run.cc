// Starts a stack, watches it and stops it; see stack_run.h.
#include "controller/cli/local/stack_run.h"

#include <ostream>

#include <fmt/format.h>

#include "controller/cli/live/held_signals.h"
#include "controller/cli/live/live_display.h"
#include "controller/cli/live/observer.h"
#include "metrics/host/clock.h"

namespace windlass::cli {
namespace {

// Holds SIGINT, SIGTERM and SIGHUP so that they only take effect where we poll for them. SIGCHLD ends a wait early.
class EndSignals {
 public:
  // Waits until a signal arrives, a child ends or the time is over. Returns whether a signal asked us to stop.
  [[nodiscard]] bool within_s(double seconds) const {
    const int number = held_.within_s(seconds);
    return number != 0 && number != SIGCHLD;
  }

 private:
  HeldSignals held_{SIGINT, SIGTERM, SIGHUP, SIGCHLD};
};

std::string request_example(const std::vector<api::Object>& objects, const Endpoints& endpoints) {
  for (const auto& object : objects) {
    const auto* service = std::get_if<api::ModelService>(&object.value);
    if (!service) continue;
    return fmt::format(
        "Send requests to {} (OpenAI API):\n"
        "  curl {}/v1/chat/completions -H 'Content-Type: application/json' \\\n"
        "    -d '{{\"model\": \"{}\", \"max_tokens\": 16, \"messages\": [{{\"role\": \"user\", \"content\": \"Hello\"}}]}}'\n",
        endpoints.gateway_url, endpoints.gateway_url, service->served_name());
  }
  return {};
}

// Waits until both programs answer. Error: why they never will.
Result<void> wait_until_up(LocalStack& stack, Observer& observer, const EndSignals& signals) {
  constexpr double kPatienceS = 30;
  const double deadline = monotonic_s() + kPatienceS;
  const auto& endpoints = stack.endpoints();
  while (!observer.answers(endpoints.controller_url + "/healthz") ||
         !observer.answers(endpoints.gateway_admin_urls[0] + "/health")) {
    if (const auto trouble = stack.trouble()) return Error{ErrorCode::kUnavailable, *trouble};
    if (monotonic_s() > deadline)
      return Error{ErrorCode::kDeadlineExceeded,
                   fmt::format("controller and gateway did not answer within {:.0f}s; see the logs", kPatienceS)};
    if (signals.within_s(0.05)) return Error{ErrorCode::kCancelled, "interrupted"};
  }
  return {};
}

// Runs until a signal arrives.
void watch(LocalStack& stack, Observer& observer, const EndSignals& signals, Console& console) {
  LiveView view;
  LiveDisplay display(console);
  const double start = monotonic_s();
  do {
    const double now = monotonic_s();
    if (const std::string news = stack.tend(now); !news.empty()) display.announce(news);
    if (const auto seen = observer.observe(now, view); seen.ok()) {
      display.show(now - start, view.rows(), "Ctrl-C stops everything.");
    } else {
      display.say("waiting for the controller's first decision");
    }
  } while (!signals.within_s(1));
}

}  // namespace

int run_stack(const LocalStackOptions& options, const std::vector<api::Object>& objects, Console& console) {
  const EndSignals signals;
  auto stack = LocalStack::start(options);
  if (!stack.ok()) {
    const std::string& message = stack.error().message;
    console.err << message << (message.ends_with('\n') ? "" : "\n");
    return kFailed;
  }
  Observer observer((*stack)->endpoints());

  bool well = true;
  if (const auto ready = wait_until_up(**stack, observer, signals); ready.ok()) {
    console.out << request_example(objects, (*stack)->endpoints())
                << fmt::format("Logs are in {}/logs. Edit {}/objects to change what runs.\n\n", options.directory,
                               options.directory)
                << std::flush;
    watch(**stack, observer, signals, console);
  } else if (ready.error().code != ErrorCode::kCancelled) {
    console.err << ready.error().message << std::flush;
    well = false;
  }

  console.out << "Stopping: requests in flight finish first. Press Ctrl-C again to stop immediately.\n" << std::flush;
  bool hurried = false;
  const bool ended_well = (*stack)->stop([&] { return hurried = hurried || signals.within_s(0.05); });
  if (!ended_well && !hurried && well) {
    console.err << fmt::format("some programs had to be killed or failed; see {}/logs\n", options.directory);
  }
  if (well && ended_well) console.out << "Stopped.\n";
  return well && (ended_well || hurried) ? kDone : kFailed;
}

}  // namespace windlass::cli
