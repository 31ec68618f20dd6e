// Which chains a `windlass chain` command talks about: the INSTANCE file, what its options change, and the algorithm that
// places.
//
// Shared by compose and simulate. Reads files; the rest is the planner's. Single-threaded.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <string_view>

#include "planner/base/result.h"
#include "planner/chain/compose.h"

namespace CLI {
class App;
class Validator;
}  // namespace CLI

namespace windlass::cli {

struct ChainChoice {
  std::string file;
  std::string arrival_rate;  // empty: the file's
  std::string max_load;      // empty: the file's
  std::string capacity = "auto";
  std::string tuning;  // empty: by the lower bound
  std::string placement = "gbp-cr";
  std::string design_load = "auto";
  bool optimal = false;
  bool all_servers = false;
};

struct ChosenChains {
  chain::Instance instance;
  chain::Composition composition;
  std::string placement;                // "gbp-cr", "cg-bp", "petals"
  std::optional<chain::Tuning> tuning;  // how c was chosen; none when it was given, and for other placements
  bool all_servers = false;             // GBP-CR was told to place every server
  std::string caches = "gca";           // "ilp" when the integer program gave the capacities
  bool proved = true;                   // of the integer program: no fewer capacities reach the wanted load
  std::string note;                     // for people: why an option had no effect, or less of one; mostly empty
};

// Adds -f, --arrival-rate and so on to a command. The choice must outlive the app's parsing.
void add_choice_options(CLI::App& command, ChainChoice& choice);

// Throws CLI::ValidationError when options do not go together.
void check_choice(const ChainChoice& choice);

// Errors: the file's or the composition's.
[[nodiscard]] Result<ChosenChains> choose_chains(const ChainChoice& choice);

// The instance in a file. The error is "FILE:LINE: field: found, allowed".
[[nodiscard]] Result<chain::Instance> read_instance_file(const std::string& path);

[[nodiscard]] Result<chain::Tuning> tuning_from_string(std::string_view name);

// Prints the error and gives the exit code: 2 for bad input and when no full chain can be placed, 1 for everything else.
[[nodiscard]] int report_chain_error(std::ostream& err, const Error& error);

// Option values: a finite number within the range, a whole one, or "auto" beside a whole one.
[[nodiscard]] CLI::Validator number_between(double low, double high);
[[nodiscard]] CLI::Validator whole_between(std::int64_t low, std::int64_t high);
[[nodiscard]] CLI::Validator auto_or_whole(std::int64_t low, std::int64_t high);

// Of a text that passed number_between().
[[nodiscard]] double number_of(const std::string& text);

}  // namespace windlass::cli
