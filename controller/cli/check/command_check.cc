// `windlass check URL...`: waits until every URL answers with status 200, or until a deadline. For `helm test`, and for people
// who want to know whether everything is up.
#include <algorithm>
#include <ctime>
#include <map>
#include <memory>
#include <ostream>
#include <string_view>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "controller/cli/console/commands.h"
#include "controller/cli/console/text_file.h"
#include "controller/kube/curl_transport.h"
#include "metrics/host/clock.h"
#include "planner/base/duration.h"

namespace windlass::cli {
namespace {

constexpr double kAttemptS = 5;  // limit of one request
constexpr double kPauseS = 0.5;

struct CheckOptions {
  std::vector<std::string> urls;
  std::string ca_path;
  double timeout_s = 30;
};

void pause_s(double seconds) {
  const timespec wait{static_cast<time_t>(seconds),
                      static_cast<long>((seconds - static_cast<double>(static_cast<time_t>(seconds))) * 1e9)};
  nanosleep(&wait, nullptr);
}

// What the address answered instead of 200; empty if it answered 200.
std::string problem_of(const Result<kube::HttpResponse>& answer) {
  if (!answer.ok()) return answer.error().message;
  if (answer->status == 200) return "";
  return fmt::format("must answer 200 (got {})", answer->status);
}

Result<void> check(const CheckOptions& options, std::ostream& out) {
  kube::CurlOptions transport_options;
  transport_options.connect_timeout_s = kAttemptS;
  if (!options.ca_path.empty()) {
    WINDLASS_ASSIGN_OR_RETURN(transport_options.tls.ca_pem, read_text_file(options.ca_path, "a file of PEM certificates"));
  }
  kube::CurlTransport transport(transport_options);
  const double deadline_s = monotonic_s() + options.timeout_s;
  std::vector<std::string> waiting = options.urls;
  while (true) {
    std::vector<kube::HttpRequest> requests;
    for (const std::string& url : waiting) {
      kube::HttpRequest request;
      request.url = url;
      request.timeout_s = std::clamp(deadline_s - monotonic_s(), 0.1, kAttemptS);
      requests.push_back(std::move(request));
    }
    const auto answers = transport.send_all(requests);
    std::vector<std::string> still;
    std::string problems;
    for (std::size_t i = 0; i < requests.size(); ++i) {
      const std::string problem = problem_of(answers[i]);
      if (problem.empty()) {
        out << waiting[i] << ": answers\n" << std::flush;
      } else {
        problems += fmt::format("\n  {}: {}", waiting[i], problem);
        still.push_back(waiting[i]);
      }
    }
    waiting = std::move(still);
    if (waiting.empty()) return {};
    if (monotonic_s() + kPauseS >= deadline_s) {
      return Error{ErrorCode::kDeadlineExceeded, fmt::format("no answer within {:g}s from{}", options.timeout_s, problems)};
    }
    pause_s(kPauseS);
  }
}

}  // namespace

void add_check(CLI::App& app, CommandContext& context) {
  auto* command = app.add_subcommand("check", "Wait until controllers and gateways answer at their URLs");
  auto options = std::make_shared<CheckOptions>();
  const CLI::Validator is_url(
      [](std::string& text) {
        for (const std::string_view scheme : {"http://", "https://"}) {
          if (text.rfind(scheme, 0) == 0 && text.size() > scheme.size()) return std::string();
        }
        return fmt::format("must be http://HOST[:PORT][/PATH] or https://... (got '{}')", text);
      },
      "URL");
  command->add_option("URL", options->urls, "URL that must answer with status 200")->required()->check(is_url);
  command->add_option("--ca-file", options->ca_path,
                      "PEM file of the authorities trusted to sign their certificates [the system's]");
  command
      ->add_option_function<std::string>(
          "--timeout",
          [options](const std::string& text) {
            const auto parsed = parse_duration_s(text);
            if (!parsed.ok()) throw CLI::ValidationError("--timeout", parsed.error().message);
            options->timeout_s = *parsed;
          },
          "Give up and fail after this time [30s]")
      ->type_name("DURATION");
  command->callback([&context, options] {
    if (const auto checked = check(*options, context.console.out); !checked.ok()) {
      context.console.err << "windlass check: " << checked.error().message << "\n";
      context.exit_code = kFailed;
    }
  });
}

}  // namespace windlass::cli
