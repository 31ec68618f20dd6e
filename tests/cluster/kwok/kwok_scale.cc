// kwok_scale: measures the controller with 1,000 ModelServices and 10,000 pods on a real API server, for `scripts/bench scale`:
// the time of its decisions and steps, the latency from an edit to the pod, its API requests and its memory.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <map>
#include <sstream>
#include <thread>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <unistd.h>

#include "tests/cluster/harness/wait.h"
#include "tests/cluster/kwok/kwok_cluster.h"
#include "tests/cluster/kwok/trace_load.h"

namespace windlass::testing {
namespace {

using nlohmann::json;
using std::chrono::seconds;

constexpr const char* kGatewayProgram = "windlass-gatewa";  // the kernel keeps fifteen characters of a name

struct Flags {
  int services = 1000;
  int workers_each = 10;
  int edits = 200;
  double steady_s = 60;
  double patience_s = 2400;  // for all workers to be ready
  std::string out = ".";
};

// Figures from the controller's own metrics and from the kernel.
struct Reading {
  double at_s = 0;
  double requests = 0, steps = 0, steps_s = 0, plans = 0, plans_s = 0, scrapes = 0, scrapes_s = 0;
  double cpu_s = 0, rss_mib = 0, peak_mib = 0;
  std::map<std::string, double> cpu_of_s;  // by program, of all that were started here
  double machine_s = 0;                    // CPU time used by all processes of this machine
};

double monotonic_s() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

double kib_of(const std::string& status, const std::string& key) {
  const std::size_t at = status.find(key);
  return at == std::string::npos ? 0 : std::stod(status.substr(at + key.size()));
}

// Fields of /proc/PID/stat: the program's name, its parent and its CPU time.
struct ProcessStat {
  std::string name;
  int parent = 0;
  double cpu_s = 0;
};
ProcessStat process_stat(const std::string& folder) {
  ProcessStat out;
  std::string stat = read_text_file(folder + "/stat");
  const std::size_t open = stat.find('('), close = stat.rfind(')');
  if (open == std::string::npos || close == std::string::npos || close + 2 > stat.size()) return out;
  out.name = stat.substr(open + 1, close - open - 1);
  std::istringstream fields(stat.substr(close + 2));
  std::string field;
  double ticks = 0;
  for (int i = 3; i <= 15 && fields >> field; ++i) {
    if (i == 4) out.parent = std::stoi(field);
    if (i >= 14) ticks += std::stod(field);
  }
  out.cpu_s = ticks / static_cast<double>(::sysconf(_SC_CLK_TCK));
  return out;
}

std::map<std::string, double> cpu_of_children_s() {
  std::map<std::string, double> all;
  std::error_code gone;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", gone)) {
    const std::string id = entry.path().filename();
    if (id.find_first_not_of("0123456789") != std::string::npos) continue;
    const ProcessStat one = process_stat(entry.path());
    if (one.parent == ::getpid()) all[one.name] += one.cpu_s;
  }
  return all;
}

// User, nice, system, interrupt and steal time count as used; idle and iowait do not.
double machine_cpu_s() {
  std::istringstream fields(read_text_file("/proc/stat"));
  std::string cpu;
  fields >> cpu;
  double used = 0, value = 0;
  for (int i = 0; i < 8 && fields >> value; ++i) used += i == 3 || i == 4 ? 0 : value;
  return used / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

Reading read(const Program& controller) {
  Reading now;
  now.at_s = monotonic_s();
  const std::string page = http_get(controller.url + "/metrics", 20).body;
  const std::string part = "windlass_controller_reconcile_step_duration_seconds";
  now.requests = sample(page, "windlass_controller_api_requests_total").value;
  now.steps = sample(page, "windlass_controller_reconcile_duration_seconds_count").value;
  now.steps_s = sample(page, "windlass_controller_reconcile_duration_seconds_sum").value;
  now.plans = sample(page, part + "_count", {{"step", "plan"}}).value;
  now.plans_s = sample(page, part + "_sum", {{"step", "plan"}}).value;
  now.scrapes = sample(page, part + "_count", {{"step", "scrape"}}).value;
  now.scrapes_s = sample(page, part + "_sum", {{"step", "scrape"}}).value;
  const std::string process = fmt::format("/proc/{}", controller.process->pid());
  const std::string status = read_text_file(process + "/status");
  now.rss_mib = kib_of(status, "VmRSS:") / 1024;
  now.peak_mib = kib_of(status, "VmHWM:") / 1024;
  now.cpu_s = process_stat(process).cpu_s;
  now.cpu_of_s = cpu_of_children_s();
  now.machine_s = machine_cpu_s();
  return now;
}

int ready_workers(const Program& controller) {
  return static_cast<int>(sample(http_get(controller.url + "/metrics", 20).body, "windlass_controller_ready_workers").value);
}

// "2026-01-01T10:20:30.123456Z" as seconds of its day.
double second_of_day(const std::string& rfc3339) {
  if (rfc3339.size() < 20) return 0;
  return std::stod(rfc3339.substr(11, 2)) * 3600 + std::stod(rfc3339.substr(14, 2)) * 60 + std::stod(rfc3339.substr(17));
}

// CPU time per pod, by program: of the first tenth of the pods, of those up to three tenths, and of the rest. Figures that grow
// from left to right grow with the cluster.
struct Stage {
  int ready = 0;
  Reading reading;
};
std::string cpu_table(const std::vector<Stage>& stages) {
  std::string table = "| CPU ms per pod |", ruler = "|---|";
  std::map<std::string, std::string> rows;
  std::string whole = "| all programs |", others = "| (cores used by anything else) |", pace = "| (pods per second) |";
  for (std::size_t i = 1; i < stages.size(); ++i) {
    const Stage &from = stages[i - 1], &to = stages[i];
    table += fmt::format(" pods {} to {} |", from.ready, to.ready);
    ruler += "---|";
    double sum_s = 0;
    const int pods = std::max(1, to.ready - from.ready);
    for (const auto& [name, cpu_s] : to.reading.cpu_of_s) {
      const auto before = from.reading.cpu_of_s.find(name);
      const double used_s = cpu_s - (before == from.reading.cpu_of_s.end() ? 0 : before->second);
      sum_s += used_s;
      rows[name] += fmt::format(" {:.1f} |", used_s / pods * 1e3);
    }
    const double span_s = to.reading.at_s - from.reading.at_s;
    whole += fmt::format(" {:.1f} |", sum_s / pods * 1e3);
    others += fmt::format(" {:.2f} |", (to.reading.machine_s - from.reading.machine_s - sum_s) / span_s);
    pace += fmt::format(" {:.1f} |", pods / span_s);
  }
  table += "\n" + ruler + "\n";
  for (const auto& [name, row] : rows) table += fmt::format("| {} |{}\n", name, row);
  return table + whole + "\n" + others + "\n" + pace + "\n";
}

std::string name_of(int index) { return fmt::format("svc-{:04}", index); }

// Ten services per namespace, like those of a team. For each disruption budget the controller manager scans all pods of the
// namespace: with all services in one namespace that cost would grow quadratically.
constexpr int kServicesOfANamespace = 10;
std::string namespace_of(int index) { return fmt::format("team-{:03}", index / kServicesOfANamespace); }

int wanted_workers(const Flags& flags) { return flags.services * flags.workers_each; }

Result<std::unique_ptr<KwokCluster>> cluster_with_services(const Flags& flags) {
  const int wanted = wanted_workers(flags);
  KwokOptions options;
  options.gpus_per_node = std::max(8, (wanted + flags.edits) / 200 + 14);
  options.links = false;  // a worker is one GPU
  options.start_min_s = 0.5;
  options.start_spread_s = 0.5;
  WINDLASS_ASSIGN_OR_RETURN(auto cluster, KwokCluster::start(options));
  std::vector<std::string> namespaces;
  for (int i = 0; i < flags.services; i += kServicesOfANamespace) namespaces.push_back(namespace_of(i));
  WINDLASS_RETURN_IF_ERROR(cluster->create_namespaces(namespaces));
  for (int i = 0; i < flags.services; ++i) {
    WINDLASS_RETURN_IF_ERROR(cluster->create_service(
        name_of(i),
        {{"slo", {{"timeToFirstToken", "60s"}, {"timePerOutputToken", "2s"}}},
         {"accelerators", json::array({{{"class", kSimulatedClasses[static_cast<std::size_t>(i) % 3]}}})},
         {"scaling", {{"minWorkers", flags.workers_each}, {"maxWorkers", 2 * flags.workers_each}}}},
        namespace_of(i)));
  }
  return cluster;
}

// Waits for all workers.
Result<std::vector<Stage>> fill(KwokCluster& cluster, const Program& controller, const Flags& flags, const Reading& before) {
  const int wanted = wanted_workers(flags);
  const double begin_s = before.at_s;
  std::vector<Stage> stages = {{0, before}};
  const bool full = eventually(
      seconds(static_cast<int>(flags.patience_s)),
      [&] {
        const int ready = ready_workers(controller);
        fmt::print(stderr, "{:.0f} s: {} workers are ready\n", monotonic_s() - begin_s, ready);
        const int tenths[] = {1, 3, 10};
        const auto next = stages.size() - 1;
        if (next < std::size(tenths) && ready >= wanted * tenths[next] / 10) {
          stages.push_back({ready, read(controller)});
          fmt::print(stderr, "{}", cpu_table(stages));
        }
        return ready >= wanted;
      },
      std::chrono::milliseconds(5000));
  if (!full) return Error{ErrorCode::kUnavailable, "not all workers became ready\n" + cluster.tails()};
  if (!controller.leads())
    return Error{ErrorCode::kUnavailable, "the controller lost its lease during the run\n" + cluster.tails()};
  return stages;
}

// Waits until pending writes (statuses, events) have settled.
void come_to_rest(const Program& controller, const Flags& flags) {
  double last_requests = read(controller).requests;
  (void)eventually(
      seconds(120),
      [&] {
        const double now = read(controller).requests;
        const double since = now - last_requests;
        last_requests = now;
        return since < flags.services / 10.0;
      },
      std::chrono::milliseconds(3000));
}

// Makes five edits per second, each asking for one more worker; waits for all of these workers.
Result<void> edit_services(KwokCluster& cluster, const Program& controller, const Flags& flags) {
  for (int i = 0; i < flags.edits; ++i) {
    const HttpAnswer edited = cluster.plane().send(
        "PATCH",
        fmt::format("/apis/windlass.dev/v1alpha1/namespaces/{}/modelservices/{}",
                    namespace_of(i * flags.services / flags.edits), name_of(i * flags.services / flags.edits)),
        {{"spec", {{"scaling", {{"minWorkers", flags.workers_each + 1}}}}}}, "application/merge-patch+json");
    if (!edited.ok()) return Error{ErrorCode::kUnavailable, edited.describe()};
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
  const bool grown = eventually(
      seconds(120), [&] { return ready_workers(controller) >= wanted_workers(flags) + flags.edits; },
      std::chrono::milliseconds(2000));
  if (!grown) return Error{ErrorCode::kUnavailable, "not every edit led to a ready worker\n" + cluster.tails()};
  return {};
}

// From each edit to the creation of the first pod it caused, in ascending order.
std::vector<double> latencies_s(KwokCluster& cluster, const Program& controller) {
  std::map<std::string, double> edited_s;
  std::vector<double> all_s;
  for (const AuditEvent& event : cluster.plane().audit_log()) {
    if (event.resource == "modelservices" && event.verb == "patch" && event.subresource.empty() && event.code == 200) {
      edited_s[event.name] = second_of_day(event.received);
    }
    if (event.resource != "pods" || event.verb != "create" || !event.subresource.empty() || event.code != 201) continue;
    if (event.credential != controller.credential) continue;
    const auto edit = edited_s.find(event.name.substr(0, 8));
    if (edit == edited_s.end()) continue;
    all_s.push_back(second_of_day(event.received) - edit->second);
    edited_s.erase(edit);
  }
  std::sort(all_s.begin(), all_s.end());
  return all_s;
}

struct Readings {
  Reading before, filled, rest, steady, calm, busy;
};

std::string figures(const Flags& flags, const Readings& seen, const std::vector<double>& latencies_s) {
  std::string table = "| figure | value |\n|---|---|\n";
  const auto row = [&](const std::string& name, const std::string& value) {
    table += fmt::format("| {} | {} |\n", name, value);
  };
  const auto rate = [](double more, const Reading& a, const Reading& b) { return more / (b.at_s - a.at_s); };
  const auto mean_ms = [](double sum_s, double count) { return count > 0 ? sum_s / count * 1e3 : 0; };
  row("ModelServices / pods", fmt::format("{} / {}", flags.services, wanted_workers(flags)));
  row("from no pod to all ready",
      fmt::format("{:.0f} s, {:.0f} API requests/s of the controller", seen.filled.at_s - seen.before.at_s,
                  rate(seen.filled.requests - seen.before.requests, seen.before, seen.filled)));
  row("one global decision (make_plan and storing its memory), mean",
      fmt::format("{:.0f} ms", mean_ms(seen.steady.plans_s - seen.rest.plans_s, seen.steady.plans - seen.rest.plans)));
  row("whole step, steady, mean",
      fmt::format("{:.0f} ms", mean_ms(seen.steady.steps_s - seen.rest.steps_s, seen.steady.steps - seen.rest.steps)));
  row("part of it: scraping the gateway and up to 1,000 workers, mean",
      fmt::format("{:.0f} ms", mean_ms(seen.steady.scrapes_s - seen.rest.scrapes_s, seen.steady.scrapes - seen.rest.scrapes)));
  row("edit of a ModelService to the pod's creation, p50 / p99",
      fmt::format("{:.2f} s / {:.2f} s ({} of {} edits, 5 per second)", quantile(latencies_s, 0.5), quantile(latencies_s, 0.99),
                  latencies_s.size(), flags.edits));
  row("API requests of the controller, steady",
      fmt::format("{:.1f} /s", rate(seen.steady.requests - seen.rest.requests, seen.rest, seen.steady)));
  row("API requests of the controller, during the edits",
      fmt::format("{:.1f} /s", rate(seen.busy.requests - seen.calm.requests, seen.calm, seen.busy)));
  row("CPU of the controller, steady",
      fmt::format("{:.2f} cores", rate(seen.steady.cpu_s - seen.rest.cpu_s, seen.rest, seen.steady)));
  const double gateway_s = seen.steady.cpu_of_s.at(kGatewayProgram) - seen.rest.cpu_of_s.at(kGatewayProgram);
  row("CPU of the gateway, steady, no requests", fmt::format("{:.2f} cores", rate(gateway_s, seen.rest, seen.steady)));
  row("resident memory of the controller, steady / most",
      fmt::format("{:.0f} / {:.0f} MiB", seen.steady.rss_mib, seen.busy.peak_mib));
  return table;
}

Result<void> run(const Flags& flags) {
  WINDLASS_ASSIGN_OR_RETURN(const auto cluster, cluster_with_services(flags));
  fmt::print(stderr, "{} ModelServices exist\n", flags.services);
  WINDLASS_ASSIGN_OR_RETURN(const Program controller, cluster->start_controller("controller"));
  WINDLASS_ASSIGN_OR_RETURN(const Program gateway, cluster->start_gateway("gateway", {&controller}));
  Readings seen;
  seen.before = read(controller);
  WINDLASS_ASSIGN_OR_RETURN(const std::vector<Stage> stages, fill(*cluster, controller, flags, seen.before));
  seen.filled = read(controller);
  come_to_rest(controller, flags);
  seen.rest = read(controller);
  std::this_thread::sleep_for(std::chrono::duration<double>(flags.steady_s));  // the measured time span
  seen.steady = read(controller);
  fmt::print(stderr, "steady state measured; now making {} edits\n", flags.edits);
  seen.calm = read(controller);
  WINDLASS_RETURN_IF_ERROR(edit_services(*cluster, controller, flags));
  seen.busy = read(controller);
  const std::string table = figures(flags, seen, latencies_s(*cluster, controller)) + "\n" + cpu_table(stages);
  write_text_file(flags.out + "/scale.md", table);
  fmt::print("{}", table);
  return {};
}

}  // namespace
}  // namespace windlass::testing

int main(int argc, char** argv) {
  windlass::testing::Flags flags;
  CLI::App app{"The controller at 1,000 ModelServices and 10,000 pods on KWOK's nodes"};
  app.add_option("--services", flags.services, "ModelServices")->check(CLI::Range(1, 2000));
  app.add_option("--workers", flags.workers_each, "workers of each ModelService")->check(CLI::Range(1, 10));
  app.add_option("--edits", flags.edits, "number of ModelServices to edit")->check(CLI::Range(1, 1000));
  app.add_option("--steady", flags.steady_s, "seconds of steady state to measure");
  app.add_option("--patience", flags.patience_s, "seconds within which all workers must be ready");
  app.add_option("--out", flags.out, "folder for scale.md");
  CLI11_PARSE(app, argc, argv);
  flags.edits = std::min(flags.edits, flags.services);
  const auto result = windlass::testing::run(flags);
  if (!result.ok()) fmt::print(stderr, "kwok_scale: {}\n", result.error().message);
  return result.ok() ? 0 : 1;
}
