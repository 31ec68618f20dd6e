// `windlass up`: everything on this machine, from YAML files to a live table, until Ctrl-C.
#include <ctime>
#include <ostream>
#include <utility>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <signal.h>

#include "controller/cli/clock.h"
#include "controller/cli/commands.h"
#include "controller/cli/live_display.h"
#include "controller/cli/local_stack.h"
#include "controller/cli/object_files.h"
#include "controller/cli/observer.h"
#include "controller/cli/plan_text.h"
#include "controller/cli/this_machine.h"
#include "planner/policy/make_plan.h"

namespace windlass::cli {
namespace {

// SIGINT, SIGTERM and SIGHUP, held back and asked for: nothing happens between the lines. SIGCHLD ends a wait early.
class EndSignals {
 public:
  EndSignals() {
    sigemptyset(&set_);
    for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) sigaddset(&set_, number);
    sigprocmask(SIG_BLOCK, &set_, &before_);
  }
  ~EndSignals() { sigprocmask(SIG_SETMASK, &before_, nullptr); }
  EndSignals(const EndSignals&) = delete;
  EndSignals& operator=(const EndSignals&) = delete;

  // Waits so long for one, or until a child has ended; whether one that ends us came.
  bool within_s(double seconds) const {
    const timespec wait{static_cast<time_t>(seconds),
                        static_cast<long>((seconds - static_cast<double>(static_cast<time_t>(seconds))) * 1e9)};
    const int number = sigtimedwait(&set_, nullptr, &wait);
    return number > 0 && number != SIGCHLD;
  }

 private:
  sigset_t set_{};
  sigset_t before_{};
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

// Both programs answer, or the reason why they never will.
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

// Until a signal.
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

// The services whose objectives no plan can meet, a line each; empty: there is none.
std::string infeasible(const std::vector<api::Object>& objects) {
  const planner::Snapshot snapshot = quiet_snapshot(objects);
  const planner::Plan plan = planner::make_plan(snapshot);
  std::string lines;
  for (std::size_t i = 0; i < plan.services.size(); ++i) {
    const planner::ServicePlan& service = plan.services[i];
    if (service.feasible.status != planner::Truth::kFalse) continue;
    if (snapshot.services[i].scaling.mode != planner::Mode::kApply) continue;
    lines += fmt::format("ModelService {}/{}: {}\n", service.id.name_space, service.id.name,
                         hint_text("Feasible", service.feasible));
  }
  return lines;
}

int up(LocalStackOptions options, Console& console) {
  const auto refuse = [&](const Error& error) {
    console.err << error.message << (error.message.ends_with('\n') ? "" : "\n");
    return kFailed;
  };
  auto objects = read_object_files(options.files);
  if (!objects.ok()) return refuse(objects.error());
  auto machine = add_this_machine(*objects, console.err);
  if (!machine.ok()) return refuse(machine.error());
  options.this_machine = std::move(machine).value();
  if (const auto checked = check_references(*objects, Classes::kOfFiles); !checked.ok()) return refuse(checked.error());
  if (const auto checked = check_models(*objects); !checked.ok()) return refuse(checked.error());
  if (const std::string lines = infeasible(*objects); !lines.empty()) {
    console.err << lines;
    return kInfeasible;
  }

  const EndSignals signals;
  auto stack = LocalStack::start(options);
  if (!stack.ok()) return refuse(stack.error());
  Observer observer((*stack)->endpoints());

  bool well = true;
  if (const auto ready = wait_until_up(**stack, observer, signals); ready.ok()) {
    console.out << request_example(*objects, (*stack)->endpoints())
                << fmt::format("Logs are in {}/logs; edit {}/objects to change what runs.\n\n", options.directory,
                               options.directory)
                << std::flush;
    watch(**stack, observer, signals, console);
  } else if (ready.error().code != ErrorCode::kCancelled) {
    console.err << ready.error().message << std::flush;
    well = false;
  }

  console.out << "Stopping: requests in flight are finished first; Ctrl-C again ends it at once.\n" << std::flush;
  bool hurried = false;
  const bool ended_well = (*stack)->stop([&] { return hurried = hurried || signals.within_s(0.05); });
  if (!ended_well && !hurried && well) {
    console.err << fmt::format("not everything ended by itself; see {}/logs\n", options.directory);
  }
  if (well && ended_well) console.out << "Stopped.\n";
  return well && (ended_well || hurried) ? kDone : kFailed;
}

}  // namespace

void add_up(CLI::App& app, CommandContext& context) {
  auto* command = app.add_subcommand("up", "Run everything on this machine: controller, gateway and workers, until Ctrl-C");
  auto options = std::make_shared<LocalStackOptions>();
  command->add_option("-f,--file,FILE", options->files, "YAML file with ModelServices and AcceleratorClasses; repeatable")
      ->required();
  command->add_option("--dir", options->directory, "Folder for objects, status and logs")->capture_default_str();
  command->add_option("--listen", options->listen, "Where the gateway takes requests")->capture_default_str();
  command
      ->add_option("--gpus", options->gpus, "GPUs that this machine offers of each AcceleratorClass; default: one node's worth")
      ->check(CLI::Range(1, 1024));
  command->footer("Exits 3 when an objective cannot be met.");
  command->callback([&context, options] { context.exit_code = up(*options, context.console); });
}

}  // namespace windlass::cli
