// See signals.h.
#include "controller/reconcile/signals.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <spdlog/spdlog.h>

namespace windlass::controller {
namespace {

using metrics::Exposition;
using planner::Reading;

constexpr double kWindowSteps = 30;  // readings kept for a long window, so its start may be early by a thirtieth

// A worker's page has some tens of kilobytes. A gateway's two pages have a few kilobytes per model.
constexpr std::size_t kMaxWorkerPageBytes = std::size_t{2} << 20U;
constexpr std::size_t kMaxGatewayPageBytes = std::size_t{32} << 20U;

kube::HttpRequest get(std::string url, double timeout_s, std::size_t max_bytes) {
  kube::HttpRequest request;
  request.url = std::move(url);
  request.timeout_s = timeout_s;
  request.max_bytes = max_bytes;
  return request;
}

Result<std::string> body_of(Result<kube::HttpResponse> answer) {
  if (!answer.ok()) return answer.error();
  if (answer->status == 404) return Error{ErrorCode::kNotFound, "HTTP status 404"};
  if (answer->status != 200) return Error{ErrorCode::kUnavailable, fmt::format("HTTP status {}", answer->status)};
  return std::move(answer->body);
}

bool is_of(const metrics::GatewayLatency& latency, std::string_view series) {
  return series == latency.bin || series == latency.bins;
}

// A gateway's /metrics with the bins of its /latencies.
struct GatewayPages {
  Result<Exposition> page;
  bool broken_latencies = false;  // the second page exists and cannot be read
};

// Gateways of older versions lack the second page. Then the histograms are read, which are most of the first.
GatewayPages read_pages(const Result<std::string>& metrics_text, const Result<std::string>& latencies_text) {
  const auto read = [](const Result<std::string>& text, const metrics::WantedSeries& wanted) -> Result<Exposition> {
    if (!text.ok()) return text.error();
    return metrics::parse_exposition(*text, wanted);
  };
  auto latencies = read(latencies_text, [](std::string_view series) {
    return is_of(metrics::kGatewayTtft, series) || is_of(metrics::kGatewayTpot, series);
  });
  const bool fine = latencies.ok();
  auto page = read(metrics_text, [fine](std::string_view series) {
    constexpr std::array<std::string_view, 11> kCounted = {
        "process_start_time_seconds",
        "windlass_gateway_requests_in_flight",
        "windlass_gateway_requests_started_total",
        "windlass_gateway_queue_length",
        "windlass_gateway_requests_attained_total",
        "windlass_gateway_requests_judged_total",
        "windlass_gateway_request_prompt_tokens_total",
        "windlass_gateway_request_generation_tokens_total",
        "windlass_gateway_requests_measured_total",
        "windlass_gateway_mixed_pool_requests_total",
        "windlass_gateway_requests_rebalanced_total",
    };
    if (std::find(kCounted.begin(), kCounted.end(), series) != kCounted.end()) return true;
    return !fine &&
           (series.starts_with(metrics::kGatewayTtft.histogram) || series.starts_with(metrics::kGatewayTpot.histogram));
  });
  if (page.ok() && fine) metrics::add_latency_bins(*page, std::move(*latencies));
  return {std::move(page), !fine && latencies.error().code != ErrorCode::kNotFound};
}

// A sum over gateways, as old as its oldest part. Absent if any part is, because a partial sum would look like less load.
class Sum {
 public:
  void add(const std::optional<double>& part, const std::optional<double>& at_s) {
    if (!part || !at_s) {
      complete_ = false;
      return;
    }
    sum_ += *part;
    at_s_ = std::min(at_s_, *at_s);
    any_ = true;
  }
  [[nodiscard]] std::optional<Reading> reading() const {
    return complete_ && any_ ? std::optional(Reading{sum_, at_s_}) : std::nullopt;
  }

