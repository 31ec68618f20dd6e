// Fine latency counts of a gateway: how it keeps them, the page that shows them (GET /latencies on its admin address), and how
// readers parse that page. docs/metrics.md describes the page.
//
// LatencyBins keeps a counter for each bin that is not empty. Bin i holds latencies in (1.04^(i-1), 1.04^i] seconds, as in
// DDSketch (Masson, Rim, Lee 2019), so the middle of a bin is within 2 % of each latency in it, from a microsecond to a day.
// Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "metrics/exposition_parser.h"
#include "metrics/latency_counts.h"
#include "planner/base/result.h"

namespace windlass::metrics {

// The two names of one gateway latency: the histogram on /metrics, the bins on /latencies.
struct GatewayLatency {
  const char* histogram;
  const char* bin;   // one bin, with labels model, gt and le
  const char* bins;  // sum over a model's bins; present from the start, with 0
};
inline constexpr GatewayLatency kGatewayTtft{"windlass_gateway_time_to_first_token_seconds", "windlass_gateway_ttft_bin",
                                             "windlass_gateway_ttft_bins"};
inline constexpr GatewayLatency kGatewayTpot{"windlass_gateway_time_per_output_token_seconds", "windlass_gateway_tpot_bin",
                                             "windlass_gateway_tpot_bins"};

class LatencyBins {
 public:
  // NaN is ignored.
  void observe(double seconds);

  // The model's lines of the page, in Prometheus' text format.
  void write(std::string& page, const GatewayLatency& latency, const std::string& model) const;

 private:
  std::map<int, std::uint64_t> counts_;  // by bin; never 0
};

// Adds the bins of a gateway's /latencies to the samples of its /metrics; everything else on /latencies is dropped.
void add_latency_bins(Exposition& metrics_page, Exposition latencies_page);

// The counts of that latency on a gateway's page, summed over every label set that contains `match`.
struct SeenLatencies {
  LatencyCounts counts;
  bool fine = false;  // from bins, not from the histogram's buckets
};
// Errors: kNotFound when there are neither bins nor a histogram; kInvalidArgument when bins lack usable ends, appear twice, are
// not counts or do not add up to the total (a partial page), or the histogram is malformed.
[[nodiscard]] Result<SeenLatencies> read_latencies(const Exposition& page, const GatewayLatency& latency,
                                                   const std::map<std::string, std::string>& match = {});

}  // namespace windlass::metrics
