// `windlass profile`: measures a running worker with several prompt and batch sizes, and transfers to it, and writes a
// PerformanceProfile, or says why the measurements are not good enough for one.
#include <algorithm>
#include <optional>
#include <ostream>
#include <random>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "controller/app/stop_signals.h"
#include "controller/cli/console/chain_choice.h"
#include "controller/cli/console/commands.h"
#include "controller/cli/console/duration_check.h"
#include "controller/cli/console/percent_check.h"
#include "controller/cli/console/progress_line.h"
#include "controller/cli/console/text_table.h"
#include "controller/cli/live/worker_probe.h"
#include "controller/cli/profile/fitted_profile.h"
#include "controller/cli/profile/profile_page.h"
#include "controller/cli/profile/profile_run.h"
#include "controller/kube/curl_transport.h"
#include "metrics/host/clock.h"
#include "metrics/host/whole_file.h"

namespace windlass::cli {
namespace {

struct ProfileFlags {
  load::LoadOptions target;
  std::string prefill_url;  // empty: transfers are not measured
  std::string accelerator;
  int gpus = 1;
  ProfileGrid grid;
  std::string ttft, tpot, budget = "5m", max_error = "20%";
  RowFit fit{.model = "best"};
  ProfileOutput output;
  bool output_anyway = false;
  std::string csv, html;
};

// Sorted, without duplicates.
std::vector<int> in_order(std::vector<int> sizes) {
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  return sizes;
}

struct Transfers {
  std::optional<planner::MeasuredTransfer> fitted;  // nullopt: no transfer could be measured
  std::string note;
};

// Measures a transfer of each prompt size, after one to warm up. Failures are added to the note.
Result<Transfers> measure_transfers(const ProfileFlags& flags, const std::vector<int>& prompts, kube::HttpTransport& transport,
                                    const std::stop_token& stop) {
  const WorkerPair pair{flags.prefill_url, flags.target.url};
  std::vector<TransferSample> samples;
  std::size_t index = 0;
  const auto one = [&](int words) {
    return measure_transfer(transport, pair, flags.target.model, load::prompt_text(index++, words, flags.target.seed),
                            [&] { return stop.stop_requested(); });
  };
  WINDLASS_RETURN_IF_ERROR(one(prompts.front()));
  std::string left_out;
  for (const int words : prompts) {
    for (int repeat = 0; repeat < flags.grid.repeats; ++repeat) {
      auto sample = one(words);
      if (sample.ok()) {
        samples.push_back(*sample);
      } else if (sample.error().code == ErrorCode::kFailedPrecondition) {
        left_out += fmt::format("; prompts of {} words skipped: {}", words, sample.error().message);
        break;
      } else {
        return sample.error();
      }
    }
  }
  if (samples.empty()) return Transfers{std::nullopt, "no transfer could be measured" + left_out};
  const planner::MeasuredTransfer fitted = fit_transfers(samples);
  return Transfers{fitted, to_text(fitted, samples) + left_out};
}

Result<MeasuredProfile> measure(ProfileFlags& flags, const planner::ProfileKey& key, const std::stop_source& stop,
                                Console& console) {
  ProgressLine line(console);
  ProfileProgress now;
  const auto tell = [&] {
    line.tell([&](double elapsed_s) {
      return fmt::format("{} runs of {} load points{}: batches of {} prompts of {} words, {:.0f} of {:.0f} s", now.runs,
                         now.cells, now.error ? ", error " + percent_text(now.error) : "", now.batch, now.prompt, elapsed_s,
                         flags.grid.budget_s);
    });
  };
  ProfileWorld world;
  world.run = [&](const load::LoadOptions& batch) -> Result<load::LoadResult> {
    if (stop.stop_requested()) return Error{ErrorCode::kCancelled, "interrupted"};
    return load::run_load(
        batch, [&](const load::LoadProgress&) { tell(); }, stop.get_token());
  };
  world.now_s = monotonic_s;
  world.on_progress = [&](const ProfileProgress& progress) {
    now = progress;
    tell();
  };
  return measure_profile(
      flags.target, key, flags.grid,
      [&](const std::vector<planner::ProfileRow>& rows) { return fit_rows(rows, key, flags.fit); }, world);
}

// The prompt sizes of the measurements.
std::vector<int> prompts_of(const std::vector<ProfileCell>& cells) {
  std::vector<int> prompts;
  prompts.reserve(cells.size());
  for (const ProfileCell& cell : cells) prompts.push_back(cell.prompt);
  return in_order(std::move(prompts));
}

void take_texts(ProfileFlags& flags) {
  flags.grid.prompts = in_order(std::move(flags.grid.prompts));
  flags.grid.batches = in_order(std::move(flags.grid.batches));
  flags.grid.budget_s = duration_s(flags.budget);
  flags.grid.max_error = flags.fit.max_error = share_of(flags.max_error).value_or(0);
  if (!flags.ttft.empty()) flags.grid.ttft_s = duration_s(flags.ttft);
  if (!flags.tpot.empty()) flags.grid.tpot_s = duration_s(flags.tpot);
}

// Returns false and prints why if the profile is not good enough.
Result<bool> profile(ProfileFlags& flags, Console& console) {
  take_texts(flags);
  flags.target.seed = std::random_device{}();  // new prompts each time: the worker may have cached earlier ones
  std::stop_source stop;
  const StopSignals signals([&] { stop.request_stop(); });
  kube::CurlTransport transport{{}};
  if (flags.target.model.empty()) {
    WINDLASS_ASSIGN_OR_RETURN(flags.target.model, only_model(transport, flags.target.url));
  }
  const planner::ProfileKey key{flags.target.model, flags.accelerator, flags.gpus};
  WINDLASS_ASSIGN_OR_RETURN(MeasuredProfile measured, measure(flags, key, stop, console));
  // Save the measurements before the fit can fail.
  if (!flags.csv.empty()) WINDLASS_RETURN_IF_ERROR(write_whole_file(flags.csv, profile_csv(all_runs_of(measured.cells))));
  if (!flags.html.empty() && measured.profile) {
    const std::string text = error_text({*measured.profile, measured.notes}) + "\n" + measured.problem;
    WINDLASS_ASSIGN_OR_RETURN(const std::string page, profile_page(*measured.profile, points_of(measured.cells), text));
    WINDLASS_RETURN_IF_ERROR(write_whole_file(flags.html, page));
  }
  const bool useless = !measured.problem.empty();
  if (useless && (!flags.output_anyway || !measured.profile)) {
    tell_refused("profile", measured.problem, measured.notes, measured.profile.has_value(), console);
    return false;
  }
  if (!flags.output.kv_capacity_tokens) {
    const auto page = metrics_of(transport, flags.target.url);
    if (page.ok()) flags.output.kv_capacity_tokens = kv_capacity_tokens(*page);
    if (!flags.output.kv_capacity_tokens)
      measured.notes.emplace_back("the worker does not report the size of its KV cache; give it with --kv-capacity-tokens");
  }
  if (!flags.prefill_url.empty()) {
    auto transfers = measure_transfers(flags, prompts_of(measured.cells), transport, stop.get_token());
    if (!transfers.ok()) return transfers.error().within("transfers");
    measured.profile->transfer = transfers->fitted;
    measured.notes.push_back(std::move(transfers->note));
  }
  flags.output.source = flags.csv.empty() ? flags.target.url : flags.csv;
  WINDLASS_RETURN_IF_ERROR(write_profile({std::move(*measured.profile), std::move(measured.notes)}, flags.output, console));
  if (useless) console.err << "windlass profile: " << measured.problem << "\n";
  return !useless;
}

void add_target(CLI::App& command, ProfileFlags& flags) {
  command.add_option("--worker", flags.target.url, "URL of the worker, which must be idle otherwise")
      ->option_text("URL [http://127.0.0.1:8000]");
  command.add_option("--model", flags.target.model, "Served name of the model; default: the worker's only model")
      ->option_text("NAME");
  command.add_option("--prefill-worker", flags.prefill_url, "URL of a prefill worker: also measures KV transfers from it")
      ->check(CLI::Validator(
          [](const std::string& url) {
            return url.rfind("http://", 0) == 0 ? std::string() : "must be http://HOST:PORT (got " + url + ")";
          },
          ""))
      ->option_text("URL");
  command.add_option("--accelerator", flags.accelerator, "AcceleratorClass of the worker, for the profile")
      ->required()
      ->option_text("NAME REQUIRED");
  command.add_option("--gpus", flags.gpus, "GPUs of the worker")->check(CLI::Range(1, 4096))->option_text("N [1]");
}

// Options for what is measured.
void add_grid(CLI::App& command, ProfileFlags& flags) {
  command
      .add_option("--prompts", flags.grid.prompts,
                  "Prompt sizes in words, about one token each with a large vocabulary; default: 16, 64, 256 and so on "
                  "up to the longest that the endpoint takes")
      ->delimiter(',')
      ->check(CLI::Range(1, 1'000'000))
      ->option_text("N,N,...");
  command
      .add_option("--batches", flags.grid.batches,
                  "Concurrent prompts; default: 1, 2, 4 to 64, until the throughput stops growing or the endpoint queues "
                  "requests")
      ->delimiter(',')
      ->check(CLI::Range(1, 4096))
      ->option_text("N,N,...");
  command.add_option("--ttft", flags.ttft, "Objective for the time to first token; no size far beyond it is chosen")
      ->check(duration_check())
      ->option_text("DURATION");
  command.add_option("--tpot", flags.tpot, "Objective for the time per output token; no size far beyond it is chosen")
      ->check(duration_check())
      ->option_text("DURATION");
  command.add_option("--max-tokens", flags.grid.max_tokens, "Tokens per answer; default: 32 to 256, depending on their speed")
      ->check(CLI::Range(2, 100'000))
      ->option_text("N");
  command.add_option("--repeats", flags.grid.repeats, "Runs of each load point, before noisy ones are repeated")
      ->check(CLI::Range(1, 1000))
      ->option_text("N [3]");
}

// Options for the quality of the fit.
void add_fit_flags(CLI::App& command, ProfileFlags& flags) {
  command
      .add_option("--max-error", flags.max_error,
                  "Highest median error of prefill and of decode on held-out load points; above it no profile is written")
      ->check(percent_check())
      ->option_text("PERCENT [20%]");
  command
      .add_option("--budget", flags.budget,
                  "Time for repeats until --max-error is met; given sizes are measured once in any case")
      ->check(duration_check())
      ->option_text("DURATION [5m]");
  command.add_flag("--output-anyway", flags.output_anyway,
                   "Write the profile even if its error is above --max-error; the exit code stays 1");
  command
      .add_option(
          "--fit", flags.fit.model,
          "linear: straight lines. profile: interpolated medians. best: lines, or medians if only they meet --max-error")
      ->check(CLI::IsMember({"linear", "profile", "best"}))
      ->option_text("linear|profile|best [best]");
}

void add_output(CLI::App& command, ProfileFlags& flags) {
  command
      .add_option("--kv-capacity-tokens", flags.output.kv_capacity_tokens,
                  "Tokens in the worker's KV cache; default: from its metrics")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1'000'000'000'000}))
      ->option_text("N");
  command.add_option("--name", flags.output.name, "Name of the PerformanceProfile; default: MODEL-ACCELERATOR-Ngpu")
      ->option_text("NAME");
  command.add_option("--csv", flags.csv, "Write the measurements to this file, for `windlass fit`")->option_text("FILE");
  command.add_option("--html", flags.html, "Write an HTML page that plots measurements and fit, even of a rejected profile")
      ->option_text("FILE");
  command
      .add_option("-o,--output", flags.output.file,
                  "Write the PerformanceProfile to this file; -: to stdout, with the error table on stderr")
      ->option_text("FILE [-]");
}

void run_profile(ProfileFlags& flags, CommandContext& context) {
  const auto done = profile(flags, context.console);
  if (done.ok()) {
    if (!*done) context.exit_code = kFailed;
    return;
  }
  const bool unreachable = done.error().code == ErrorCode::kUnavailable || done.error().code == ErrorCode::kCancelled;
  if (!unreachable) {
    context.exit_code = report_chain_error(context.console.err, done.error());
    return;
  }
  context.console.err << "windlass profile: " << done.error().message << "\n";
  context.exit_code = kFailed;
}

}  // namespace

void add_profile(CLI::App& app, CommandContext& context) {
  auto* command = app.add_subcommand("profile", "Measure a running worker and write a PerformanceProfile");
  auto flags = std::make_shared<ProfileFlags>();
  flags->target.url = "http://127.0.0.1:8000";
  for (const auto add : {add_target, add_grid, add_fit_flags, add_output}) add(*command, *flags);
  command->footer(
      "Times are measured as a client sees them. Exit code 1: the worker did not answer, or the profile's error is above "
      "--max-error; 2: the input is wrong.");
  command->callback([&context, flags] { run_profile(*flags, context); });
}

}  // namespace windlass::cli
