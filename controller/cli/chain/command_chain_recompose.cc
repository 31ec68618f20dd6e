// `windlass chain recompose`: plans the change from an old instance's chains to a new one's: which servers drop and load which
// blocks, in which order, and whether it is worth it.
#include <ostream>

#include <CLI/CLI.hpp>

#include "controller/cli/chain/chain_text.h"
#include "controller/cli/console/commands.h"
#include "planner/base/duration.h"
#include "planner/chain/composition_json.h"

namespace windlass::cli {
namespace {

using Json = nlohmann::ordered_json;

struct RecomposeFlags {
  std::vector<std::string> files;
  std::string horizon = "1h";
  std::string tuning = "lower-bound";
  std::string output = "table";
};

struct Recomposed {
  chain::Instance instance;  // the new one
  chain::Transition transition;
};

Json range_json(const chain::BlockRange& range) {
  if (range.blocks == 0) return nullptr;
  return {{"firstBlock", range.first}, {"blocks", range.blocks}};
}

Json ranges_json(const std::vector<chain::BlockRange>& ranges) {
  Json json = Json::array();
  for (const auto& range : ranges) json.push_back(range_json(range));
  return json;
}

Json to_json(const Recomposed& recomposed) {
  const chain::Transition& transition = recomposed.transition;
  const auto name = [&](int server) { return recomposed.instance.servers[static_cast<std::size_t>(server)].name; };
  Json changes = Json::array();
  for (const auto& change : transition.changes) {
    changes.push_back({{"server", name(change.server)},
                       {"before", range_json(change.before)},
                       {"after", range_json(change.after)},
                       {"kept", range_json(change.kept)},
                       {"loadsFirst", change.loads_first}});
  }
  Json waves = Json::array();
  for (const auto& wave : transition.waves) {
    Json steps = Json::array();
    for (const auto& step : wave.steps) {
      steps.push_back({{"server", name(step.server)},
                       {"drops", ranges_json(step.drops)},
                       {"loads", ranges_json(step.loads)},
                       {"seconds", step.seconds}});
    }
    waves.push_back({{"steps", std::move(steps)},
                     {"seconds", wave.seconds},
                     {"interruptedSeconds", wave.interrupted_s},
                     {"totalServiceRatePerSecond", wave.total_service_rate_per_s}});
  }
  return {{"proposed", transition.proposed},
          {"reason", transition.reason},
          {"gone", transition.gone},
          {"changes", std::move(changes)},
          {"waves", std::move(waves)},
          {"seconds", transition.seconds},
          {"loadedGB", transition.loaded_gb},
          {"interrupted", transition.interrupted},
          {"interruptedSeconds", transition.interrupted_s},
          {"orderProved", transition.order_proved},
          {"horizonSeconds", transition.horizon_s},
          {"gainRequestSeconds", transition.gain_request_s},
          {"costRequestSeconds", transition.cost_request_s},
          {"current", chain::composition_json(recomposed.instance, transition.current)},
          {"next", chain::composition_json(recomposed.instance, transition.next)}};
}

Result<Recomposed> run(const RecomposeFlags& flags) {
  WINDLASS_ASSIGN_OR_RETURN(const ReadInstance old_file, read_instance_files({flags.files[0]}));
  WINDLASS_ASSIGN_OR_RETURN(ReadInstance new_file, read_instance_files({flags.files[1]}));
  const chain::Instance& before = old_file.instance;
  chain::Instance& after = new_file.instance;
  chain::RecomposeOptions options;
  WINDLASS_ASSIGN_OR_RETURN(options.tuning, tuning_from_string(flags.tuning));
  options.horizon_s = parse_duration_s(flags.horizon).value_or(options.horizon_s);
  const auto old = chain::compose(before, options.tuning);
  if (!old.ok()) return old.error().within(flags.files[0]);
  auto transition = chain::recompose(before, *old, after, options);
  if (!transition.ok()) return transition.error().within(flags.files[1]);
  return Recomposed{std::move(after), std::move(transition).value()};
}

// CLI11 check for a duration above 0.
std::string horizon_trouble(const std::string& text) {
  const auto seconds = parse_duration_s(text);
  if (!seconds.ok()) return seconds.error().message;
  return *seconds > 0 ? "" : "must be a duration above 0 (got '" + text + "')";
}

}  // namespace

void add_chain_recompose(CLI::App& app, CommandContext& context) {
  auto* command = app.add_subcommand("recompose", "Plan the change from one instance's chains to another's");
  auto flags = std::make_shared<RecomposeFlags>();
  command->add_option("-f,--file", flags->files, "The current instance, then the new one with a second -f")
      ->required()
      ->option_text("OLD -f NEW REQUIRED");
  command->add_option("--horizon", flags->horizon, "How long the new chains are expected to be used")
      ->check(CLI::Validator([](std::string& text) { return horizon_trouble(text); }, "DURATION"))
      ->capture_default_str();
  command->add_option("--tune", flags->tuning, "Which estimate of the mean response time the choice of c minimises")
      ->check(CLI::IsMember({"lower-bound", "upper-bound", "surrogate"}))
      ->capture_default_str();
  command->add_option("-o,--output", flags->output, "Output format: table or json")
      ->check(CLI::IsMember({"table", "json"}))
      ->capture_default_str();
  command->footer("Servers in the two files are matched by name.");
  command->callback([&context, flags] {
    if (flags->files.size() != 2) {
      throw CLI::ValidationError("--file",
                                 "must be given twice: -f OLD -f NEW (got " + std::to_string(flags->files.size()) + ")");
    }
    const auto recomposed = run(*flags);
    if (!recomposed.ok()) {
      context.exit_code = report_chain_error(context.console.err, recomposed.error());
    } else if (flags->output == "json") {
      context.console.out << to_json(*recomposed).dump(2) << "\n";
    } else {
      context.console.out << transition_text(recomposed->instance, recomposed->transition);
    }
  });
}

}  // namespace windlass::cli
