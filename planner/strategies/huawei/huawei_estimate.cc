// See huawei_estimate.h.
#include "planner/strategies/huawei/huawei_estimate.h"

#include <algorithm>
#include <cassert>
#include <cmath>

#include <fmt/format.h>

namespace windlass::hetero {

double kv_cache_bytes(const planner::ModelShape& shape, const planner::AcceleratorSpec& spec, int tensor_parallel,
                      const MemoryRules& rules) {
  return tensor_parallel * (spec.memory_bytes * rules.share - rules.engine_bytes) - planner::weight_bytes(shape);
}

double kv_token_bytes(const planner::ModelShape& shape, int tensor_parallel) {
  const int shards = std::min(tensor_parallel, planner::kv_shards(shape));
  return planner::kv_bytes_per_token(shape) * tensor_parallel / shards;
}

Result<ThroughputEstimate> estimate_throughput(const dispatch::BatchTimes& times, double kv_tokens, int max_requests,
                                               std::span<const Lengths> requests) {
  const auto wrong = [](std::string what) { return Error{ErrorCode::kInvalidArgument, std::move(what)}; };
  if (requests.empty()) return wrong("throughput: must have at least one request (got none)");
  ThroughputEstimate made;
  double tokens = 0;
  for (std::size_t begin = 0; begin < requests.size();) {
    double inputs = 0;
    int longest_input = 0, longest_output = 0, batch = 0;
    for (std::size_t r = begin; r < requests.size() && batch < max_requests; ++r) {
      const auto [input, output] = requests[r];
      const int maximum = std::max(longest_output, output);
      if (inputs + input + (batch + 1.0) * maximum > kv_tokens) break;
      inputs += input;
      longest_input = std::max(longest_input, input);
      longest_output = maximum;
      ++batch;
    }
    if (batch == 0) {
      return wrong(fmt::format("request {}: must have at most {:.0f} tokens, which the cache holds (got {} in and {} out)",
                               begin, std::max(0.0, kv_tokens), requests[begin].first, requests[begin].second));
    }
    made.total_s += times.prefill_time_s(batch, longest_input) + times.decode_time_s(batch, longest_input, longest_output);
    made.largest_batch = std::max(made.largest_batch, batch);
    ++made.batches;
    begin += static_cast<std::size_t>(batch);
  }
  if (!(made.total_s > 0)) return wrong("throughput: coefficients must be above 0 (got latencies of 0 s)");
  for (const auto& [input, output] : requests) tokens += static_cast<double>(input) + output;
  made.tokens_per_s = tokens / made.total_s;
  made.requests_per_s = static_cast<double>(requests.size()) / made.total_s;
  return made;
}

ContinuousEstimate continuous_batching(const dispatch::BatchTimes& times, double kv_tokens, int max_requests,
                                       const search::LengthMoments& lengths) {
  const double context = lengths.decode_context_tokens, steps = lengths.output_tokens;
  ContinuousEstimate made;
  made.batch = std::clamp(kv_tokens / context, 1.0, static_cast<double>(max_requests));
  // On average, `ends` requests end in an iteration; their successors start together: Poisson, but at least one.
  const double ends = made.batch / steps;
  const double together = ends / -std::expm1(-ends);
  const double prompt_s = times.prefill_time_s(together, lengths.input_tokens) / together;
  const double iteration_s = (times.context_token_s * made.batch + times.context_length_s) * context +
                             times.decode_request_s * made.batch + times.decode_s;
  made.requests_per_s = 1 / (prompt_s + steps * iteration_s / made.batch);
  made.tokens_per_s = made.requests_per_s * (lengths.input_tokens + lengths.output_tokens);
  return made;
}

}  // namespace windlass::hetero
