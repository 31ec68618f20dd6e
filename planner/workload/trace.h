// Reads traces of real requests in the format of the Azure LLM inference traces, and replays them as a source.
//
//   TIMESTAMP,ContextTokens,GeneratedTokens
//   2023-11-16 18:17:03.9799600,4808,10
//
// Timestamps are UTC with up to nine decimals, optionally followed by "+00:00"; lines end in LF or CR LF. Rows must be sorted
// by time: an unsorted trace was cut or joined wrongly, and sorting it would hide that. Tokens are at least 1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "planner/base/result.h"
#include "planner/workload/context_limit.h"
#include "planner/workload/request_source.h"
#include "planner/workload/trace_replay.h"

namespace windlass::workload {

struct TraceRow {
  double arrival_s = 0;  // since the first row
  int input_tokens = 0;
  int output_tokens = 0;

  bool operator==(const TraceRow&) const = default;
};

// At least one row. Error kInvalidArgument names the line, the field, what was found and what is allowed.
[[nodiscard]] Result<std::vector<TraceRow>> parse_azure_trace(std::string_view text,
                                                              const std::optional<ContextLimit>& context = std::nullopt);

// Standard deviation / mean of the gaps between arrivals; 1 for Poisson arrivals. None for fewer than three rows, or if all
// arrive at the same time.
[[nodiscard]] std::optional<double> gap_cv(std::span<const TraceRow> rows);

// Rows per second: (rows - 1) / time from first to last. None for fewer than two rows, or if all arrive at the same time.
[[nodiscard]] std::optional<double> mean_rate_per_s(std::span<const TraceRow> rows);

// The times of the rows, as TraceArrivals needs them.
[[nodiscard]] std::vector<double> times_of(std::span<const TraceRow> rows);

// Replays the first `limit` rows, or these with time and rate scaled. A request's size is its input plus output tokens, divided
// by their mean in the rows used (1 if all are 0). `source` names the random stream for thinning and shifts. REQUIRES:
// scaling.validate().
class TraceSource final : public RequestSource {
 public:
  explicit TraceSource(std::vector<TraceRow> rows, std::size_t limit = std::numeric_limits<std::size_t>::max(),
                       const TraceScaling& scaling = {}, std::uint64_t seed = 1, std::string_view source = "trace");

  [[nodiscard]] std::optional<Request> next() override;

 private:
  std::vector<TraceRow> rows_;
  double mean_tokens_ = 0;
  TraceReplay replay_;
};

}  // namespace windlass::workload
