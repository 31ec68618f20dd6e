// Prints every decision of many snapshots, one per line, so that a refactoring can prove that it changes none
// (`scripts/goldens`).
//
//   decisions [--snapshots N] [--seeds N]   name and hash, without messages, of the plans of N random snapshots (default: 5000)
//                                           and of every plan made in N simulated seeds (default: 50)
//   decisions --show NAME                   one plan as JSON, without messages; NAME as printed above
//   decisions --text [...]                  prints each plan's text after its name instead of a hash
//   decisions --launches FILE...            the launch hash of each pool of each ModelService in these files
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <spdlog/spdlog.h>

#include "controller/cli/console/object_files.h"
#include "controller/reconcile/spec.h"
#include "planner/base/fnv.h"
#include "planner/policy/json.h"
#include "planner/policy/make_plan.h"
#include "tests/simulation/vopr.h"
#include "tests/unit/planner/policy/random_snapshot.h"

namespace {

using nlohmann::ordered_json;
using windlass::planner::Plan;

void leave_out_words(ordered_json& value) {
  if (value.is_object()) {
    for (const char* key : {"message", "why", "pass"}) value.erase(key);
  }
  if (value.is_structured()) {
    for (auto& part : value) leave_out_words(part);
  }
}

std::string text_of(const Plan& plan) {
  ordered_json value = ordered_json::parse(windlass::planner::to_json(plan));
  leave_out_words(value);
  return value.dump();
}

std::uint64_t hash_of(const std::string& text) {
  windlass::Fnv1a hash;
  hash.mix(text);
  return hash.value();
}

struct Output {
  std::string show;  // empty: all
  bool text = false;

  void take(const std::string& name, const Plan& plan) const {
    if (show.empty()) {
      const std::string whole = text_of(plan);
      std::cout << (text ? fmt::format("{} {}\n", name, whole) : fmt::format("{} {:016x}\n", name, hash_of(whole)));
    } else if (name == show) {
      std::cout << ordered_json::parse(text_of(plan)).dump(2) << "\n";
    }
  }
};

void of_snapshots(std::uint64_t count, const Output& output) {
  for (std::uint64_t seed = 1; seed <= count; ++seed) {
    output.take(fmt::format("snapshot-{}", seed),
                windlass::planner::make_plan(windlass::planner::testing::random_snapshot(seed)));
  }
}

void of_seeds(std::uint64_t first, std::uint64_t last, const Output& output) {
  for (std::uint64_t seed = first; seed <= last; ++seed) {
    int number = 0;
    static_cast<void>(windlass::simulation::run_seed(
        seed, false, "", [&](const Plan& plan) { output.take(fmt::format("seed-{}-{}", seed, ++number), plan); }));
  }
}

int launches(const std::vector<std::string>& files) {
  namespace cli = windlass::cli;
  for (const std::string& file : files) {
    const auto objects = cli::read_object_files({file});
    if (!objects.ok()) {
      std::cerr << objects.error().message << "\n";
      return 1;
    }
    windlass::planner::Snapshot snapshot = cli::quiet_snapshot(*objects);
    cli::add_catalog_classes(snapshot);
    const Plan plan = windlass::planner::make_plan(snapshot);
    std::size_t service = 0;
    for (const auto& object : *objects) {
      const auto* of = std::get_if<windlass::api::ModelService>(&object.value);
      if (of == nullptr) continue;
      for (const auto& pool : plan.services.at(service++).pools) {
        windlass::api::AcceleratorClass accelerator;  // its labels and resource come from the class
        std::cout << fmt::format("{} {} {} {}\n", file, of->metadata.name, pool.name,
                                 windlass::controller::worker_spec(*of, pool, 0, accelerator).hash());
      }
    }
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  spdlog::set_level(spdlog::level::off);
  std::uint64_t snapshots = 5000, seeds = 50;
  Output output;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--launches") return launches({argv + i + 1, argv + argc});
    if (name == "--text") {
      output.text = true;
      continue;
    }
    if (i + 1 == argc || (name != "--show" && name != "--snapshots" && name != "--seeds")) {
      std::cerr << "decisions: flags must be --snapshots N, --seeds N, --show NAME, --text or --launches FILE...\n";
      return 2;
    }
    const std::string value = argv[++i];
    if (name == "--show") output.show = value;
    if (name == "--snapshots") snapshots = std::strtoull(value.c_str(), nullptr, 10);
    if (name == "--seeds") seeds = std::strtoull(value.c_str(), nullptr, 10);
  }
  if (output.show.starts_with("seed-")) {
    const std::uint64_t seed = std::strtoull(output.show.c_str() + 5, nullptr, 10);
    of_seeds(seed, seed, output);
    return 0;
  }
  of_snapshots(snapshots, output);
  of_seeds(1, output.show.empty() ? seeds : 0, output);
  return 0;
}
