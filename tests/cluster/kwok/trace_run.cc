// Implements trace_run.h.
#include "tests/cluster/kwok/trace_run.h"

#include <algorithm>
#include <cmath>
#include <csignal>
#include <set>
#include <thread>

#include <fmt/format.h>

#include "planner/base/duration.h"
#include "planner/base/rng.h"
#include "planner/workload/trace.h"
#include "tests/cluster/harness/wait.h"

namespace windlass::testing {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;
using std::chrono::seconds;

// Objective of every service, in the trace's own time.
constexpr double kTtftSloS = 8;
constexpr double kTpotSloS = 0.4;
constexpr double kWindowS = 300;
constexpr double kStabilizationS = 300;
constexpr double kDrainTimeoutS = 1800;
constexpr double kStartMinS = 60;
constexpr double kStartSpreadS = 60;
constexpr int kMaxWorkers = 12;
constexpr int kMaxContext = 16384;

class TraceRun {
 public:
  explicit TraceRun(const TraceRunOptions& options) : options_(options) {}

  Result<TraceRunReport> run() {
    const double a = options_.acceleration;
    WINDLASS_ASSIGN_OR_RETURN(std::vector<PlannedRequest> requests, plan_requests(options_));
    KwokOptions cluster;
    cluster.acceleration = a;
    cluster.start_min_s = kStartMinS / a;
    cluster.start_spread_s = kStartSpreadS / a;
    cluster.seed = options_.seed;
    WINDLASS_ASSIGN_OR_RETURN(cluster_, KwokCluster::start(cluster));
    say("control plane, {} nodes: up", cluster.nodes);
    for (int i = 0; i < options_.services; ++i) WINDLASS_RETURN_IF_ERROR(cluster_->create_service(service_name(i), spec(i)));
    for (const char* name : {"controller-a", "controller-b"}) {
      WINDLASS_ASSIGN_OR_RETURN(Program one, cluster_->start_controller(name, controller_flags()));
      controllers_.push_back(std::move(one));
    }
    for (const char* name : {"gateway-a", "gateway-b"}) {
      WINDLASS_ASSIGN_OR_RETURN(Program one,
                                cluster_->start_gateway(name, {&controllers_[0], &controllers_[1]}, gateway_flags()));
      gateways_.push_back(std::move(one));
    }
    const bool up = eventually(
        kPatience, [&] { return all_served(); }, milliseconds(500));
    if (!up) return Error{ErrorCode::kUnavailable, "not every service got a ready worker\n" + cluster_->tails()};
    say("{} services have their first worker; sending {} requests", options_.services, requests.size());

    TraceLoadOptions load;
    for (const Program& gateway : gateways_) load.gateways.push_back(gateway.url.substr(7));
    load.requests = std::move(requests);
    load.ttft_slo_s = kTtftSloS / a;
    load.tpot_slo_s = kTpotSloS / a;
    load.timeout_s = 120;
    load_ = std::make_unique<TraceLoad>(std::move(load));
    const double sending_s = options_.trace_s / a;
    std::vector<Kill> kills = options_.kills;
    while ((!load_->finished() || !kills.empty()) && load_->elapsed_s() < sending_s + 240) {
      if (!kills.empty() && load_->elapsed_s() >= kills.front().at_s) {
        const Kill next = kills.front();
        kills.erase(kills.begin());
        WINDLASS_RETURN_IF_ERROR(kill(next.what));
      }
      look();
      std::this_thread::sleep_for(milliseconds(1000));  // polling interval; no result depends on it
    }
    return conclude();
  }

 private:
  template <class... Args>
  void say(fmt::format_string<Args...> text, Args&&... args) const {
    if (options_.say) options_.say(fmt::format(text, std::forward<Args>(args)...));
  }

  [[nodiscard]] std::string scaled(double seconds) const { return print_duration(seconds / options_.acceleration); }

  [[nodiscard]] json spec(int index) const {
    json classes = json::array();
    // Each service may use two of the three classes.
    for (int k = 0; k < 2; ++k) classes.push_back({{"class", kSimulatedClasses[static_cast<std::size_t>(index + k) % 3]}});
    return {{"model", {{"maxContextTokens", kMaxContext}}},
            {"slo",
             {{"timeToFirstToken", scaled(kTtftSloS)},
              {"timePerOutputToken", scaled(kTpotSloS)},
              {"percentile", 95},
              {"window", scaled(kWindowS)}}},
            {"workload", {{"inputTokens", 1155}, {"outputTokens", 211}}},
            {"accelerators", classes},
            {"scaling",
             {{"minWorkers", 1},
              {"maxWorkers", kMaxWorkers},
              {"drainTimeout", scaled(kDrainTimeoutS)},
              {"behavior", {{"scaleDown", {{"stabilizationWindow", scaled(kStabilizationS)}}}}}}}};
  }

