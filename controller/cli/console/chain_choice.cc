// Reads and applies the options of `windlass chain`; see chain_choice.h.
#include "controller/cli/console/chain_choice.h"

#include <charconv>
#include <cmath>
#include <limits>
#include <ostream>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "controller/cli/console/console.h"
#include "controller/cli/console/scenario_files.h"
#include "planner/chain/cache_ilp.h"
#include "planner/chain/cg_bp.h"
#include "planner/chain/design_load.h"
#include "planner/chain/instance_yaml.h"
#include "planner/chain/petals.h"

namespace windlass::cli {
namespace {

constexpr long kMaxCapacity = 100'000'000;

// Parses the whole text as one number of this type.
template <class Number>
std::optional<Number> parsed(const std::string& text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

int whole_of(const std::string& text) { return static_cast<int>(parsed<long>(text).value_or(1)); }

// Counts the blocks that no server holds, and the memory that one server would need for all of them.
Error uncovered(const chain::Instance& instance, const chain::Placement& placement, const std::string& algorithm) {
  std::vector<bool> covered(static_cast<std::size_t>(instance.blocks) + 1, false);
  for (const chain::BlockRange& range : placement) {
    for (int block = range.first; block <= range.last(); ++block) covered[static_cast<std::size_t>(block)] = true;
  }
  int missing = 0;
  for (int block = 1; block <= instance.blocks; ++block) missing += !covered[static_cast<std::size_t>(block)];
  return Error{ErrorCode::kFailedPrecondition,
               fmt::format("no full chain can be placed: {} leaves {} of {} blocks without a server; {:.6g} GB of memory are "
                           "missing",
                           algorithm, missing, instance.blocks, missing * (instance.block_gb + instance.cache_gb))};
}

Result<chain::Composition> compose_gbp_cr(const ChainChoice& choice, ChosenChains& chosen) {
  const auto servers = choice.all_servers ? chain::Servers::kAll : chain::Servers::kAsNeeded;
  if (choice.capacity != "auto") return chain::compose(chosen.instance, whole_of(choice.capacity), servers);
  WINDLASS_ASSIGN_OR_RETURN(chosen.tuning, tuning_from_string(choice.tuning.empty() ? "lower-bound" : choice.tuning));
  return chain::compose(chosen.instance, *chosen.tuning, servers);
}

Result<chain::Composition> compose_cg_bp(const ChainChoice& choice, const chain::Instance& instance) {
  int load = 0;
  if (choice.design_load == "auto") {
    load = chain::poisson_design_load(instance, instance.arrival_rate_per_s).requests;
    if (load == 0) return chain::compose(instance, 1).error();
  } else {
    load = whole_of(choice.design_load);
    // CG-BP covers the model exactly when GBP-CR has a full chain for the same number of requests: both put the same blocks on
    // each server.
    if (load > chain::max_design_load(instance)) return chain::compose(instance, load).error();
  }
  chain::Composition composition = chain::compose_on(instance, chain::cg_bp(instance, load).placement);
  composition.capacity = load;
  return composition;
}

Result<chain::Composition> compose_petals(const chain::Instance& instance) {
  chain::Composition composition = chain::compose_on(instance, chain::petals_placement(instance, {}));
  if (!chain::covers_all_blocks(instance, composition.placement)) return uncovered(instance, composition.placement, "PETALS");
  return composition;
}

}  // namespace

CLI::Validator number_between(double low, double high) {
  return CLI::Validator(
      [low, high](std::string& text) {
        const auto value = parsed<double>(text);
        if (value && low <= *value && *value <= high) return std::string();
        return fmt::format("must be a number from {} to {} (got '{}')", low, high, text);
      },
      "NUMBER");
}

CLI::Validator whole_between(std::int64_t low, std::int64_t high) {
  return CLI::Validator(
      [low, high](std::string& text) {
        const auto value = parsed<std::int64_t>(text);
        if (value && low <= *value && *value <= high) return std::string();
        return fmt::format("must be a whole number from {} to {} (got '{}')", low, high, text);
      },
      "N");
}

CLI::Validator auto_or_whole(std::int64_t low, std::int64_t high) {
  return CLI::Validator(
      [low, high](std::string& text) {
        const auto value = parsed<std::int64_t>(text);
        if (text == "auto" || (value && low <= *value && *value <= high)) return std::string();
        return fmt::format("must be auto or a whole number from {} to {} (got '{}')", low, high, text);
      },
      "N|auto");
}

double number_of(const std::string& text) { return parsed<double>(text).value_or(std::numeric_limits<double>::quiet_NaN()); }

Result<chain::Tuning> tuning_from_string(std::string_view name) {
  for (const auto tuning : {chain::Tuning::kLowerBound, chain::Tuning::kUpperBound, chain::Tuning::kSurrogate}) {
    if (name == chain::to_string(tuning)) return tuning;
  }
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("--tune: must be lower-bound, upper-bound or surrogate (got '{}')", name)};
}

void add_choice_options(CLI::App& command, ChainChoice& choice) {
  command
      .add_option("-f,--file", choice.files,
                  "YAML file with the model, the demand and the servers; AcceleratorClasses in it or in another -f")
      ->required()
      ->option_text("INSTANCE REQUIRED");
  command.add_option("--arrival-rate", choice.arrival_rate, "Requests per second; overrides the file")
      ->check(number_between(chain::kSmallestNumber, chain::kLargestNumber));
  command
      .add_option("--max-load", choice.max_load,
                  "Highest share of the chains' total service rate that the demand may use; overrides the file")
      ->check(number_between(chain::kSmallestNumber, 1));
  command.add_option("--capacity", choice.capacity, "Concurrent requests for which GBP-CR reserves memory on every block (c)")
      ->check(auto_or_whole(1, kMaxCapacity))
      ->capture_default_str();
  command
      .add_option("--tune", choice.tuning,
                  "Which estimate of the mean response time --capacity auto minimises (default lower-bound)")
      ->check(CLI::IsMember({"lower-bound", "upper-bound", "surrogate"}));
  command.add_option("--design-load", choice.design_load, "Concurrent requests for which CG-BP reserves memory")
      ->check(auto_or_whole(1, kMaxCapacity))
      ->capture_default_str();
  command.add_flag("--all-servers", choice.all_servers,
                   "Use every server, even if fewer would carry the demand: spare capacity for bursts");
  command.add_flag("--optimal", choice.optimal,
                   "Use an integer program to find the smallest chain capacities that carry the demand");
}

void check_choice(const ChainChoice& choice) {
  const bool gbp_cr = choice.placement == "gbp-cr";
  if (!gbp_cr && choice.capacity != "auto")
    throw CLI::ValidationError("--capacity", "needs --placement gbp-cr (got " + choice.placement + ")");
  if (!gbp_cr && !choice.tuning.empty())
    throw CLI::ValidationError("--tune", "needs --placement gbp-cr (got " + choice.placement + ")");
  if (!gbp_cr && choice.all_servers)
    throw CLI::ValidationError("--all-servers", "needs --placement gbp-cr (got " + choice.placement + ")");
  if (choice.capacity != "auto" && !choice.tuning.empty()) {
    throw CLI::ValidationError("--tune", "needs --capacity auto (got " + choice.capacity + ")");
  }
  if (choice.placement != "cg-bp" && choice.design_load != "auto") {
    throw CLI::ValidationError("--design-load", "needs --placement cg-bp (got " + choice.placement + ")");
  }
}

Result<ReadInstance> read_instance_files(const std::vector<std::string>& paths) {
  WINDLASS_ASSIGN_OR_RETURN(const ScenarioInput input,
                            read_scenario_input(paths, "one INSTANCE with model, arrivalRate and servers"));
  WINDLASS_ASSIGN_OR_RETURN(auto instance, chain::instance_from_yaml(input.yaml, input.path, input.accelerators));
  return ReadInstance{input.path, std::move(instance)};
}

Result<ChosenChains> choose_chains(const ChainChoice& choice) {
  ChosenChains chosen;
  WINDLASS_ASSIGN_OR_RETURN(auto read, read_instance_files(choice.files));
  chosen.instance = std::move(read.instance);
  if (!choice.arrival_rate.empty()) chosen.instance.arrival_rate_per_s = number_of(choice.arrival_rate);
  if (!choice.max_load.empty()) chosen.instance.max_load = number_of(choice.max_load);
  chosen.placement = choice.placement;
  chosen.all_servers = choice.all_servers;
  auto composition = choice.placement == "gbp-cr"  ? compose_gbp_cr(choice, chosen)
                     : choice.placement == "cg-bp" ? compose_cg_bp(choice, chosen.instance)
                                                   : compose_petals(chosen.instance);
  if (!composition.ok()) return composition.error().within(read.path);
  chosen.composition = std::move(composition).value();
  if (choice.optimal) {
    auto optimal = chain::with_optimal_caches(chosen.instance, chosen.composition);
    if (optimal.ok()) {
      chosen.composition = std::move(optimal.value().composition);
      chosen.proved = optimal.value().proved;
      chosen.caches = "ilp";
      if (!chosen.proved) {
        chosen.note =
            "--optimal: the integer program is too large to be solved to the end; these are the fewest capacities that were "
            "found, not proved to be the fewest there are";
      }
    } else if (optimal.error().code == ErrorCode::kFailedPrecondition) {
      // Too little for the wanted load is an answer, not a mistake: the chains keep all they have.
      // Too little capacity for the demand is an answer and not an error: every chain keeps all its capacity.
      chosen.note = "--optimal changes nothing: " + optimal.error().message;
    } else {
      return optimal.error().within(read.path);
    }
  }
  return chosen;
}

int report_chain_error(std::ostream& err, const Error& error) {
  err << error.message << "\n";
  switch (error.code) {
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kNotFound:
    case ErrorCode::kFailedPrecondition: return kUsage;
    default: return kFailed;
  }
}

}  // namespace windlass::cli
