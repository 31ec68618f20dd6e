// Converts results of other load generators to rows for fitting a latency model: `vllm bench serve --save-result`, AIPerf's
// profile_export_aiperf.json and .csv, and GuideLLM's benchmarks.json. Pure.
//
// Field names identify the tool; unknown fields are ignored. Sources of the names (file and commit):
//   vLLM      vllm/benchmarks/serve.py @def9ce85
//     endpoint_type, model_id, request_throughput, completed, total_input_tokens, total_output_tokens, median_ttft_ms,
//     median_tpot_ms, mean_tpot_ms; one object per file, or one per line with --append-result
//   AIPerf    src/aiperf/exporters/metrics_json_exporter.py @96ebaea3, metrics_csv_exporter.py @880522f7 and
//     docs/tutorials/working-with-profile-exports.md @13992dbd
//     time_to_first_token, inter_token_latency, input_sequence_length, output_sequence_length, request_throughput, each with
//     unit, avg and p50; input_config.endpoint.model_names. The CSV has the same as "Time to First Token (ms)" and so on below
//     "Metric,avg,...,p50,...", then single values below "Metric,Value", and no model
//   GuideLLM  src/guidellm/benchmark/schemas/generative/metrics.py @52b6fe22 and benchmark.py @03820eba
//     benchmarks[].metrics.{time_to_first_token_ms, inter_token_latency_ms, prompt_token_count, output_token_count,
//     requests_per_second}.successful.{mean, median}; benchmarks[].config.backend.model if present
//
// These tools keep a worker under load instead of sending batches to an idle one. Each result becomes two rows. The first is
// the prefill of one prompt: the median TTFT minus half an iteration of the requests then running. The second is an iteration
// with the mean number of decoding requests (Little: rate times TPOT times tokens); its time is the median TPOT without the
// share spent on the prompts of others. Requests that waited for a slot make the first row too long; the error of the fit shows
// that.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "planner/base/result.h"
#include "planner/perf/profile_table.h"

namespace windlass::planner {

struct BenchmarkResult {
  std::string tool;   // "vLLM", "AIPerf", "GuideLLM"
  std::string model;  // empty: not in the file
  double requests_per_s = 0;
  double prompt_tokens = 0, output_tokens = 0;  // means
  double ttft_s = 0, tpot_s = 0;                // medians
  double mean_tpot_s = 0;
};

// nullopt: the text is from none of these tools. Errors kInvalidArgument: it is, but a field is missing or not positive.
[[nodiscard]] Result<std::optional<std::vector<BenchmarkResult>>> parse_benchmark_results(std::string_view text);

// Two rows for each: one with a prompt time and no token time (output_tokens 1), one with a token time and no prompt time (0).
[[nodiscard]] std::vector<ProfileRow> rows_of(std::span<const BenchmarkResult> results, const ProfileKey& key);

}  // namespace windlass::planner
