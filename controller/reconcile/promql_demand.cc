// See promql_demand.h.
#include "controller/reconcile/promql_demand.h"

#include <algorithm>
#include <cmath>
#include <set>

#include <fmt/format.h>
#include <spdlog/spdlog.h>

namespace windlass::controller {
namespace {

using metrics::PromqlSample;
using planner::Reading;

constexpr double kSampleMaxS = 30;  // a gateway that Prometheus has not scraped for this long counts as not scraped
constexpr double kArrivalsHistoryS = 60;

constexpr const char* kStarted = "windlass_gateway_requests_started_total";
constexpr const char* kQueued = "windlass_gateway_queue_length";
constexpr const char* kPromptTokens = "windlass_gateway_request_prompt_tokens_total";
constexpr const char* kGenerationTokens = "windlass_gateway_request_generation_tokens_total";
constexpr const char* kMeasured = "windlass_gateway_requests_measured_total";
constexpr const char* kRebalanced = "windlass_gateway_requests_rebalanced_total";
constexpr const char* kAttained = "windlass_gateway_requests_attained_total";
constexpr const char* kJudged = "windlass_gateway_requests_judged_total";
// Every gateway has this series from its start, whatever it serves.
constexpr const char* kPresence = "windlass_gateway_routing_table_revision";

std::string by_model(const std::string& what) { return fmt::format("sum by (model) ({})", what); }

std::string label_of(const PromqlSample& sample, const char* label) {
  const auto found = sample.labels.find(label);
  return found == sample.labels.end() ? "" : found->second;
}

bool usable(double value) { return std::isfinite(value) && value >= 0; }

// The buckets of one model's histogram, as increase() returns them: not integers, and because Prometheus rounds, a later bucket
// may be slightly smaller.
metrics::LatencyCounts latencies_of(const std::map<double, double>& counts) {
  metrics::HistogramSnapshot histogram;
  for (const auto& [bound, count] : counts) {
    histogram.bounds.push_back(bound);
    histogram.counts.push_back(std::max(count, histogram.count()));
  }
  return metrics::LatencyCounts::of(histogram);
}

}  // namespace

PromqlDemand::PromqlDemand(kube::HttpTransport& transport, metrics::ControllerMetrics& metrics, PromqlOptions options)
    : transport_(options.transport ? *options.transport : transport), metrics_(metrics), options_(std::move(options)) {}

std::string PromqlDemand::series(const std::string& name, double window_s) const {
  const std::string window = window_s > 0 ? fmt::format("[{:.0f}s]", std::ceil(window_s)) : "";
  return fmt::format("{}{{{}}}{}", name, options_.selector, window);
}

std::string PromqlDemand::increase(const std::string& name, double window_s) const {
  return by_model(fmt::format("increase({})", series(name, window_s)));
}

std::string PromqlDemand::mean(const std::string& part, const std::string& whole, double window_s) const {
  return fmt::format("{} / {}", increase(part, window_s), increase(whole, window_s));
}

std::string PromqlDemand::buckets(const std::string& name, double window_s) const {
  return fmt::format("sum by (model, le) (increase({}))", series(name + "_bucket", window_s));
}

std::vector<std::string> PromqlDemand::queries(const std::vector<ServiceQuery>& models) const {
  std::set<std::string> all = {by_model(fmt::format("rate({})", series(kStarted, options_.rate_window_s))),
                               by_model(series(kQueued)),
                               increase(kMeasured, options_.lengths_window_s),
                               mean(kPromptTokens, kMeasured, options_.lengths_window_s),
                               mean(kGenerationTokens, kMeasured, options_.lengths_window_s),
                               increase(kRebalanced, planner::Demand::kRebalancedS),
                               mean(kAttained, kJudged, planner::Demand::kRecentS),
                               increase(kJudged, planner::Demand::kRecentS)};
  for (const ServiceQuery& model : models) {
    all.insert(mean(kAttained, kJudged, model.window_s));
    for (const char* name : {metrics::kGatewayTtft.histogram, metrics::kGatewayTpot.histogram})
      all.insert(buckets(name, model.window_s));
  }
  // These two come first: the meaning of the others depends on them.
  std::vector<std::string> in_order = {fmt::format("timestamp({})", series(kPresence)), series(kStarted)};
  in_order.insert(in_order.end(), all.begin(), all.end());
  return in_order;
}

void PromqlDemand::refresh(const std::vector<ServiceQuery>& models, std::size_t gateways, double now_s) {
  if (now_s < next_s_) return;
  next_s_ = now_s + options_.period_s;
  const std::string before = std::move(problem_);
  problem_.clear();
  kube::HttpRequest request;
  request.timeout_s = options_.timeout_s;
  request.headers["Accept"] = "application/json";
  if (options_.credentials) {
    const auto token = options_.credentials->bearer_token(now_s);
    if (!token.ok()) return fail(token.error().message);
    if (!token->empty()) request.headers["Authorization"] = "Bearer " + *token;
  }
  const std::vector<std::string> asked = queries(models);
  const std::map<std::string, Samples> fresh = ask(asked, std::move(request));
  const auto presence = fresh.find(asked[0]);
  if (presence != fresh.end() && take_presence(presence->second, gateways, now_s)) {
    if (const auto arrivals = fresh.find(asked[1]); arrivals != fresh.end()) take_arrivals(models, arrivals->second);
    for (const auto& [query, samples] : fresh) answers_[query] = answer_of(samples, sampled_s_);
  }
  const std::set<std::string> wanted(asked.begin(), asked.end());
  std::erase_if(answers_, [&](const auto& one) { return !wanted.contains(one.first); });
  if (problem_ != before && !problem_.empty()) spdlog::warn("demand from Prometheus: {}", problem_);
}

void PromqlDemand::fail(const std::string& what) {
  metrics_.scrape_errors.with({{"target_kind", "prometheus"}}).add();
  if (problem_.empty()) problem_ = what;
}

// The samples of each query that was answered.
std::map<std::string, PromqlDemand::Samples> PromqlDemand::ask(const std::vector<std::string>& asked,
                                                               kube::HttpRequest request) {
  std::vector<kube::HttpRequest> requests;
  for (const std::string& query : asked) {
    request.url = metrics::promql_url(options_.server, query, options_.timeout_s);
    requests.push_back(request);
  }
  std::map<std::string, Samples> fresh;
  // Parsed afterwards: a large answer would take the time of those that still arrive.
  const std::vector<Result<kube::HttpResponse>> responses = transport_.send_all(requests);
  for (std::size_t i = 0; i < responses.size(); ++i) {
    const Result<kube::HttpResponse>& response = responses[i];
    if (!response.ok()) {
      fail("Prometheus: " + response.error().message);
      continue;
    }
    if (response->status == 401 && options_.credentials) options_.credentials->invalidate();
    auto samples = metrics::read_promql_answer(response->status, response->body);
    if (samples.ok()) {
      fresh[asked[i]] = std::move(*samples);
    } else {
      fail(samples.error().message);
    }
  }
  return fresh;
}

// Whether Prometheus has recently scraped as many gateways as exist; otherwise its data does not count.
bool PromqlDemand::take_presence(const Samples& presence, std::size_t gateways, double now_s) {
  double oldest_s = 0;
  std::size_t scraped = 0;
  for (const PromqlSample& sample : presence) {
    const double age_s = std::max(0.0, sample.at_s - sample.value);
    if (!(age_s <= kSampleMaxS)) continue;
    ++scraped;
    oldest_s = std::max(oldest_s, age_s);
  }
  if (scraped == 0 || scraped < gateways) {
    fail(
        fmt::format("Prometheus: must have scraped all {} gateways in the last {} s (got {})", gateways, kSampleMaxS, scraped));
    return false;
  }
  // Network delay makes the same scrape look some milliseconds older or younger; never let a reading go backwards.
  sampled_s_ = std::max(sampled_s_, now_s - oldest_s);
  gateways_ = gateways;
  return true;
}

PromqlDemand::Answer PromqlDemand::answer_of(const Samples& samples, double at_s) {
  Answer answer{{}, {}, at_s};
  std::map<std::string, std::map<double, double>> buckets;
  for (const PromqlSample& sample : samples) {
    if (!usable(sample.value)) continue;
    const auto bound = metrics::parse_value(label_of(sample, "le"));
    if (bound && *bound > 0) {
      buckets[label_of(sample, "model")][*bound] = sample.value;
    } else {
      answer.by_model.emplace(label_of(sample, "model"), sample.value);
    }
  }
  for (const auto& [model, counts] : buckets) {
    // Without the +Inf bucket the total is unknown.
    if (std::isinf(counts.rbegin()->first)) answer.latencies.emplace(model, latencies_of(counts));
  }
  return answer;
}

void PromqlDemand::take_arrivals(const std::vector<ServiceQuery>& models, const Samples& samples) {
  std::map<std::string, std::set<Labels>> seen;
  for (const ServiceQuery& query : models) seen[query.model];
  for (const PromqlSample& sample : samples) {
    const std::string model = label_of(sample, "model");
    const auto mine = seen.find(model);
    if (mine == seen.end()) continue;  // no service asks for it
    mine->second.insert(sample.labels);
    Arrivals& arrivals = arrivals_[model];
    metrics::CounterTracker& tracker = arrivals.series.try_emplace(sample.labels, kArrivalsHistoryS).first->second;
    const double before = tracker.total();
    tracker.observe(sampled_s_, sample.value);
    if (tracker.total() > before) arrivals.last_arrival_s = sampled_s_;
  }
  std::erase_if(arrivals_, [&](const auto& one) { return !seen.contains(one.first); });
  for (auto& [model, arrivals] : arrivals_) {
    const std::set<Labels>& there = seen[model];
    std::erase_if(arrivals.series, [&](const auto& one) {
      if (there.contains(one.first)) return false;
      arrivals.total += one.second.total();
      return true;
    });
  }
}

std::optional<Reading> PromqlDemand::reading(const std::string& query, const std::string& model) const {
  const auto answer = answers_.find(query);
  if (answer == answers_.end()) return std::nullopt;
  const auto value = answer->second.by_model.find(model);
  return value == answer->second.by_model.end() ? std::nullopt : std::optional(Reading{value->second, answer->second.at_s});
}

std::optional<Reading> PromqlDemand::latency(const std::string& name, const ServiceQuery& query) const {
  const auto answer = answers_.find(buckets(name, query.window_s));
  if (answer == answers_.end()) return std::nullopt;
  const auto counts = answer->second.latencies.find(query.model);
  if (counts == answer->second.latencies.end()) return std::nullopt;
  const auto found = counts->second.percentile(query.percentile);
  return found ? std::optional(Reading{found->seconds, answer->second.at_s, found->bound}) : std::nullopt;
}

planner::Demand PromqlDemand::demand(const ServiceQuery& query) const {
  planner::Demand demand;
  demand.arrivals_window_s = options_.rate_window_s;
  const auto raw = answers_.find(series(kStarted));
  if (raw == answers_.end()) return demand;
  const auto arrivals = arrivals_.find(query.model);
  // A gateway has a model's series once its routing table lists the model. If one gateway lacks the series, or it has too few
  // samples for a rate, its part is unknown, and so is the sum.
  const bool seen = arrivals != arrivals_.end() && arrivals->second.series.size() >= std::max<std::size_t>(1, gateways_);
  if (seen)
    demand.arrivals_per_s = reading(by_model(fmt::format("rate({})", series(kStarted, options_.rate_window_s))), query.model);
  double total = 0;
  if (arrivals != arrivals_.end()) {
    total = arrivals->second.total;
    for (const auto& [labels, tracker] : arrivals->second.series) total += tracker.total();
    demand.last_arrival_at_s = arrivals->second.last_arrival_s;
  }
  if (seen) demand.arrivals_total = Reading{total, raw->second.at_s};
  if (seen) demand.queued = reading(by_model(series(kQueued)), query.model);
  const auto measured = reading(increase(kMeasured, options_.lengths_window_s), query.model);
  if (measured && measured->value >= options_.min_measured) {
    demand.input_tokens = reading(mean(kPromptTokens, kMeasured, options_.lengths_window_s), query.model);
    demand.output_tokens = reading(mean(kGenerationTokens, kMeasured, options_.lengths_window_s), query.model);
    demand.measured_requests = measured->value;
  }
  demand.rebalanced = reading(increase(kRebalanced, planner::Demand::kRebalancedS), query.model);
  demand.attainment = reading(mean(kAttained, kJudged, query.window_s), query.model);
  if (demand.attainment) demand.attainment->value = std::min(1.0, demand.attainment->value);
  demand.recent_attainment = reading(mean(kAttained, kJudged, planner::Demand::kRecentS), query.model);
  if (demand.recent_attainment) demand.recent_attainment->value = std::min(1.0, demand.recent_attainment->value);
  if (const auto judged = reading(increase(kJudged, planner::Demand::kRecentS), query.model))
    demand.recently_judged = judged->value;
  demand.ttft_s = latency(metrics::kGatewayTtft.histogram, query);
  demand.tpot_s = latency(metrics::kGatewayTpot.histogram, query);
  return demand;
}

}  // namespace windlass::controller