  [[nodiscard]] std::vector<std::string> controller_flags() const { return {"--tick=500ms", "--load-status-period=5s"}; }
  [[nodiscard]] std::vector<std::string> gateway_flags() const {
    return {"--queue-timeout=" + scaled(180), "--request-timeout=" + scaled(600)};
  }

  [[nodiscard]] bool all_served() const {
    std::set<std::string> served;
    for (const json& service : cluster_->services()) {
      const json status = service.value("status", json::object());
      if (status.value("workers", json::object()).value("ready", 0) > 0) served.insert(service["metadata"].value("name", ""));
    }
    if (static_cast<int>(served.size()) < options_.services || cluster_->of_fake_workers("pods") < options_.services)
      return false;
    // The gateways must know them, too.
    return std::all_of(gateways_.begin(), gateways_.end(), [&](const Program& gateway) {
      const HttpAnswer models = http_get(gateway.url + "/v1/models");
      return models.ok() && models.json().value("data", json::array()).size() >= static_cast<std::size_t>(options_.services);
    });
  }

  Program* leader() {
    const auto found = std::find_if(controllers_.begin(), controllers_.end(), [](const Program& one) { return one.leads(); });
    return found == controllers_.end() ? nullptr : &*found;
  }

  void violate(const std::string& what) {
    if (seen_violations_.insert(what).second)
      report_.violations.push_back(fmt::format("at {:.0f} s: {}", load_->elapsed_s(), what));
  }

  [[nodiscard]] double decisions() const {
    double sum = 0;
    for (const Program& one : controllers_) {
      sum += sample(http_get(one.url + "/metrics").body, "windlass_controller_reconcile_duration_seconds_count").value;
    }
    return sum;
  }

  // Kills a component, waits until it serves again and until a controller leads and decides.
  Result<void> kill(const std::string& what) {
    const double begin_s = load_->elapsed_s();
    say("{:.0f} s: SIGKILL of {}", begin_s, what);
    Recovery recovery{what, 0, 0};
    if (what == "kube-apiserver") {
      cluster_->plane().stop_api_server(SIGKILL);
      WINDLASS_RETURN_IF_ERROR(cluster_->plane().start_api_server());
    } else if (what == "etcd") {
      cluster_->plane().stop_etcd(SIGKILL);
      WINDLASS_RETURN_IF_ERROR(cluster_->plane().start_etcd());
      if (!eventually(kPatience, [&] { return cluster_->plane().ready(); }))
        return Error{ErrorCode::kUnavailable, "kube-apiserver did not become ready after etcd's restart\n" + cluster_->tails()};
    } else {
      Program* leading = leader();
      if (leading == nullptr) return Error{ErrorCode::kFailedPrecondition, "no controller leads: there is no leader to kill"};
      retired_decisions_ +=
          sample(http_get(leading->url + "/metrics").body, "windlass_controller_reconcile_duration_seconds_count").value;
      leading->process->signal(SIGKILL);
      (void)leading->process->wait(seconds(10));
    }
    recovery.down_s = load_->elapsed_s() - begin_s;
    const bool recovered = eventually(seconds(90), [&] {
      Program* leading = leader();
      if (leading == nullptr) return false;
      const HttpAnswer plan = http_get(leading->url + "/v1/plan");
      return plan.ok() && cluster_->plane().ready();
    });
    recovery.recovered_s = load_->elapsed_s() - begin_s;
    if (!recovered) violate(fmt::format("90 s after the kill of {} no controller leads", what));
    report_.recoveries.push_back(recovery);
    say("{:.0f} s: {} serves again after {:.1f} s, a controller leads after {:.1f} s", load_->elapsed_s(), what,
        recovery.down_s, recovery.recovered_s);
    return {};
  }

