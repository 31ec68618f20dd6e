// `windlass profile`: measures a running worker over a grid of prompts and batches, and transfers to it, and writes a
// PerformanceProfile.
#include <algorithm>
#include <optional>
#include <ostream>
#include <random>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "controller/app/stop_signals.h"
#include "controller/cli/chain_choice.h"
#include "controller/cli/commands.h"
#include "controller/cli/fitted_profile.h"
#include "controller/cli/profile_run.h"
#include "controller/cli/progress_line.h"
#include "controller/cli/text_file.h"
#include "controller/cli/worker_probe.h"
#include "controller/kube/curl_transport.h"

namespace windlass::cli {
namespace {

struct ProfileFlags {
  load::LoadOptions target;
  std::string prefill_url;  // empty: transfers are not measured
  std::string accelerator;
  int gpus = 1;
  ProfileGrid grid{.prompts = {16, 64, 256}, .batches = {1, 2, 4, 8}};
  RowFit fit;
  ProfileOutput output;
  std::string csv;
};

// Each size once, the smallest first.
std::vector<int> in_order(std::vector<int> sizes) {
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  return sizes;
}

struct Transfers {
  std::optional<planner::MeasuredTransfer> fitted;  // none: no transfer could be measured
  std::string note;
};

// Of each prompt size of the grid, after one that warms up; what cannot be measured becomes a part of the note.
Result<Transfers> measure_transfers(const ProfileFlags& flags, kube::HttpTransport& transport, const std::stop_token& stop) {
  const WorkerPair pair{flags.prefill_url, flags.target.url};
  std::vector<TransferSample> samples;
  std::size_t index = 0;
  const auto one = [&](int words) {
    return measure_transfer(transport, pair, flags.target.model, load::prompt_text(index++, words, flags.target.seed),
                            [&] { return stop.stop_requested(); });
  };
  WINDLASS_RETURN_IF_ERROR(one(flags.grid.prompts.front()));
  std::string left_out;
  for (const int words : flags.grid.prompts) {
    for (int repeat = 0; repeat < flags.grid.repeats; ++repeat) {
      auto sample = one(words);
      if (sample.ok()) {
        samples.push_back(*sample);
      } else if (sample.error().code == ErrorCode::kFailedPrecondition) {
        left_out += fmt::format("; prompts of {} words left out: {}", words, sample.error().message);
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

Result<ProfiledRows> measure(ProfileFlags& flags, const planner::ProfileKey& key, const std::stop_source& stop,
                             Console& console) {
  ProgressLine line(console);
  ProfileProgress now;
  const auto tell = [&] {
    line.tell([&](double elapsed_s) {
      return fmt::format("{} of {} cells: batches of {} prompts of {} words, {:.0f} s", now.done, now.cells, now.batch,
                         now.prompt, elapsed_s);
    });
  };
  return profile_grid(
      flags.target, key, flags.grid,
      [&](const load::LoadOptions& batch) -> Result<load::LoadResult> {
        if (stop.stop_requested()) return Error{ErrorCode::kCancelled, "interrupted"};
        return load::run_load(
            batch, [&](const load::LoadProgress&) { tell(); }, stop.get_token());
      },
      [&](const ProfileProgress& progress) {
        now = progress;
        tell();
      });
}

Result<void> profile(ProfileFlags& flags, Console& console) {
  flags.grid.prompts = in_order(std::move(flags.grid.prompts));
  flags.grid.batches = in_order(std::move(flags.grid.batches));
  flags.target.max_tokens = flags.grid.max_tokens;
  flags.target.seed = std::random_device{}();  // other prompts each time: the worker may have kept those of the last one
  std::stop_source stop;
  const StopSignals signals([&] { stop.request_stop(); });
  kube::CurlTransport transport{{}};
  if (flags.target.model.empty()) {
    WINDLASS_ASSIGN_OR_RETURN(flags.target.model, only_model(transport, flags.target.url));
  }
  const planner::ProfileKey key{flags.target.model, flags.accelerator, flags.gpus};
  WINDLASS_ASSIGN_OR_RETURN(ProfiledRows measured, measure(flags, key, stop, console));
  // Kept before anything can go wrong with the fit.
  if (!flags.csv.empty()) WINDLASS_RETURN_IF_ERROR(write_whole_file(flags.csv, profile_csv(measured.rows)));
  if (!flags.output.kv_capacity_tokens) {
    const auto page = metrics_of(transport, flags.target.url);
    if (page.ok()) flags.output.kv_capacity_tokens = kv_capacity_tokens(*page);
    if (!flags.output.kv_capacity_tokens)
      measured.notes.emplace_back("the worker does not say how many tokens its KV cache holds (--kv-capacity-tokens)");
  }
  std::optional<planner::MeasuredTransfer> transfer;
  if (!flags.prefill_url.empty()) {
    auto transfers = measure_transfers(flags, transport, stop.get_token());
    if (!transfers.ok()) return transfers.error().within("transfers");
    transfer = transfers->fitted;
    measured.notes.push_back(std::move(transfers->note));
  }
  auto fitted = fit_rows(measured.rows, key, flags.fit);
  if (!fitted.ok()) {
    for (const std::string& note : measured.notes) console.err << "Note: " << note << "\n";
    return fitted.error().within(fmt::format("{} measurements of {}", measured.rows.size(), flags.target.url));
  }
  fitted->transfer = transfer;
  flags.output.source = flags.csv.empty() ? flags.target.url : flags.csv;
  return write_profile({std::move(fitted).value(), std::move(measured.notes)}, flags.output, console);
}

}  // namespace

void add_profile(CLI::App& app, CommandContext& context) {
  auto* command = app.add_subcommand("profile", "Measure a running worker and write a PerformanceProfile");
  auto flags = std::make_shared<ProfileFlags>();
  flags->target.url = "http://127.0.0.1:8000";
  command->add_option("--worker", flags->target.url, "The worker, which should have nothing else to do")
      ->option_text("URL [http://127.0.0.1:8000]");
  command->add_option("--model", flags->target.model, "The served name; the worker's, where it has one alone")
      ->option_text("NAME");
  command
      ->add_option("--prefill-worker", flags->prefill_url,
                   "A worker that computes prompts: transfers of keys and values from it are measured, too")
      ->check(CLI::Validator(
          [](const std::string& url) {
            return url.rfind("http://", 0) == 0 ? std::string() : "found " + url + ", allowed is http://HOST:PORT";
          },
          ""))
      ->option_text("URL");
  command->add_option("--accelerator", flags->accelerator, "AcceleratorClass that it runs on, for the profile")
      ->required()
      ->option_text("NAME REQUIRED");
  command->add_option("--gpus", flags->gpus, "GPUs of the worker")->check(CLI::Range(1, 4096))->option_text("N [1]");
  command->add_option("--prompts", flags->grid.prompts, "Prompt sizes in words; with a large vocabulary about as many tokens")
      ->delimiter(',')
      ->check(CLI::Range(1, 1'000'000))
      ->option_text("N,N,... [16,64,256]");
  command->add_option("--batches", flags->grid.batches, "Prompts sent at once")
      ->delimiter(',')
      ->check(CLI::Range(1, 4096))
      ->option_text("N,N,... [1,2,4,8]");
  command->add_option("--max-tokens", flags->grid.max_tokens, "Tokens in an answer")
      ->check(CLI::Range(2, 100'000))
      ->option_text("N [32]");
  command->add_option("--repeats", flags->grid.repeats, "Runs of each cell")->check(CLI::Range(1, 1000))->option_text("N [3]");
  command->add_option("--fit", flags->fit.model, "linear: lines. profile: medians, interpolated")
      ->check(CLI::IsMember({"linear", "profile"}))
      ->option_text("linear|profile [linear]");
  command
      ->add_option("--kv-capacity-tokens", flags->output.kv_capacity_tokens,
                   "Tokens in the worker's KV cache; left out, what its metrics say")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1'000'000'000'000}))
      ->option_text("N");
  command->add_option("--name", flags->output.name, "Of the PerformanceProfile; MODEL-ACCELERATOR-Ngpu when left out")
      ->option_text("NAME");
  command->add_option("--csv", flags->csv, "Keep the measurements here, as `windlass fit` reads them")->option_text("FILE");
  command
      ->add_option("-o,--output", flags->output.file, "Write the PerformanceProfile here; -: to stdout, the errors to stderr")
      ->option_text("FILE [-]");
  command->footer("Times are those that a client sees. Exit code 1: the worker did not answer; 2: the input is wrong.");
  command->callback([&context, flags] {
    const auto done = profile(*flags, context.console);
    if (done.ok()) return;
    const bool unreachable = done.error().code == ErrorCode::kUnavailable || done.error().code == ErrorCode::kCancelled;
    if (!unreachable) {
      context.exit_code = report_chain_error(context.console.err, done.error());
      return;
    }
    context.console.err << "windlass profile: " << done.error().message << "\n";
    context.exit_code = 1;
  });
}

}  // namespace windlass::cli
