// See signals.h.
#include "controller/reconcile/signals.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace windlass::controller {
namespace {

using metrics::Exposition;

kube::HttpRequest metrics_of(const std::string& address, double timeout_s) {
  kube::HttpRequest request;
  request.url = fmt::format("http://{}/metrics", address);
  request.timeout_s = timeout_s;
  return request;
}

Result<Exposition> read(const Result<kube::HttpResponse>& answer) {
  if (!answer.ok()) return answer.error();
  if (answer->status != 200) return Error{ErrorCode::kUnavailable, fmt::format("HTTP status {}", answer->status)};
  return metrics::parse_exposition(answer->body);
}

// Σ over gateways, absent if any part is: half a sum would look like less load.
void add(std::optional<double>& sum, bool& complete, const std::optional<double>& part) {
  if (!part) {
    complete = false;
    return;
  }
  sum = sum.value_or(0) + *part;
}

}  // namespace

Signals::Signals(kube::HttpTransport& transport, metrics::ControllerMetrics& metrics, SignalOptions options)
    : transport_(transport), metrics_(metrics), options_(options) {}

void Signals::scrape(const std::vector<GatewayPeer>& gateways, const std::vector<Worker>& workers,
                     const std::set<std::string>& models, double now_s) {
  std::vector<kube::HttpRequest> requests;
  for (const GatewayPeer& gateway : gateways) requests.push_back(metrics_of(gateway.admin_address, options_.timeout_s));
  std::vector<const Worker*> asked;
  for (const Worker& worker : workers) {
    if (worker.address.empty() || worker.finished || (!worker.ready && !worker.draining_since_s && !worker.terminating))
      continue;
    asked.push_back(&worker);
    requests.push_back(metrics_of(worker.address, options_.timeout_s));
  }
  const auto answers = transport_.send_all(requests);

  std::map<std::string, Gateway> still_known;
  for (std::size_t i = 0; i < gateways.size(); ++i) {
    Gateway gateway = std::move(gateways_[gateways[i].id]);
    if (const auto page = read(answers[i]); page.ok()) {
      read_gateway(gateway, *page, models, now_s);
    } else {
      metrics_.scrape_errors.with({{"target_kind", "gateway"}}).add();
    }
    still_known.emplace(gateways[i].id, std::move(gateway));
  }
  gateways_ = std::move(still_known);

  std::map<std::string, WorkerLoad> loads;
  for (const Worker& worker : workers) {
    if (const auto old = workers_.find(worker.uid); old != workers_.end()) loads.insert(*old);
  }
  for (std::size_t i = 0; i < asked.size(); ++i) {
    const auto page = read(answers[gateways.size() + i]);
    if (!page.ok()) {
      metrics_.scrape_errors.with({{"target_kind", "worker"}}).add();
      continue;
    }
    const auto running = page->sum("windlass_worker_requests_running");
    const auto waiting = page->sum("windlass_worker_requests_waiting");
    if (!running || !waiting || !std::isfinite(*running) || !std::isfinite(*waiting)) continue;
    loads[asked[i]->uid] = {{*running, now_s}, {*waiting, now_s}};
  }
  workers_ = std::move(loads);
}

void Signals::read_gateway(Gateway& gateway, const Exposition& page, const std::set<std::string>& models, double now_s) {
  const auto start = page.sum("process_start_time_seconds");
  for (const std::string& model : models) {
    const std::map<std::string, std::string> label = {{"model", model}};
    // A series that is absent from a page read in full stands at 0: no such request has come yet.
    const auto value = [&](const char* name) { return page.sum(name, label).value_or(0); };
    ModelSeries& series = gateway.models[model];
    const double before = series.started.total();
    series.started.observe(now_s, value("windlass_gateway_requests_started_total"), start);
    if (series.started.total() > before) series.last_arrival_s = now_s;
    series.attained.observe(now_s, value("windlass_gateway_requests_attained_total"), start);
    series.judged.observe(now_s, value("windlass_gateway_requests_judged_total"), start);
    series.prompt_tokens.observe(now_s, value("windlass_gateway_request_prompt_tokens_total"), start);
    series.generation_tokens.observe(now_s, value("windlass_gateway_request_generation_tokens_total"), start);
    series.measured.observe(now_s, value("windlass_gateway_requests_measured_total"), start);
    series.queued = value("windlass_gateway_queue_length");
    const auto histogram = [&](const char* name, metrics::HistogramTracker& tracker) {
      if (const auto now_seen = page.histogram(name, label); now_seen.ok()) {
        tracker.observe(now_s, *now_seen, start);
      } else if (now_seen.error().code == ErrorCode::kNotFound) {
        tracker.observe_absent(now_s);
      }
    };
    histogram("windlass_gateway_time_to_first_token_seconds", series.ttft);
    histogram("windlass_gateway_time_per_output_token_seconds", series.tpot);
  }
  std::erase_if(gateway.models, [&](const auto& one) { return !models.contains(one.first); });
  gateway.in_flight.clear();
  for (const metrics::Sample* sample : page.find("windlass_gateway_requests_in_flight")) {
    const auto chain = sample->labels.find("chain");
    if (chain != sample->labels.end()) gateway.in_flight[chain->second] += sample->value;
  }
  gateway.read_s = now_s;
}

