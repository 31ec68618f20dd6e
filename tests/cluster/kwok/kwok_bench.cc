// kwok_bench: runs an Azure trace on a simulated cluster of 200 nodes; used by `scripts/bench kwok`.
#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "tests/cluster/kwok/trace_run.h"

int main(int argc, char** argv) {
  using namespace windlass::testing;
  TraceRunOptions options;
  std::string out = ".";
  bool kills = true;
  double minutes = 60;
  CLI::App app{"An hour of an Azure trace on KWOK's nodes, with real controllers and gateways"};
  app.add_option("--trace", options.trace_path, "AzureLLMInferenceTrace_conv.csv")->required();
  app.add_option("--minutes", minutes, "minutes of the trace to replay")->check(CLI::Range(1.0, 60.0));
  app.add_option("--acceleration", options.acceleration, "speed-up over the trace")->check(CLI::Range(1.0, 10.0));
  app.add_option("--services", options.services, "ModelServices")->check(CLI::Range(1, 100));
  app.add_option("--seed", options.seed, "seed of start-up times and of the services that requests go to");
  app.add_flag("!--no-kills", kills, "kill no component");
  app.add_option("--out", out, "folder for kwok.md and kwok-workers.csv");
  CLI11_PARSE(app, argc, argv);
  options.trace_s = minutes * 60;
  const double run_s = options.trace_s / options.acceleration;
  if (kills) options.kills = {{"kube-apiserver", run_s * 0.25}, {"etcd", run_s * 0.45}, {"leader", run_s * 0.65}};
  options.say = [](const std::string& text) { fmt::print(stderr, "{}\n", text); };
  const auto report = run_trace(options);
  if (!report.ok()) {
    fmt::print(stderr, "kwok_bench: {}\n", report.error().message);
    return 1;
  }
  for (const auto& [failure, count] : report->load.failures) fmt::print(stderr, "{} x {}\n", count, failure);
  write_text_file(out + "/kwok.md", report->table());
  write_text_file(out + "/kwok-workers.csv", report->workers_csv());
  fmt::print("{}", report->table());
  return report->violations.empty() && report->load.lost == 0 ? 0 : 1;
}
