// Converts bins to text and back; see latency_bins.h.
#include "metrics/latency_bins.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <limits>
#include <optional>
#include <string_view>

#include <fmt/format.h>

#include "metrics/promql_client.h"

namespace windlass::metrics {
namespace {

constexpr double kGrowth = 1.04;
constexpr int kFirstBin = -352;  // a microsecond, and everything below
constexpr int kLastBin = 290;    // a day, and everything above

double edge_s(int bin) { return std::pow(kGrowth, bin); }

// A bin's end; nullopt when the label is absent or not a number.
std::optional<double> end_of(const Sample& sample, const char* label) {
  const auto found = sample.labels.find(label);
  return found == sample.labels.end() ? std::nullopt : parse_value(found->second);
}

// An error about the page.
Error bad_bins(std::string message) { return Error{ErrorCode::kInvalidArgument, std::move(message)}; }

}  // namespace

void LatencyBins::observe(double seconds) {
  if (std::isnan(seconds)) return;
  const double bin = seconds > 0 ? std::ceil(std::log(seconds) / std::log(kGrowth)) : kFirstBin;
  ++counts_[static_cast<int>(std::clamp<double>(bin, kFirstBin, kLastBin))];
}

void LatencyBins::write(std::string& page, const GatewayLatency& latency, const std::string& model) const {
  const std::string name = promql_escape(model);  // quoted in the same way on a page and in a query
  std::uint64_t total = 0;
  for (const auto& [bin, count] : counts_) {
    const std::string above = bin == kFirstBin ? "0" : fmt::format("{:.6g}", edge_s(bin - 1));
    const std::string most = bin == kLastBin ? "+Inf" : fmt::format("{:.6g}", edge_s(bin));
    fmt::format_to(std::back_inserter(page), "{}{{model=\"{}\",gt=\"{}\",le=\"{}\"}} {}\n", latency.bin, name, above, most,
                   count);
    total += count;
  }
  fmt::format_to(std::back_inserter(page), "{}{{model=\"{}\"}} {}\n", latency.bins, name, total);
}

void add_latency_bins(Exposition& metrics_page, Exposition latencies_page) {
  constexpr std::array<std::string_view, 4> kNames = {kGatewayTtft.bin, kGatewayTtft.bins, kGatewayTpot.bin, kGatewayTpot.bins};
  for (Sample& sample : latencies_page.samples) {
    if (std::find(kNames.begin(), kNames.end(), sample.name) != kNames.end()) metrics_page.samples.push_back(std::move(sample));
  }
}

Result<SeenLatencies> read_latencies(const Exposition& page, const GatewayLatency& latency,
                                     const std::map<std::string, std::string>& match) {
  const auto total = page.sum(latency.bins, match);
  if (!total) {
    WINDLASS_ASSIGN_OR_RETURN(const HistogramSnapshot histogram, page.histogram(latency.histogram, match));
    if (!(histogram.bounds.front() > 0))
      return bad_bins(fmt::format("{}: bounds must be above 0 (got {})", latency.histogram, histogram.bounds.front()));
    return SeenLatencies{LatencyCounts::of(histogram), false};
  }
  std::map<std::string_view, std::vector<LatencyInterval>> by_model;
  for (const Sample* sample : page.find(latency.bin, match)) {
    const auto above_s = end_of(*sample, "gt"), max_s = end_of(*sample, "le");
    if (!above_s || !max_s || !(*above_s >= 0) || !(*above_s < *max_s))
      return bad_bins(fmt::format("{}: labels gt and le: must be numbers of at least 0, gt less than le", latency.bin));
    if (!std::isfinite(sample->value) || sample->value < 0)
      return bad_bins(fmt::format("{}: must be a count (got {})", latency.bin, sample->value));
    const auto model = sample->labels.find("model");
    by_model[model == sample->labels.end() ? "" : std::string_view(model->second)].push_back({*above_s, *max_s, sample->value});
  }
  LatencyCounts counts;
  for (auto& [model, intervals] : by_model) {
    const LatencyCounts one(std::move(intervals));
    const auto& sorted = one.intervals();
    const auto overlap = std::adjacent_find(
        sorted.begin(), sorted.end(), [](const LatencyInterval& a, const LatencyInterval& b) { return b.above_s < a.max_s; });
    if (overlap != sorted.end())
      return bad_bins(fmt::format("{}: bins must not overlap (gt {}, le {})", latency.bin, overlap->above_s, overlap->max_s));
    counts.add(one);
  }
  if (counts.total() != *total)
    return bad_bins(fmt::format("{}: must be the sum of the bins, {} (got {})", latency.bins, counts.total(), *total));
  return SeenLatencies{std::move(counts), true};
}

}  // namespace windlass::metrics
