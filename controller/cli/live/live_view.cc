// Joins snapshot, plan and gateway metrics into rows and prints them; see live_view.h.
#include "controller/cli/live/live_view.h"

#include <algorithm>

#include <fmt/format.h>

#include "controller/cli/console/text_table.h"

namespace windlass::cli {
namespace {

void tell_trouble(const planner::ServicePlan& plan, ServiceRow& row) {
  for (const planner::Hint* hint : {&plan.feasible, &plan.able_to_scale, &plan.metrics_fresh}) {
    if (hint->status == planner::Truth::kTrue || hint->reason.empty()) continue;
    if (!plan.recommended_pools.empty() && hint == &plan.able_to_scale) {
      int workers = 0;
      for (const planner::Pool& pool : plan.recommended_pools) workers += pool.workers;
      if (workers == row.desired) continue;
      row.trouble = fmt::format("{} workers are recommended, {} exist", workers, row.desired);
      row.trouble_code = hint->reason;
      return;
    }
    row.trouble_code = hint->reason;
    row.trouble = hint->message;
    return;
  }
}

std::optional<double> value_of(const std::optional<planner::Reading>& reading) {
  return reading ? std::optional<double>(reading->value) : std::nullopt;
}

std::optional<double> start_time(const metrics::Exposition& page) { return page.sum("process_start_time_seconds"); }

std::string csv_number(std::optional<double> value) { return value ? fmt::format("{:.4f}", *value) : ""; }

// Three significant digits: 1.7 ms is 0.0017.
std::string csv_latency(std::optional<double> seconds, Bound bound) {
  return seconds ? fmt::format("{}{:.3g}", sign_of(bound), *seconds) : "";
}

std::string against(std::optional<double> measured_s, Bound bound, double objective_s) {
  return seconds_text(measured_s, bound) + "/" + seconds_text(objective_s);
}

}  // namespace

void LiveView::observe(double now_s, const planner::Snapshot& snapshot, const planner::Plan& plan,
                       const std::map<std::string, metrics::Exposition>& gateways) {
  rows_.clear();
  for (const planner::Service& service : snapshot.services) {
    ServiceRow row;
    row.name_space = service.id.name_space;
    row.name = service.id.name;
    row.served_name = service.served_name;
    for (const planner::Worker& worker : service.workers) {
      switch (worker.state) {
        case planner::WorkerState::kReady: ++row.ready; break;
        case planner::WorkerState::kDraining: ++row.draining; break;
        case planner::WorkerState::kFailed: ++row.failed; break;
        case planner::WorkerState::kStarting:
        case planner::WorkerState::kUnschedulable: ++row.starting; break;
      }
    }
    row.desired = service.last_desired.value_or(0);
    for (const planner::ServicePlan& planned : plan.services) {
      if (planned.id != service.id) continue;
      row.desired = planned.desired_workers();
      row.cost_per_hour = planned.predicted.cost_per_hour;
      tell_trouble(planned, row);
    }
    row.ttft_slo_s = service.slo.ttft_s;
    row.tpot_slo_s = service.slo.tpot_s;
    row.percentile = service.slo.percentile;
    row.arrivals_per_s = value_of(service.demand.arrivals_per_s);
    row.queued = value_of(service.demand.queued);
    row.attainment = value_of(service.demand.attainment);
    if (const auto recent = value_of(service.demand.recent_attainment); recent && service.slo.percentile < 100)
      row.burn_rate = (1 - *recent) / (1 - service.slo.percentile / 100);
    row.ttft_s = value_of(service.demand.ttft_s);
    row.tpot_s = value_of(service.demand.tpot_s);
    row.ttft_bound = service.demand.ttft_s.value_or(planner::Reading{}).bound;
    row.tpot_bound = service.demand.tpot_s.value_or(planner::Reading{}).bound;
    track(now_s, service.served_name, gateways);
    measure(now_s, row, gateways);
    rows_.push_back(std::move(row));
  }
}

void LiveView::track(double now_s, const std::string& served_name, const std::map<std::string, metrics::Exposition>& gateways) {
  const std::map<std::string, std::string> match = {{"model", served_name}};
  for (const auto& [address, page] : gateways) {
    Trackers& trackers = trackers_[{address, served_name}];
    const auto start = start_time(page);
    if (const auto started = page.sum("windlass_gateway_requests_started_total", match)) {
      trackers.started.observe(now_s, *started, start);
    } else {
      trackers.started.observe_absent(now_s);
    }
    trackers.ttft.take(now_s, metrics::read_latencies(page, metrics::kGatewayTtft, match), start);
    trackers.tpot.take(now_s, metrics::read_latencies(page, metrics::kGatewayTpot, match), start);
  }
}

void LiveView::measure(double now_s, ServiceRow& row, const std::map<std::string, metrics::Exposition>& gateways) const {
  if (gateways.empty()) return;
  std::optional<double> arrivals;
  std::optional<double> queued;
  std::optional<metrics::LatencyCounts> ttft;
  std::optional<metrics::LatencyCounts> tpot;
  const auto add = [&](std::optional<metrics::LatencyCounts>& sum, const metrics::LatencyTracker& tracker) {
    const auto part = tracker.increase(now_s, window_s_);
    if (!part) return;
    if (!sum) sum.emplace();
    sum->add(*part);
  };
  for (const auto& [address, page] : gateways) {
    const Trackers& trackers = trackers_.at({address, row.served_name});
    if (const auto rate = trackers.started.rate_per_s(now_s, window_s_)) arrivals = arrivals.value_or(0) + *rate;
    if (const auto length = page.sum("windlass_gateway_queue_length", {{"model", row.served_name}})) {
      queued = queued.value_or(0) + *length;
    }
    add(ttft, trackers.ttft);
    add(tpot, trackers.tpot);
  }
  if (arrivals) row.arrivals_per_s = arrivals;
  if (queued) row.queued = queued;
  // If nothing finished lately, show nothing. The controller's figure covers a longer window.
  const auto show = [&](const std::optional<metrics::LatencyCounts>& counts, std::optional<double>& seconds, Bound& bound) {
    if (!counts) return;
    const auto found = counts->percentile(row.percentile);
    seconds = found ? std::optional(found->seconds) : std::nullopt;
    bound = found.value_or(metrics::Percentile{}).bound;
  };
  show(ttft, row.ttft_s, row.ttft_bound);
  show(tpot, row.tpot_s, row.tpot_bound);
}

std::string ttft_text(const ServiceRow& row) { return against(row.ttft_s, row.ttft_bound, row.ttft_slo_s); }
std::string tpot_text(const ServiceRow& row) { return against(row.tpot_s, row.tpot_bound, row.tpot_slo_s); }
std::string attained_text(const ServiceRow& row) {
  return percent_text(row.attainment) + fmt::format("/{:g}%", row.percentile);
}

std::string table_text(const std::vector<ServiceRow>& rows) {
  if (rows.empty()) return "No ModelService yet.\n";
  const bool one_percentile =
      std::all_of(rows.begin(), rows.end(), [&](const ServiceRow& row) { return row.percentile == rows[0].percentile; });
  const std::string p = one_percentile ? fmt::format(" p{:g}", rows[0].percentile) : "";
  TextTable table({"SERVICE", "DESIRED", "READY", "STARTING", "DRAINING", "ARRIVALS/S", "QUEUE", "TTFT" + p + "/SLO",
                   "TPOT" + p + "/SLO", "ATTAINED/SLO", "COST/H"});
  for (const ServiceRow& row : rows) {
    table.add({row.title(), std::to_string(row.desired), std::to_string(row.ready), std::to_string(row.starting),
               std::to_string(row.draining), number_text(row.arrivals_per_s, 1), number_text(row.queued, 0), ttft_text(row),
               tpot_text(row), attained_text(row), number_text(row.cost_per_hour, 2)});
  }
  std::string text = table.text();
  for (const ServiceRow& row : rows) {
    if (row.failed > 0) text += fmt::format("{}: {} workers failed; see their logs\n", row.title(), row.failed);
    if (!row.trouble_code.empty()) text += wrapped(row.title() + ": " + row.trouble_code + ": " + row.trouble, 0);
  }
  return text;
}

std::string state_text(const ServiceRow& row) {
  std::string text = fmt::format("{}: {} desired, {} ready", row.title(), row.desired, row.ready);
  if (row.starting > 0) text += fmt::format(", {} starting", row.starting);
  if (row.draining > 0) text += fmt::format(", {} draining", row.draining);
  if (row.failed > 0) text += fmt::format(", {} failed", row.failed);
  if (!row.trouble_code.empty()) text += "; " + row.trouble_code;
  return text;
}

std::string line_text(const ServiceRow& row) {
  return fmt::format("{}; {}/s, {} queued, TTFT p{:g} {}, TPOT p{:g} {}, attained {}", state_text(row),
                     number_text(row.arrivals_per_s, 1), number_text(row.queued, 0), row.percentile, ttft_text(row),
                     row.percentile, tpot_text(row), attained_text(row));
}

std::string csv_header() {
  return "elapsed_s,service,desired,ready,starting,draining,failed,arrivals_per_s,queued,ttft_s,tpot_s,attainment,cost_per_"
         "hour\n";
}

std::string csv_line(double elapsed_s, const ServiceRow& row) {
  return fmt::format("{:.1f},{},{},{},{},{},{},{},{},{},{},{},{:.4f}\n", elapsed_s, row.title(), row.desired, row.ready,
                     row.starting, row.draining, row.failed, csv_number(row.arrivals_per_s), csv_number(row.queued),
                     csv_latency(row.ttft_s, row.ttft_bound), csv_latency(row.tpot_s, row.tpot_bound),
                     csv_number(row.attainment), row.cost_per_hour);
}

}  // namespace windlass::cli
