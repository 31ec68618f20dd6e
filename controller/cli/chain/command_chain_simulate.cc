// `windlass chain simulate`: simulates generated or recorded requests on composed chains under a dispatch policy, or on placed
// servers under a router, and prints the latencies.
#include <limits>
#include <ostream>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "controller/cli/chain/chain_simulation_report.h"
#include "controller/cli/console/commands.h"
#include "controller/cli/console/text_file.h"
#include "metrics/host/clock.h"
#include "planner/dispatch/policies.h"
#include "planner/sim/chain_simulation.h"
#include "planner/sim/session_simulation.h"
#include "planner/workload/synthetic_source.h"
#include "planner/workload/trace.h"

namespace windlass::cli {
namespace {

constexpr std::int64_t kMaxRequests = 1'000'000'000;
constexpr std::int64_t kDefaultRequests = 100'000;
constexpr double kProgressAfter_s = 1;

struct ChainSimulateFlags {
  ChainChoice choice;
  std::string policy = "jffc";
  std::string trace;
  std::string arrival_cv;
  std::optional<std::int64_t> requests;
  std::optional<std::int64_t> warm_up;
  std::uint64_t seed = 1;
  int replications = 1;
  std::string output = "table";
};

bool is_session_policy(const std::string& policy) { return policy == "ws-rr" || policy == "petals"; }

// The inputs of a simulation, except its seed.
struct Plan {
  ChosenChains chosen;
  std::vector<workload::TraceRow> rows;  // empty: generated requests
  double gap_cv = 1;
  std::int64_t measured = 0;  // requests per replication
  std::int64_t warm_up = 0;

  [[nodiscard]] std::int64_t all() const { return measured + warm_up; }
};

// A progress line on stderr.
class ChainProgress {
 public:
  ChainProgress(Console& console, std::int64_t total) : console_(console), total_(total), begin_s_(monotonic_s()) {}
  ~ChainProgress() {
    if (drawn_) console_.err << "\r\x1b[K" << std::flush;
  }
  ChainProgress(const ChainProgress&) = delete;
  ChainProgress& operator=(const ChainProgress&) = delete;

  void begin_replication(std::int64_t requests_before) { before_ = requests_before; }
  void operator()(std::int64_t requests) {
    const double now_s = monotonic_s();
    if (!console_.err_terminal || now_s - begin_s_ < kProgressAfter_s || now_s - last_s_ < 0.2) return;
    last_s_ = now_s;
    drawn_ = true;
    const double done = static_cast<double>(before_ + requests);
    console_.err << fmt::format("\r\x1b[K{:.0f} of {} requests, {:.0f}%, {:.2g} million per second", done, total_,
                                100 * done / static_cast<double>(total_), done / (now_s - begin_s_) / 1e6)
                 << std::flush;
  }