  void look() {
    Sighting seen;
    seen.at_s = load_->elapsed_s();
    const TraceLoadReport load = load_->report();
    seen.sent = load.sent;
    seen.in_flight = load.in_flight();
    std::map<std::string, std::map<std::string, int>> live;
    for (const json& pod : cluster_->workers()) {
      const json annotations = pod["metadata"].value("annotations", json::object());
      const std::string uid = pod["metadata"].value("uid", "");
      if (pods_.insert(uid).second) ++report_.pods_created;
      ++seen.pods;
      seen.gpus += std::stoi(annotations.value("windlass.dev/gpus", "0"));
      const json& labels = pod["metadata"]["labels"];
      if (!annotations.contains("windlass.dev/draining-since"))
        ++live[labels.value("windlass.dev/service", "")][labels.value("windlass.dev/pool", "")];
    }
    for (const json& service : cluster_->services()) {
      const std::string name = service["metadata"].value("name", "");
      const json workers = service.value("status", json::object()).value("workers", json::object());
      seen.desired += workers.value("desired", 0);
      seen.ready += workers.value("ready", 0);
      const int desired = workers.value("desired", 0);
      if (const auto before = desired_.find(name); before != desired_.end() && before->second != desired) ++report_.changes;
      desired_[name] = desired;
      // While a service changes what it runs, its limit bounds the old and the new workers separately.
      int all = 0;
      for (const auto& [pool, count] : live[name]) {
        all += count;
        if (count > kMaxWorkers)
          violate(fmt::format("{} has {} workers of {}; its maxWorkers is {}", name, count, pool, kMaxWorkers));
      }
      if (all > 2 * kMaxWorkers)
        violate(fmt::format("{} has {} old and new workers; its maxWorkers is {}", name, all, kMaxWorkers));
      if (desired < 1) violate(fmt::format("{} wants {} workers; its minWorkers is 1", name, desired));
    }
    const auto leaders =
        std::count_if(controllers_.begin(), controllers_.end(), [](const Program& one) { return one.leads(); });
    if (leaders > 1) violate("two controllers claim to lead");
    if (!report_.sightings.empty()) {
      report_.gpu_hours += seen.gpus * (seen.at_s - report_.sightings.back().at_s) * options_.acceleration / 3600;
    }
    if (seen.pods > 0) report_.sightings.push_back(seen);
    if (++looks_ % 15 == 0) {
      say("{:.0f} s: {} sent, {} in flight, {} lost, {} refused; workers: {} wanted, {} ready; {} GPUs; attainment {:.4f}",
          seen.at_s, load.sent, load.in_flight(), load.lost, load.refused, seen.desired, seen.ready, seen.gpus,
          load.attainment());
    }
  }

  // The controllers' writes in the audit log: the writer changes at most once per kill. Two that write in turn would show as
  // many changes.
  void check_audit() {
    std::vector<std::string> order;
    int deleted = 0;
    for (const AuditEvent& event : cluster_->plane().audit_log()) {
      if (!event.mutating() || event.code >= 300 || event.resource == "leases") continue;
      const bool ours = std::any_of(controllers_.begin(), controllers_.end(),
                                    [&](const Program& one) { return one.credential == event.credential; });
      if (!ours) continue;
      if (event.verb == "delete" && event.resource == "pods") ++deleted;
      if (!order.empty() && order.back() == event.credential) continue;
      order.push_back(event.credential);
    }
    report_.pods_deleted = deleted;
    const std::size_t changes = order.empty() ? 0 : order.size() - 1;
    if (changes > options_.kills.size()) {
      report_.violations.push_back(fmt::format("the writer changed {} times in {} kills", changes, options_.kills.size()));
    }
  }

  Result<TraceRunReport> conclude() {
    report_.load = load_->report();
    report_.wall_s = load_->elapsed_s();
    report_.plans = decisions() + retired_decisions_;
    check_audit();
    if (const auto broken = cluster_->of_fake_workers("broken"); broken > 0) {
      report_.violations.push_back(fmt::format("{} requests were broken by the end of their worker", broken));
    }
    if (const auto waiting = cluster_->of_fake_workers("waiting"); waiting > 0) {
      report_.violations.push_back(fmt::format("{} pods never answered on their address\n{}", waiting,
                                               tail_of_file(cluster_->log_of("fake-worker"), 10)));
    }
    return std::move(report_);
  }

  TraceRunOptions options_;
  std::unique_ptr<KwokCluster> cluster_;
  std::vector<Program> controllers_, gateways_;
  std::unique_ptr<TraceLoad> load_;
  TraceRunReport report_;
  std::set<std::string> seen_violations_;
  std::set<std::string> pods_;
  std::map<std::string, int> desired_;
  double retired_decisions_ = 0;
  int looks_ = 0;
};

}  // namespace

