// A gateway's fine counts of latencies: how it keeps them, the page that shows them (GET /latencies on its admin address), and
// how readers take that page. docs/metrics.md describes the page.
//
// LatencyBins keeps a counter for each bin that something fell into; bin i holds latencies in (1.04^(i-1), 1.04^i] seconds, the
// idea of DDSketch (Masson, Rim, Lee 2019): the middle of a bin is within 2 % of all it holds, from a microsecond to a day. It
// is not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "metrics/exposition_parser.h"
#include "metrics/latency_counts.h"
#include "planner/base/result.h"

namespace windlass::metrics {

// One latency of a gateway under its two names: the histogram on /metrics, the bins on /latencies.
struct GatewayLatency {
  const char* histogram;
  const char* bin;   // series of one bin, with labels model, gt and le
  const char* bins;  // the sum over a model's bins; it stands there from 0 on
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

// Puts the bins of a gateway's /latencies among the samples of its /metrics; whatever else stands on the former is left out.
void add_latency_bins(Exposition& metrics_page, Exposition latencies_page);

// What a gateway's page says of that latency, summed over every label set that contains `match`.
struct SeenLatencies {
  LatencyCounts counts;
  bool fine = false;  // from bins, not from the histogram's buckets
};
// Errors: kNotFound when there are neither bins nor a histogram; kInvalidArgument when bins lack usable ends, are there twice,
// are no counts or do not add up (a part of a page), or the histogram is malformed.
[[nodiscard]] Result<SeenLatencies> read_latencies(const Exposition& page, const GatewayLatency& latency,
                                                   const std::map<std::string, std::string>& match = {});

}  // namespace windlass::metrics
