// Summarises results and prints them as JSON and text; see load_result.h.
#include "controller/cli/load/generator/load_result.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace windlass::load {
namespace {

using Json = nlohmann::ordered_json;

const char* to_string(Outcome outcome) {
  switch (outcome) {
    case Outcome::kCompleted: return "completed";
    case Outcome::kRejected: return "rejected";
    case Outcome::kLost: return "lost";
  }
  return "lost";
}

Json json_of(const std::optional<Percentiles>& values) {
  if (!values.has_value()) return nullptr;
  return {{"mean", values->mean}, {"p50", values->p50}, {"p95", values->p95}, {"p99", values->p99}, {"max", values->max}};
}

Json json_of(const std::optional<double>& value) { return value.has_value() ? Json(*value) : Json(nullptr); }

std::string line_of(const char* name, const std::optional<Percentiles>& values) {
  if (!values.has_value()) return fmt::format("{:<10} -\n", name);
  return fmt::format("{:<10} mean {:.1f} ms   p50 {:.1f} ms   p95 {:.1f} ms   p99 {:.1f} ms   max {:.1f} ms\n", name,
                     values->mean * 1e3, values->p50 * 1e3, values->p95 * 1e3, values->p99 * 1e3, values->max * 1e3);
}

}  // namespace

std::optional<Percentiles> percentiles(std::vector<double> values) {
  if (values.empty()) return std::nullopt;
  std::sort(values.begin(), values.end());
  const auto at = [&values](double q) {
    const auto rank = static_cast<std::size_t>(std::ceil(q * static_cast<double>(values.size())));
    return values[std::max<std::size_t>(rank, 1) - 1];
  };
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
  return Percentiles{mean, at(0.5), at(0.95), at(0.99), values.back()};
}

LoadResult summarise(std::vector<RequestResult> requests, double elapsed_s, double ttft_slo_s, double tpot_slo_s) {
  LoadResult result;
  result.elapsed_s = elapsed_s;
  std::vector<double> ttft, tpot, latency;
  double prompt_tokens = 0, tokens = 0;
  std::size_t attained = 0;
  for (const RequestResult& request : requests) {
    ++result.sent;
    result.duplicated += request.duplicated ? 1 : 0;
    result.retried += request.retries > 0 ? 1 : 0;
    if (request.outcome != Outcome::kCompleted) {
      if (request.outcome == Outcome::kRejected) {
        ++result.rejected;
        ++result.rejected_by_status[request.status];
      } else {
        ++result.lost;
      }
      ++result.problems[request.problem];
      continue;
    }
    ++result.completed;
    if (!request.chain.empty()) ++result.completed_by_chain[request.chain];
    latency.push_back(request.finished_s - request.scheduled_s);
    if (request.ttft_s.has_value()) ttft.push_back(*request.ttft_s);
    if (request.tpot_s.has_value()) tpot.push_back(*request.tpot_s);
    prompt_tokens += request.prompt_tokens;
    tokens += request.tokens;
    const double first_s = request.ttft_s.value_or(latency.back());
    attained += first_s <= ttft_slo_s && request.tpot_s.value_or(0) <= tpot_slo_s ? 1 : 0;
  }
  if (result.completed > 0) {
    result.prompt_tokens_mean = prompt_tokens / static_cast<double>(result.completed);
    result.tokens_mean = tokens / static_cast<double>(result.completed);
  }
  if (elapsed_s > 0) result.tokens_per_s = tokens / elapsed_s;
  if (ttft_slo_s > 0 && tpot_slo_s > 0 && result.sent > 0) {
    result.attainment = static_cast<double>(attained) / static_cast<double>(result.sent);
  }
  result.ttft_s = percentiles(std::move(ttft));
  result.tpot_s = percentiles(std::move(tpot));
  result.latency_s = percentiles(std::move(latency));
  result.requests = std::move(requests);
  return result;
}

std::string to_json(const LoadResult& result, bool with_requests) {
  Json json{{"elapsedSeconds", result.elapsed_s}, {"sent", result.sent}, {"completed", result.completed},
            {"rejected", result.rejected},        {"lost", result.lost}, {"duplicated", result.duplicated},
            {"retried", result.retried}};
  Json by_status = Json::object();
  for (const auto& [status, count] : result.rejected_by_status) by_status[std::to_string(status)] = count;
  json["rejectedByStatus"] = by_status;
  json["completedByWorker"] = result.completed_by_chain;
  json["problems"] = result.problems;
  json["timeToFirstTokenSeconds"] = json_of(result.ttft_s);
  json["timePerOutputTokenSeconds"] = json_of(result.tpot_s);
  json["latencySeconds"] = json_of(result.latency_s);
  json["promptTokensMean"] = result.prompt_tokens_mean;
  json["tokensMean"] = result.tokens_mean;
  json["tokensPerSecond"] = result.tokens_per_s;
  json["attainment"] = json_of(result.attainment);
  if (with_requests) {
    Json list = Json::array();
    for (const RequestResult& request : result.requests) {
      list.push_back({{"index", request.index},
                      {"scheduledSeconds", request.scheduled_s},
                      {"finishedSeconds", request.finished_s},
                      {"outcome", to_string(request.outcome)},
                      {"status", request.status},
                      {"timeToFirstTokenSeconds", json_of(request.ttft_s)},
                      {"timePerOutputTokenSeconds", json_of(request.tpot_s)},
                      {"promptTokens", request.prompt_tokens},
                      {"tokens", request.tokens},
                      {"retries", request.retries},
                      {"duplicated", request.duplicated},
                      {"worker", request.chain},
                      {"problem", request.problem}});
    }
    json["requests"] = std::move(list);
  }
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string to_text(const LoadResult& result) {
  std::string text = fmt::format(
      "requests   {} sent, {} completed, {} rejected, {} lost, {} duplicated, {} retried, in {:.1f} s\n", result.sent,
      result.completed, result.rejected, result.lost, result.duplicated, result.retried, result.elapsed_s);
  text += line_of("TTFT", result.ttft_s);
  text += line_of("TPOT", result.tpot_s);
  text += line_of("latency", result.latency_s);
  text += fmt::format("tokens     {:.1f} in and {:.1f} out per request, {:.1f} out per second\n", result.prompt_tokens_mean,
                      result.tokens_mean, result.tokens_per_s);
  if (result.attainment.has_value()) text += fmt::format("attainment {:.1f} %\n", *result.attainment * 100);
  for (const auto& [problem, count] : result.problems) text += fmt::format("{:>6} x  {}\n", count, problem);
  return text;
}

}  // namespace windlass::load
