// `windlass load`: sends phases of requests to an OpenAI-compatible endpoint and reports the latencies and outcomes.
#include <ostream>
#include <stop_token>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "controller/app/stop_signals.h"
#include "controller/cli/console/commands.h"
#include "controller/cli/console/duration_check.h"
#include "controller/cli/console/text_table.h"
#include "controller/cli/load/generator/load_generator.h"

namespace windlass::cli {
namespace {

struct LoadFlags {
  load::LoadOptions options;
  std::string phases;
  std::string ttft;
  std::string tpot;
  std::string output = "text";
  bool constant = false;
  bool whole = false;
  bool quiet = false;
};

std::string progress_text(const load::LoadProgress& progress) {
  return fmt::format(
      "{:5.1f} of {:.0f}s: {} of {} sent, {} in flight, {} answered, {} rejected, {} lost; {}/s, TTFT p95 {}, TPOT p95 {}",
      progress.elapsed_s, progress.total_s, progress.sent, progress.planned, progress.in_flight, progress.completed,
      progress.rejected, progress.lost, number_text(progress.arrivals_per_s, 1), seconds_text(progress.ttft_p95_s),
      seconds_text(progress.tpot_p95_s));
}

// CSV for programs: a header line and one line of figures.
std::string csv(const load::LoadResult& result) {
  const auto p95 = [](const std::optional<load::Percentiles>& p) { return p ? fmt::format("{:.4f}", p->p95) : std::string(); };
  return "sent,completed,rejected,lost,duplicated,retried,elapsed_s,ttft_p95_s,tpot_p95_s,latency_p95_s,attainment\n" +
         fmt::format("{},{},{},{},{},{},{:.1f},{},{},{},{}\n", result.sent, result.completed, result.rejected, result.lost,
                     result.duplicated, result.retried, result.elapsed_s, p95(result.ttft_s), p95(result.tpot_s),
                     p95(result.latency_s), result.attainment ? fmt::format("{:.4f}", *result.attainment) : "");
}

Result<load::LoadResult> run(LoadFlags& flags, Console& console) {
  flags.options.stream = !flags.whole;
  flags.options.arrivals = flags.constant ? load::Arrivals::kConstant : load::Arrivals::kPoisson;
  auto phases = load::parse_phases(flags.phases);
  if (!phases.ok()) return phases.error().within("--phases");
  flags.options.phases = std::move(phases).value();
  if (!flags.ttft.empty()) flags.options.ttft_slo_s = duration_s(flags.ttft);
  if (!flags.tpot.empty()) flags.options.tpot_slo_s = duration_s(flags.tpot);
  std::stop_source stop;
  const StopSignals signals([&] { stop.request_stop(); });  // the summary covers what was measured so far
  double next_s = 0;
  return load::run_load(
      flags.options,
      [&](const load::LoadProgress& progress) {
        if (flags.quiet || progress.elapsed_s < next_s) return;
        next_s = progress.elapsed_s + 5;
        console.err << progress_text(progress) << "\n" << std::flush;
      },
      stop.get_token());
}

}  // namespace

void add_load(CLI::App& app, CommandContext& context) {
  auto* command = app.add_subcommand("load", "Send requests to the gateway and measure latencies as a client sees them");
  auto flags = std::make_shared<LoadFlags>();
  auto& options = flags->options;
  const CLI::Validator phases(
      [](std::string& text) {
        const auto parsed = load::parse_phases(text);
        return parsed.ok() ? std::string() : parsed.error().message;
      },
      "RATE/DURATION,...");
  command->add_option("--url", options.url, "URL of the gateway, or of any OpenAI-compatible server")->capture_default_str();
  command->add_option("--model", options.model, "Served name of the model")->required();
  command->add_option("--phases", flags->phases, "Requests per second and duration of each phase: 2/10s,12/30s,0.5/1m")
      ->required()
      ->check(phases);
  command->add_option("--prompt-tokens", options.prompt_tokens, "Words per prompt; about one token each")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  command->add_option("--max-tokens", options.max_tokens, "Tokens per answer")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  command
      ->add_option("--length-cv", options.length_cv,
                   "Spread of lengths around --prompt-tokens and --max-tokens: log-normal with this coefficient of variation. "
                   "`windlass plan` assumes 1")
      ->check(CLI::Range(0.0, 10.0))
      ->capture_default_str();
  command
      ->add_option("--context-tokens", options.context_tokens, "Longest request, prompt and answer together; default: no limit")
      ->check(CLI::Range(2, 10'000'000));
  command->add_flag("--ignore-eos", options.ignore_eos,
                    "Ask for answers of exactly this length; vLLM, SGLang, llama.cpp and windlass-worker can do that");
  command->add_option("--seed", options.seed, "Seed of arrival times, prompts and lengths")->capture_default_str();
  command->add_flag("--constant", flags->constant, "Send requests at even intervals instead of as a Poisson process");
  command->add_flag("--whole", flags->whole, "Ask for complete answers instead of streams");
  command->add_flag("--retry", options.retry, "Retry after 429 and 503, as Retry-After says");
  command->add_option("--ttft", flags->ttft, "Objective for the time to first token, for attainment: 500ms")
      ->check(duration_check());
  command->add_option("--tpot", flags->tpot, "Objective for the time per output token")->check(duration_check());
  command->add_option("-o,--output", flags->output, "Output format: text, json (with every request) or csv")
      ->check(CLI::IsMember({"text", "json", "csv"}))
      ->capture_default_str();
  command->add_flag("-q,--quiet", flags->quiet, "Show no progress on stderr");
  command->footer("Exit code 1: a request was lost or answered twice, or none was answered.");
  command->callback([&context, flags] {
    const auto result = run(*flags, context.console);
    if (!result.ok()) {
      context.console.err << "windlass load: " << result.error().message << "\n";
      context.exit_code = kFailed;
      return;
    }
    if (flags->output == "json") {
      context.console.out << load::to_json(*result, true) << "\n";
    } else {
      context.console.out << (flags->output == "csv" ? csv(*result) : load::to_text(*result));
    }
    const bool none = result->sent > 0 && result->completed == 0;
    context.exit_code = result->lost > 0 || result->duplicated > 0 || none ? kFailed : kDone;
  });
}

}  // namespace windlass::cli
