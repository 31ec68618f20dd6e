// Results of others' load generators as rows that a latency model is fitted to: `vllm bench serve --save-result`, AIPerf's
// profile_export_aiperf.json and .csv, and GuideLLM's benchmarks.json. Pure.
//
// Which tool it was shows in the names; others are passed over. Where the names come from (file and commit where each was
// read):
//   vLLM      vllm/benchmarks/serve.py @def9ce85
//     endpoint_type, model_id, request_throughput, completed, total_input_tokens, total_output_tokens, median_ttft_ms,
//     median_tpot_ms, mean_tpot_ms; one object a file, or with --append-result one a line
//   AIPerf    src/aiperf/exporters/metrics_json_exporter.py @96ebaea3, metrics_csv_exporter.py @880522f7 and
//     docs/tutorials/working-with-profile-exports.md @13992dbd
//     time_to_first_token, inter_token_latency, input_sequence_length, output_sequence_length, request_throughput, each with
//     unit, avg and p50; input_config.endpoint.model_names. The CSV has the same as "Time to First Token (ms)" and so on below
//     "Metric,avg,...,p50,...", then single values below "Metric,Value", and no model
//   GuideLLM  src/guidellm/benchmark/schemas/generative/metrics.py @52b6fe22 and benchmark.py @03820eba
//     benchmarks[].metrics.{time_to_first_token_ms, inter_token_latency_ms, prompt_token_count, output_token_count,
//     requests_per_second}.successful.{mean, median}; benchmarks[].config.backend.model where it is there
//
// These tools keep a worker under load instead of sending batches to an idle one. What they measured becomes two rows: the
// prefill of one prompt, which is the median TTFT less half an iteration of those that were running, and an iteration of as
// many requests as were decoding on average (Little: rate times TPOT times tokens), whose time is the median TPOT without the
// share in which other prompts were computed. Requests that waited for a place make the first too long, which the fit's error
// shows.
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
  std::string model;  // empty: the file does not say
  double requests_per_s = 0;
  double prompt_tokens = 0, output_tokens = 0;  // means
  double ttft_s = 0, tpot_s = 0;                // medians
  double mean_tpot_s = 0;
};

// nullopt: the text is of none of these tools. Errors kInvalidArgument: it is, and a field is missing or not positive.
[[nodiscard]] Result<std::optional<std::vector<BenchmarkResult>>> parse_benchmark_results(std::string_view text);

// Two for each: one with a prompt time and no token time (output_tokens 1), one with a token time and no prompt time (0).
[[nodiscard]] std::vector<ProfileRow> rows_of(std::span<const BenchmarkResult> results, const ProfileKey& key);

}  // namespace windlass::planner
