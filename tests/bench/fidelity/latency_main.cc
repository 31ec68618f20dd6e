// latency_fidelity: measures the error of the latency models on ../shared/data and prints the Markdown tables of
// docs/algorithms/latency.md. `scripts/bench fidelity` puts them there.
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include "tests/bench/fidelity/end_to_end_tables.h"
#include "tests/bench/fidelity/latency_tables.h"
#include "tests/bench/fidelity/operator_tables.h"
#include "tests/bench/fidelity/ordering_tables.h"

int main(int argc, char** argv) {
  CLI::App app{"Measures the latency models against measured times."};
  std::string data = "../shared/data", out, aiconfigurator;
  std::vector<std::string> names, known;
  std::vector<windlass::bench::LatencyTable> tables = windlass::bench::latency_tables();
  for (const auto& more : {windlass::bench::operator_tables(), windlass::bench::ordering_tables()}) {
    tables.insert(tables.end(), more.begin(), more.end());
  }
  for (const auto& table : windlass::bench::end_to_end_tables({})) known.push_back(table.name);
  for (const auto& table : tables) known.push_back(table.name);
  app.add_option("--data", data, "Folder with profiles/")->capture_default_str();
  app.add_option("--out", out, "Folder for the tables (NAME.md) and charts (NAME.svg); default: print them");
  app.add_option("--aiconfigurator", aiconfigurator, "What ask_aiconfigurator.py wrote, for the table left-out-peers");
  app.add_option("names", names, "Tables to make; default: all")->check(CLI::IsMember(known));
  CLI11_PARSE(app, argc, argv);
  for (auto& table : windlass::bench::end_to_end_tables(aiconfigurator)) tables.push_back(std::move(table));
  if (!out.empty()) std::filesystem::create_directories(out);
  for (const auto& table : tables) {
    if (!names.empty() && std::find(names.begin(), names.end(), table.name) == names.end()) continue;
    const auto text = table.make(data);
    if (!text.ok()) {
      std::cerr << "latency_fidelity: " << table.name << ": " << text.error().message << '\n';
      return 2;
    }
    if (out.empty()) {
      std::cout << "## " << table.name << "\n\n" << *text << '\n';
    } else {
      std::ofstream(std::filesystem::path(out) / (table.name.ends_with(".svg") ? table.name : table.name + ".md")) << *text;
    }
  }
  return 0;
}
