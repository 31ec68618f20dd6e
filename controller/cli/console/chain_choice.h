// The options that `windlass chain compose` and `windlass chain simulate` share. Reads the INSTANCE file, applies the options,
// and composes the chains with the chosen placement algorithm.
//
// Reads files; the planner does the rest. Single-threaded.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "planner/base/result.h"
#include "planner/chain/compose.h"

namespace CLI {
class App;
class Validator;
}  // namespace CLI

namespace windlass::cli {

struct ChainChoice {
  std::vector<std::string> files;
  std::string arrival_rate;  // empty: use the file's
  std::string max_load;      // empty: use the file's
  std::string capacity = "auto";
  std::string tuning;  // empty: lower bound
  std::string placement = "gbp-cr";
  std::string design_load = "auto";
  bool optimal = false;
  bool all_servers = false;
};

struct ChosenChains {
  chain::Instance instance;
  chain::Composition composition;
  std::string placement;                // "gbp-cr", "cg-bp", "petals"
  std::optional<chain::Tuning> tuning;  // how c was chosen; nullopt if c was given or the placement has none
  bool all_servers = false;             // GBP-CR placed every server
  std::string caches = "gca";           // "ilp" if the integer program gave the capacities
  bool proved = true;                   // the integer program proved that no fewer capacities carry the requested load
  std::string note;                     // for people: why an option had no effect, or less than asked; usually empty
};

// Adds -f, --arrival-rate and the other options to a command. `choice` must outlive the app's parsing.
void add_choice_options(CLI::App& command, ChainChoice& choice);

// Throws CLI::ValidationError if options contradict each other.
void check_choice(const ChainChoice& choice);

// Errors: those of reading the file and of the composition.
[[nodiscard]] Result<ChosenChains> choose_chains(const ChainChoice& choice);

struct ReadInstance {
  std::string path;  // of its file
  chain::Instance instance;
};
// Reads an instance, and the AcceleratorClasses that it names, from files. Errors are "FILE:LINE: field: ...".
[[nodiscard]] Result<ReadInstance> read_instance_files(const std::vector<std::string>& paths);

[[nodiscard]] Result<chain::Tuning> tuning_from_string(std::string_view name);

// Prints the error and returns the exit code: 2 for bad input or if no full chain can be placed, otherwise 1.
[[nodiscard]] int report_chain_error(std::ostream& err, const Error& error);

// Validators of option values: a finite number in the range, a whole number, and either "auto" or a whole number.
[[nodiscard]] CLI::Validator number_between(double low, double high);
[[nodiscard]] CLI::Validator whole_between(std::int64_t low, std::int64_t high);
[[nodiscard]] CLI::Validator auto_or_whole(std::int64_t low, std::int64_t high);

// REQUIRES: `text` passed number_between().
[[nodiscard]] double number_of(const std::string& text);

}  // namespace windlass::cli