 private:
  Console& console_;
  std::int64_t total_;
  double begin_s_;
  double last_s_ = 0;
  std::int64_t before_ = 0;
  bool drawn_ = false;
};

std::string placement_for(const std::string& policy) {
  return policy == "ws-rr" ? "cg-bp" : policy == "petals" ? "petals" : "gbp-cr";
}

// Throws CLI::ValidationError if options contradict each other.
void check_flags(ChainSimulateFlags& flags) {
  if (flags.choice.placement.empty()) flags.choice.placement = placement_for(flags.policy);
  check_choice(flags.choice);
  if (is_session_policy(flags.policy) && flags.choice.optimal) {
    throw CLI::ValidationError("--optimal", "needs a policy that dispatches to chains (got --policy " + flags.policy + ")");
  }
  const bool random = flags.policy == "random" || flags.policy == "jiq";
  if (!flags.trace.empty() && flags.replications > 1 && !random) {
    throw CLI::ValidationError("--replications", fmt::format("must be 1, since a trace under {} has no randomness (got {})",
                                                             flags.policy, flags.replications));
  }
}

Result<Plan> make_plan(const ChainSimulateFlags& flags) {
  Plan plan;
  if (flags.trace.empty()) {
    plan.measured = flags.requests.value_or(kDefaultRequests);
    plan.warm_up = flags.warm_up.value_or(plan.measured / 10);
    if (!flags.arrival_cv.empty()) plan.gap_cv = number_of(flags.arrival_cv);
  } else {
    WINDLASS_ASSIGN_OR_RETURN(const std::string text,
                              read_text_file(flags.trace, "a CSV file with TIMESTAMP,ContextTokens,GeneratedTokens"));
    auto rows = workload::parse_azure_trace(text);
    if (!rows.ok()) return rows.error().within(flags.trace);
    plan.rows = std::move(rows).value();
    const auto size = static_cast<std::int64_t>(plan.rows.size());
    plan.warm_up = flags.warm_up.value_or(0);
    plan.measured = flags.requests.value_or(std::max<std::int64_t>(1, size - plan.warm_up));
    if (plan.all() > size) {
      return Error{
          ErrorCode::kInvalidArgument,
          fmt::format(
              "--requests: must be at most the trace's rows, with the warm-up (got {} after {} of warm-up; {} rows in {})",
              plan.measured, plan.warm_up, size, flags.trace)};
    }
    plan.rows.resize(static_cast<std::size_t>(plan.all()));
  }
  WINDLASS_ASSIGN_OR_RETURN(plan.chosen, choose_chains(flags.choice));
  return plan;
}

std::unique_ptr<workload::RequestSource> make_source(const Plan& plan, std::uint64_t seed) {
  if (!plan.rows.empty()) return std::make_unique<workload::TraceSource>(plan.rows);
  return std::make_unique<workload::SyntheticSource>(
      workload::SyntheticWorkload{plan.chosen.instance.arrival_rate_per_s, plan.gap_cv, seed});
}

Result<sim::SimulationResult> simulate_dispatch(const Plan& plan, const std::string& policy_name, std::uint64_t seed,
                                                ChainProgress& progress) {
  WINDLASS_ASSIGN_OR_RETURN(const auto kind, dispatch::policy_from_string(policy_name));
  const auto chains = sim::simulated_chains(plan.chosen.instance, plan.chosen.composition.chains);
  const auto policy = dispatch::make_policy(kind, Rng(seed, "policy"));
  const auto source = make_source(plan, seed);
  sim::ChainSimulationOptions options;
  options.max_requests = plan.all();
  options.warm_up_requests = plan.warm_up;
  options.progress = [&progress](std::int64_t requests) { progress(requests); };
  return sim::simulate_chains(chains, *source, *policy, options);
}

Result<sim::SimulationResult> simulate_routing(const Plan& plan, const std::string& policy_name, std::uint64_t seed,
                                               ChainProgress& progress) {
  const chain::Instance& instance = plan.chosen.instance;
  const chain::Placement& placement = plan.chosen.composition.placement;
  sim::SessionPolicy policy;
  sim::SessionSimulationOptions options;
  options.max_requests = plan.all();
  options.warm_up_requests = plan.warm_up;
  if (policy_name == "petals") {
    policy.routing = sim::SessionRouting::kPetals;
    policy.start = sim::StartRule::kBackoff;
    options.slots = chain::petals_cache_slots(instance, placement, policy.petals);
  }
  options.on_event = [&progress, started = std::int64_t{0}](const sim::SessionEvent& event) mutable {
    if (event.step == sim::SessionStep::kStarted && (++started & 0xFF) == 0) progress(started);
  };
  const auto source = make_source(plan, seed);
  return sim::simulate_sessions(instance, placement, policy, *source, options);
}

// Before a long simulation, prints why it will be long.
void warn_of_overload(const Plan& plan, const ChainSimulateFlags& flags, const std::optional<double>& rate_per_s,
                      std::ostream& err) {
  const double served_per_s = plan.chosen.composition.total_service_rate_per_s;
  if (!is_session_policy(flags.policy) || !rate_per_s || *rate_per_s < served_per_s) return;
  err << fmt::format(
             "windlass chain simulate: {:.4g} requests/s arrive and at most {:.4g} are served. The backlog grows until the "
             "last arrival, so the run will be long{}; --requests shortens it\n",
             *rate_per_s, served_per_s, flags.policy == "petals" ? ", and every waiting request retries each minute" : "")
      << std::flush;
}

struct Outcome {
  ChosenChains chosen;
  ChainSimulationReport report;
};

Result<Outcome> run(const ChainSimulateFlags& flags, Console& console) {
  WINDLASS_ASSIGN_OR_RETURN(Plan plan, make_plan(flags));
  ChainSimulationReport report;
  report.policy = flags.policy;
  report.trace = flags.trace;
  report.seed = flags.seed;
  report.warm_up_requests = plan.warm_up;
  report.rate_per_s = plan.rows.empty() ? plan.chosen.instance.arrival_rate_per_s : workload::mean_rate_per_s(plan.rows);
  report.gap_cv = plan.rows.empty() ? plan.gap_cv : workload::gap_cv(plan.rows);
  warn_of_overload(plan, flags, report.rate_per_s, console.err);

  const double begin_s = monotonic_s();
  std::vector<sim::SimulationResult> results;
  {
    ChainProgress progress(console, plan.all() * flags.replications);
    for (int r = 0; r < flags.replications; ++r) {
      progress.begin_replication(r * plan.all());
      const std::uint64_t seed = flags.seed + static_cast<std::uint64_t>(r);
      WINDLASS_ASSIGN_OR_RETURN(const auto result, is_session_policy(flags.policy)
                                                       ? simulate_routing(plan, flags.policy, seed, progress)
                                                       : simulate_dispatch(plan, flags.policy, seed, progress));
      results.push_back(result);
    }
  }
  report.wall_s = monotonic_s() - begin_s;
  add_results(report, results);
  if (report.requests == 0) {
    return Error{ErrorCode::kDeadlineExceeded, "no request was served after the warm-up within 146 simulated years"};
  }
  return Outcome{std::move(plan.chosen), std::move(report)};
}

}  // namespace

void add_chain_simulate(CLI::App& app, CommandContext& context) {
  auto* command = app.add_subcommand("simulate", "Simulate requests on an instance's chains and print their latencies");
  auto flags = std::make_shared<ChainSimulateFlags>();
  flags->choice.placement = "";
  add_choice_options(*command, flags->choice);
  command->add_option("--placement", flags->choice.placement, "Placement algorithm; default: the one that fits the policy")
      ->check(CLI::IsMember({"gbp-cr", "cg-bp", "petals"}));
  command
      ->add_option(
          "--policy", flags->policy,
          "Policy: jffc, jsq, jiq, sed, sa-jsq, random and round-robin dispatch to chains; ws-rr and petals route over servers")
      ->check(CLI::IsMember({"jffc", "jsq", "jiq", "sed", "sa-jsq", "random", "round-robin", "ws-rr", "petals"}))
      ->capture_default_str();
  auto* trace =
      command->add_option("--trace", flags->trace, "CSV file of an Azure LLM trace to use instead of generated requests")
          ->option_text("CSV");
  command
      ->add_option("--arrival-cv", flags->arrival_cv,
                   "Coefficient of variation of the inter-arrival times: 1 (default) is Poisson, others are Gamma")
      ->check(number_between(0, 1000))
      ->excludes(trace);
  command->add_option("--requests", flags->requests, "Requests to measure per replication; default: 100000, or the whole trace")
      ->check(whole_between(1, kMaxRequests));
  command
      ->add_option("--warmup", flags->warm_up, "Requests before the measured ones; default: a tenth as many, or 0 with a trace")
      ->check(whole_between(0, kMaxRequests));
  command->add_option("--seed", flags->seed, "Seed of the first replication; each later one adds 1")
      ->check(whole_between(0, std::numeric_limits<std::int64_t>::max()))
      ->capture_default_str();
  command->add_option("--replications", flags->replications, "Runs with different seeds, for confidence intervals")
      ->check(whole_between(1, 10'000))
      ->capture_default_str();
  command->add_option("-o,--output", flags->output, "Output format: table or json")
      ->check(CLI::IsMember({"table", "json"}))
      ->capture_default_str();
  command->footer(
      "Generated requests have exponential sizes. With a trace, service times come from the tokens if every server has "
      "tokenTimes; otherwise a request's size is its tokens divided by the mean.");
  command->callback([&context, flags] {
    check_flags(*flags);
    const auto outcome = run(*flags, context.console);
    if (!outcome.ok()) {
      context.exit_code = report_chain_error(context.console.err, outcome.error());
    } else if (flags->output == "json") {
      context.console.out << report_json(outcome->chosen, outcome->report).dump(2) << "\n";
    } else {
      context.console.out << report_text(outcome->chosen, outcome->report);
    }
  });
}

}  // namespace windlass::cli