 private:
  double sum_ = 0;
  double at_s_ = std::numeric_limits<double>::infinity();
  bool complete_ = true;
  bool any_ = false;
};

std::optional<Reading> ratio(const std::optional<Reading>& part, const std::optional<Reading>& whole) {
  if (!part || !whole || !(whole->value > 0)) return std::nullopt;
  return Reading{part->value / whole->value, std::min(part->at_s, whole->at_s)};
}

void note_size(const Result<kube::HttpResponse>& answer, std::set<std::string>& too_large) {
  if (!answer.ok() && answer.error().code == ErrorCode::kResourceExhausted) too_large.insert(answer.error().message);
}

}  // namespace

Signals::ModelSeries::ModelSeries(double window_s)
    : window_s(window_s),
      started(60),
      attained(window_s, window_s / kWindowSteps),
      judged(window_s, window_s / kWindowSteps),
      prompt_tokens(600, 600 / kWindowSteps),
      generation_tokens(600, 600 / kWindowSteps),
      measured(600, 600 / kWindowSteps),
      rebalanced(600, 600 / kWindowSteps),
      attained_lately(planner::Demand::kRecentS, planner::Demand::kRecentS / kWindowSteps),
      judged_lately(planner::Demand::kRecentS, planner::Demand::kRecentS / kWindowSteps),
      mixed_pool(planner::Demand::kMixedPoolS, planner::Demand::kMixedPoolS / kWindowSteps),
      ttft(window_s, window_s / kWindowSteps),
      tpot(window_s, window_s / kWindowSteps) {}

Signals::Signals(kube::HttpTransport& transport, metrics::ControllerMetrics& metrics, SignalOptions options)
    : transport_(transport), metrics_(metrics), options_(std::move(options)) {
  if (options_.promql) promql_.emplace(transport, metrics, *options_.promql);
}

void Signals::scrape(const ScrapeTargets& targets, double now_s) {
  std::set<std::string> too_large;
  scrape_gateways(targets, now_s, too_large);
  scrape_workers(targets, now_s, too_large);
  name_those_too_large(std::move(too_large));
  std::set<std::string_view> models;
  for (const ServiceQuery& query : targets.models) models.insert(query.model);
  std::erase_if(retired_total_, [&](const auto& one) { return !models.contains(one.first); });
  if (promql_) promql_->refresh(targets.models, targets.gateways.size(), now_s);
}

void Signals::scrape_gateways(const ScrapeTargets& targets, double now_s, std::set<std::string>& too_large) {
  std::vector<kube::HttpRequest> requests;
  for (const char* path : {"metrics", "latencies"}) {
    for (const GatewayPeer& gateway : targets.gateways) {
      requests.push_back(
          get(fmt::format("http://{}/{}", gateway.admin_address, path), options_.timeout_s, kMaxGatewayPageBytes));
    }
  }
  std::vector<Result<std::string>> pages(requests.size(), Error{ErrorCode::kInternal, "not read"});
  transport_.send_each(requests, [&](std::size_t i, Result<kube::HttpResponse> answer) {
    note_size(answer, too_large);
    pages[i] = body_of(std::move(answer));
  });
  std::map<std::string, Gateway> still_known;
  for (std::size_t i = 0; i < targets.gateways.size(); ++i) {
    auto known = gateways_.extract(targets.gateways[i].id);
    Gateway gateway = known.empty() ? Gateway{} : std::move(known.mapped());
    const Result<std::string> page = std::move(pages[i]), latencies = std::move(pages[targets.gateways.size() + i]);
    auto read = read_pages(page, latencies);
    if (!read.page.ok() || read.broken_latencies) metrics_.scrape_errors.with({{"target_kind", "gateway"}}).add();
    if (read.page.ok()) read_gateway(gateway, *std::move(read.page), targets.models, now_s);
    still_known.emplace(targets.gateways[i].id, std::move(gateway));
  }
  for (const auto& [id, gone] : gateways_) retire(gone);
  gateways_ = std::move(still_known);
}

// Each page is parsed as it arrives, so that the text of a thousand pages is never held at once.
void Signals::scrape_workers(const ScrapeTargets& targets, double now_s, std::set<std::string>& too_large) {
  std::set<std::string> there;
  for (const Worker& worker : targets.workers) there.insert(worker.uid);
  std::erase_if(asked_s_, [&](const auto& one) { return !there.contains(one.first); });
  const std::vector<const Worker*> asked = due(targets.workers, now_s);
  std::vector<kube::HttpRequest> requests;
  for (const Worker* worker : asked) {
    const auto engine = targets.engines.find(worker->service_uid);
    const std::string type = engine == targets.engines.end() ? "" : engine->second;
    requests.push_back(get(workers_.url(worker->uid, worker->address, type), options_.timeout_s, kMaxWorkerPageBytes));
  }
  workers_.keep(there);
  transport_.send_each(requests, [&](std::size_t i, Result<kube::HttpResponse> answer) {
    note_size(answer, too_large);
    take_worker(*asked[i], body_of(std::move(answer)), now_s);
  });
}

void Signals::take_worker(const Worker& worker, const Result<std::string>& body, double now_s) {
  const auto taken = workers_.take(worker.uid, body, now_s);
  if (!taken.readable) metrics_.scrape_errors.with({{"target_kind", "worker"}}).add();
  if (taken.broken.empty()) return;
  const std::string engine(metrics::engine_name(workers_.page(worker.uid)->metrics.engine));
  metrics_.broken_series.with({{"engine", engine}}).add(static_cast<double>(taken.broken.size()));
}

// Logs each page that is too large once, until it is readable again.
void Signals::name_those_too_large(std::set<std::string> found) {
  for (const std::string& message : found) {
    if (!too_large_.contains(message)) spdlog::warn("metrics are not read: {}", message);
  }
  too_large_ = std::move(found);
}

// The workers to read now.
std::vector<const Worker*> Signals::due(const std::vector<Worker>& workers, double now_s) {
  std::vector<const Worker*> leaving, others;  // "leaving" includes those that drain to change their role
  for (const Worker& worker : workers) {
    const bool leaves = worker.draining_since_s || worker.terminating;
    if (worker.address.empty() || worker.finished || (!worker.ready && !leaves)) continue;
    (leaves || worker.changing_role_since_s ? leaving : others).push_back(&worker);
  }
  if (others.size() > options_.max_workers_per_scrape) {
    std::vector<std::pair<double, std::size_t>> by_age;  // time of the last read, and index
    by_age.reserve(others.size());
    for (std::size_t i = 0; i < others.size(); ++i) {
      const auto last = asked_s_.find(others[i]->uid);
      by_age.emplace_back(last == asked_s_.end() ? -std::numeric_limits<double>::infinity() : last->second, i);
    }
    const auto end = by_age.begin() + static_cast<std::ptrdiff_t>(options_.max_workers_per_scrape);
    std::partial_sort(by_age.begin(), end, by_age.end());
    std::vector<const Worker*> oldest;
    for (auto one = by_age.begin(); one != end; ++one) oldest.push_back(others[one->second]);
    others = std::move(oldest);
  }
  for (const Worker* worker : others) asked_s_[worker->uid] = now_s;
  leaving.insert(leaving.end(), others.begin(), others.end());
  return leaving;
}

void Signals::retire(const Gateway& gateway) {
  for (const auto& [model, series] : gateway.models) retired_total_[model] += series.started.total();
}

void Signals::read_gateway(Gateway& gateway, Exposition page, const std::vector<ServiceQuery>& models, double now_s) {
  const auto start = page.sum("process_start_time_seconds");
  gateway.in_flight.clear();
  // Split the page by model; otherwise every lookup would scan the series of all models.
  std::map<std::string, Exposition> pages;
  std::map<std::string, double> windows;  // by model, the longest window that any service wants
  for (const ServiceQuery& query : models) {
    pages[query.model];
    windows[query.model] = std::max({windows[query.model], query.window_s, 60.0});
  }
  for (metrics::Sample& sample : page.samples) {
    if (sample.name == "windlass_gateway_requests_in_flight") {
      const auto chain = sample.labels.find("chain");
      if (chain != sample.labels.end()) gateway.in_flight[chain->second] += sample.value;
      continue;
    }
    const auto model = sample.labels.find("model");
    if (model == sample.labels.end()) continue;
    if (const auto mine = pages.find(model->second); mine != pages.end()) mine->second.samples.push_back(std::move(sample));
  }
  for (const auto& [model, mine] : pages) {
    // A gateway shows both series, even at 0, once its table lists the model. Without them it has no table yet or is broken, so
    // its load is unknown, not 0.
    if (!mine.sum("windlass_gateway_requests_started_total") || !mine.sum("windlass_gateway_queue_length")) {
      gateway.models.try_emplace(model, windows.at(model));
      continue;
    }
    // A complete page that lacks one of the other series means 0: no such request has come yet.
    const auto value = [&page = mine](const char* name) { return page.sum(name).value_or(0); };
    const double window_s = windows.at(model);
    ModelSeries& series = gateway.models.try_emplace(model, window_s).first->second;
    if (series.window_s != window_s) {  // the service's objective has changed
      ModelSeries fresh(window_s);
      fresh.started = std::move(series.started);
      fresh.attained_lately = std::move(series.attained_lately);
      fresh.judged_lately = std::move(series.judged_lately);
      fresh.mixed_pool = std::move(series.mixed_pool);
      fresh.rebalanced = std::move(series.rebalanced);
      fresh.last_arrival_s = series.last_arrival_s;
      series = std::move(fresh);
    }
    const double before = series.started.total();
    series.started.observe(now_s, value("windlass_gateway_requests_started_total"), start);
    if (series.started.total() > before) series.last_arrival_s = now_s;
    const double attained = value("windlass_gateway_requests_attained_total");
    const double judged = value("windlass_gateway_requests_judged_total");
    series.attained.observe(now_s, attained, start);
    series.attained_lately.observe(now_s, attained, start);
    series.judged.observe(now_s, judged, start);
    series.judged_lately.observe(now_s, judged, start);
    series.prompt_tokens.observe(now_s, value("windlass_gateway_request_prompt_tokens_total"), start);
    series.generation_tokens.observe(now_s, value("windlass_gateway_request_generation_tokens_total"), start);
    series.measured.observe(now_s, value("windlass_gateway_requests_measured_total"), start);
    series.mixed_pool.observe(now_s, value("windlass_gateway_mixed_pool_requests_total"), start);
    series.rebalanced.observe(now_s, value("windlass_gateway_requests_rebalanced_total"), start);
    if (const double queued = value("windlass_gateway_queue_length"); std::isfinite(queued) && queued >= 0)
      series.queued = Reading{queued, now_s};
    series.ttft.take(now_s, metrics::read_latencies(mine, metrics::kGatewayTtft), start);
    series.tpot.take(now_s, metrics::read_latencies(mine, metrics::kGatewayTpot), start);
  }
  std::erase_if(gateway.models, [&](const auto& one) { return !pages.contains(one.first); });
  gateway.read_s = now_s;
}

planner::Demand Signals::demand(const ServiceQuery& query, double now_s) const {
  return promql_ ? promql_->demand(query) : scraped_demand(query, now_s);
}

planner::Demand Signals::scraped_demand(const ServiceQuery& query, double now_s) const {
  planner::Demand demand;
  demand.arrivals_window_s = options_.arrivals_window_s;
  Sum arrivals, total, queued, prompt, generation, measured, rebalanced, attained, judged, attained_lately, judged_lately,
      mixed_pool;
  metrics::LatencyCounts ttft, tpot;
  double ttft_at_s = now_s, tpot_at_s = now_s;
  for (const auto& [id, gateway] : gateways_) {
    const auto found = gateway.models.find(query.model);
    if (!gateway.read_s || found == gateway.models.end()) {
      for (Sum* sum : {&arrivals, &total, &queued}) sum->add(std::nullopt, std::nullopt);
      continue;
    }
    const ModelSeries& series = found->second;
    const auto counted_at_s = series.started.last_reading_s();
    // Counted up to the last read: without new reads it ages, but is not absent.
    arrivals.add(series.started.rate_per_s(counted_at_s.value_or(now_s), options_.arrivals_window_s), counted_at_s);
    total.add(series.started.total(), counted_at_s);
    queued.add(series.queued ? std::optional(series.queued->value) : std::nullopt,
               series.queued ? std::optional(series.queued->at_s) : std::nullopt);
    const auto add = [&](Sum& sum, const metrics::CounterTracker& tracker, double window_s) {
      sum.add(tracker.increase(now_s, window_s), tracker.last_reading_s());
    };
    add(prompt, series.prompt_tokens, options_.lengths_window_s);
    add(generation, series.generation_tokens, options_.lengths_window_s);
    add(measured, series.measured, options_.lengths_window_s);
    add(rebalanced, series.rebalanced, planner::Demand::kRebalancedS);
    add(attained, series.attained, query.window_s);
    add(judged, series.judged, query.window_s);
    add(attained_lately, series.attained_lately, planner::Demand::kRecentS);
    add(judged_lately, series.judged_lately, planner::Demand::kRecentS);
    add(mixed_pool, series.mixed_pool, planner::Demand::kMixedPoolS);
    const auto sum_into = [&](metrics::LatencyCounts& sum, double& at_s, const metrics::LatencyTracker& tracker) {
      const auto increase = tracker.increase(now_s, query.window_s);
      if (!increase) return;
      at_s = std::min(at_s, tracker.last_reading_s().value_or(at_s));
      sum.add(*increase);
    };
    sum_into(ttft, ttft_at_s, series.ttft);
    sum_into(tpot, tpot_at_s, series.tpot);
    if (series.last_arrival_s)
      demand.last_arrival_at_s = std::max(demand.last_arrival_at_s.value_or(0), *series.last_arrival_s);
  }
  demand.arrivals_per_s = arrivals.reading();
  demand.arrivals_total = total.reading();
  if (demand.arrivals_total) {
    if (const auto before = retired_total_.find(query.model); before != retired_total_.end())
      demand.arrivals_total->value += before->second;
  }
  demand.queued = queued.reading();
  if (const auto requests = measured.reading(); requests && requests->value >= options_.min_measured) {
    demand.input_tokens = ratio(prompt.reading(), requests);
    demand.output_tokens = ratio(generation.reading(), requests);
    demand.measured_requests = requests->value;
  }
  demand.rebalanced = rebalanced.reading();
  demand.attainment = ratio(attained.reading(), judged.reading());
  demand.recent_attainment = ratio(attained_lately.reading(), judged_lately.reading());
  if (const auto count = judged_lately.reading()) demand.recently_judged = count->value;
  if (const auto count = mixed_pool.reading(); count && count->value > 0) demand.mixed_pool = count;
  if (const auto at = ttft.percentile(query.percentile)) demand.ttft_s = Reading{at->seconds, ttft_at_s, at->bound};
  if (const auto at = tpot.percentile(query.percentile)) demand.tpot_s = Reading{at->seconds, tpot_at_s, at->bound};
  return demand;
}

std::optional<Reading> Signals::in_flight(const std::vector<GatewayPeer>& gateways, const std::string& chain) const {
  Reading sum{0, std::numeric_limits<double>::infinity()};
  for (const GatewayPeer& peer : gateways) {
    const auto found = gateways_.find(peer.id);
    if (found == gateways_.end() || !found->second.read_s) return std::nullopt;
    sum.at_s = std::min(sum.at_s, *found->second.read_s);
    const auto on_chain = found->second.in_flight.find(chain);
    if (on_chain != found->second.in_flight.end()) sum.value += on_chain->second;
  }
  if (!std::isfinite(sum.value)) return std::nullopt;  // not a number: unknown, not 0
  return sum;
}

}  // namespace windlass::controller