planner::Demand Signals::demand(const ServiceQuery& query, double now_s) const {
  planner::Demand demand;
  demand.arrivals_window_s = options_.arrivals_window_s;
  if (gateways_.empty()) return demand;
  std::optional<double> arrivals, queued, prompt, generation, measured, attained, judged;
  bool arrivals_known = true, lengths_known = true, judged_known = true, all_read = true;
  double oldest_s = now_s;
  metrics::HistogramSnapshot ttft, tpot;
  for (const auto& [id, gateway] : gateways_) {
    const auto found = gateway.models.find(query.model);
    if (!gateway.read_s || found == gateway.models.end()) {
      all_read = false;
      continue;
    }
    const ModelSeries& series = found->second;
    oldest_s = std::min(oldest_s, *gateway.read_s);
    add(arrivals, arrivals_known, series.started.rate_per_s(now_s, options_.arrivals_window_s));
    queued = queued.value_or(0) + series.queued;
    add(prompt, lengths_known, series.prompt_tokens.increase(now_s, options_.lengths_window_s));
    add(generation, lengths_known, series.generation_tokens.increase(now_s, options_.lengths_window_s));
    add(measured, lengths_known, series.measured.increase(now_s, options_.lengths_window_s));
    add(attained, judged_known, series.attained.increase(now_s, query.window_s));
    add(judged, judged_known, series.judged.increase(now_s, query.window_s));
    const auto sum_into = [&](metrics::HistogramSnapshot& sum, const metrics::HistogramTracker& tracker) {
      const auto increase = tracker.increase(now_s, query.window_s);
      if (!increase) return;
      if (auto both = metrics::histogram_sum(sum, *increase); both.ok()) sum = std::move(*both);
    };
    sum_into(ttft, series.ttft);
    sum_into(tpot, series.tpot);
    if (series.last_arrival_s)
      demand.last_arrival_at_s = std::max(demand.last_arrival_at_s.value_or(0), *series.last_arrival_s);
  }
  const auto reading = [&](double value) { return planner::Reading{value, oldest_s}; };
  if (all_read && arrivals_known && arrivals) demand.arrivals_per_s = reading(*arrivals);
  if (all_read && queued) demand.queued = reading(*queued);
  if (lengths_known && measured && *measured >= options_.min_measured) {
    demand.input_tokens = reading(*prompt / *measured);
    demand.output_tokens = reading(*generation / *measured);
  }
  if (judged_known && judged && *judged > 0) demand.attainment = reading(*attained / *judged);
  if (const auto at = metrics::histogram_quantile(ttft, query.percentile / 100)) demand.ttft_s = reading(*at);
  if (const auto at = metrics::histogram_quantile(tpot, query.percentile / 100)) demand.tpot_s = reading(*at);
  return demand;
}

std::optional<Signals::WorkerLoad> Signals::worker_load(const std::string& uid) const {
  const auto found = workers_.find(uid);
  return found == workers_.end() ? std::nullopt : std::optional(found->second);
}

std::optional<planner::Reading> Signals::in_flight(const std::vector<GatewayPeer>& gateways, const std::string& chain) const {
  planner::Reading sum{0, std::numeric_limits<double>::infinity()};
  for (const GatewayPeer& peer : gateways) {
    const auto found = gateways_.find(peer.id);
    if (found == gateways_.end() || !found->second.read_s) return std::nullopt;
    sum.at_s = std::min(sum.at_s, *found->second.read_s);
    const auto on_chain = found->second.in_flight.find(chain);
    if (on_chain != found->second.in_flight.end()) sum.value += on_chain->second;
  }
  return sum;
}

}  // namespace windlass::controller