std::string service_name(int index) { return fmt::format("model-{:02}", index); }

Result<std::vector<PlannedRequest>> plan_requests(const TraceRunOptions& options) {
  WINDLASS_ASSIGN_OR_RETURN(const std::vector<workload::TraceRow> rows,
                            workload::parse_azure_trace(read_text_file(options.trace_path)));
  // Zipf with exponent 1: the first of fifty gets 22 % of the requests.
  std::vector<double> upto;
  double sum = 0;
  for (int i = 0; i < options.services; ++i) upto.push_back(sum += 1.0 / (i + 1));
  Rng random(options.seed, "service-of-request");
  std::vector<PlannedRequest> planned;
  for (const workload::TraceRow& row : rows) {
    const double draw = random.uniform() * sum;
    const auto service = static_cast<int>(std::lower_bound(upto.begin(), upto.end(), draw) - upto.begin());
    if (row.arrival_s < options.trace_from_s || row.arrival_s >= options.trace_from_s + options.trace_s) continue;
    PlannedRequest one;
    one.at_s = (row.arrival_s - options.trace_from_s) / options.acceleration;
    one.model = service_name(std::min(service, options.services - 1));
    one.output_tokens = std::max(1, row.output_tokens);
    one.input_tokens = std::clamp(row.input_tokens, 1, kMaxContext - one.output_tokens - 1);
    planned.push_back(std::move(one));
  }
  if (planned.empty()) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("{}: no rows between {} s and {} s", options.trace_path,
                                                          options.trace_from_s, options.trace_from_s + options.trace_s)};
  }
  return planned;
}

std::string TraceRunReport::table() const {
  int most = 0;
  double ready = 0;
  for (const Sighting& one : sightings) {
    most = std::max(most, one.ready);
    ready += one.ready;
  }
  const double mean = sightings.empty() ? 0 : ready / static_cast<double>(sightings.size());
  std::string text = "| figure | value |\n|---|---|\n";
  const auto row = [&](const std::string& name, const std::string& value) {
    text += fmt::format("| {} | {} |\n", name, value);
  };
  row("requests sent / completely answered / refused (429, 503) / lost",
      fmt::format("{} / {} / {} / {}", load.sent, load.answered, load.refused, load.lost));
  row("attainment (TTFT and TPOT both inside, of all requests)", fmt::format("{:.2f} %", load.attainment() * 100));
  row("TTFT p50 / p95 / p99, s (accelerated)", fmt::format("{:.3f} / {:.3f} / {:.3f}", quantile(load.ttft_s, 0.5),
                                                           quantile(load.ttft_s, 0.95), quantile(load.ttft_s, 0.99)));
  row("TPOT p50 / p95 / p99, ms (accelerated)",
      fmt::format("{:.1f} / {:.1f} / {:.1f}", quantile(load.tpot_s, 0.5) * 1e3, quantile(load.tpot_s, 0.95) * 1e3,
                  quantile(load.tpot_s, 0.99) * 1e3));
  row("ready workers, mean / maximum", fmt::format("{:.1f} / {}", mean, most));
  row("GPU-hours in the trace's time", fmt::format("{:.1f}", gpu_hours));
  row("steps of the controllers / changes of a wanted count / pods created / deleted",
      fmt::format("{:.0f} / {} / {} / {}", plans, changes, pods_created, pods_deleted));
  for (const Recovery& one : recoveries) {
    row(fmt::format("SIGKILL of {}: serves again / a controller leads", one.what),
        fmt::format("{:.1f} s / {:.1f} s", one.down_s, one.recovered_s));
  }
  row("violations seen from outside", violations.empty() ? "none" : fmt::format("{}", fmt::join(violations, "; ")));
  row("largest lag of the load generator itself", fmt::format("{} ms", load.max_late_ms));
  row("wall time of the trace", fmt::format("{:.0f} s", wall_s));
  return text;
}

std::string TraceRunReport::workers_csv() const {
  std::string text = "at_s,desired,ready,pods,gpus,in_flight,sent\n";
  for (const Sighting& one : sightings) {
    text += fmt::format("{:.1f},{},{},{},{},{},{}\n", one.at_s, one.desired, one.ready, one.pods, one.gpus, one.in_flight,
                        one.sent);
  }
  return text;
}

Result<TraceRunReport> run_trace(const TraceRunOptions& options) { return TraceRun(options).run(); }

}  // namespace windlass::testing
