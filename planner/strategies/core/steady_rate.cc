// See steady_rate.h.
#include "planner/strategies/core/steady_rate.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace windlass::search {
namespace {

// Batches to try: the largest one and its halves. Decodes that share an iteration are cheaper, unless a model's measurements
// say otherwise.
constexpr int kHalvings = 6;
constexpr int kBatchBisections = 12;  // for the largest batch within a limit on its iterations

bool prompts_alone(planner::Batching batching) {
  return batching == planner::Batching::kVllm || batching == planner::Batching::kStatic;
}
bool reserves(planner::Batching batching) {
  return batching == planner::Batching::kOrca || batching == planner::Batching::kStatic;
}

struct Share {
  double request_s = 0;    // in time of a stage
  double iteration_s = 0;  // between two tokens
};

planner::Batch prompts(double number, const LengthMoments& lengths) {
  planner::Batch batch;
  batch.prefill_sequences = std::max(1, static_cast<int>(std::lround(number)));
  batch.prefill_tokens = number * lengths.input_tokens;
  batch.prefill_attention = number * lengths.input_square;
  return batch;
}

Share share_of(const planner::IterationModel& model, const planner::EngineSettings& engine, const LengthMoments& lengths,
               double batch, SteadyPart part) {
  const double steps = std::max(1e-6, lengths.output_tokens - 1);
  const double stages = std::max(1, model.pipeline_stages());
  const double arrivals = batch / steps;  // requests that an iteration's tokens complete, and that start
  planner::Batch decodes;
  decodes.decode_sequences = std::max(1, static_cast<int>(std::lround(batch)));
  decodes.decode_context_tokens = decodes.decode_sequences * lengths.decode_context_tokens;
  Share share;
  if (part == SteadyPart::kDecode) {
    share.request_s = steps * model.iteration_s(decodes) / batch / stages;
  } else if (prompts_alone(engine.batching)) {
    const double fit = std::clamp(std::floor(engine.max_batch_tokens / lengths.input_tokens), 1.0, std::max(1.0, batch));
    const double prompt_s = model.iteration_s(prompts(fit, lengths)) / fit;
    share.request_s = (steps * model.iteration_s(decodes) / batch + prompt_s) / stages;
  } else {
    // A fraction of a prompt on average; the extra cost of whole prompts only lowers the rate.
    planner::Batch mixed = prompts(arrivals, lengths);
    mixed.decode_sequences = decodes.decode_sequences;
    mixed.decode_context_tokens = decodes.decode_context_tokens;
    share.request_s = steps * model.iteration_s(mixed) / batch / stages;
  }
  share.iteration_s = share.request_s * stages * batch / steps;
  return share;
}

}  // namespace

LengthMoments length_moments(const Requests& requests, std::uint64_t seed, std::int64_t count) {
  return length_moments(lengths_of(requests, seed, count));
}

LengthMoments length_moments(std::span<const std::pair<int, int>> lengths) {
  LengthMoments moments;
  double steps = 0;
  for (const auto& [input, output] : lengths) {
    moments.input_tokens += input;
    moments.output_tokens += output;
    moments.input_square += static_cast<double>(input) * input;
    moments.decode_context_tokens += output * (input + 0.5 * output);
    moments.whole_tokens += static_cast<double>(output) * (input + output);
    moments.longest_tokens = std::max(moments.longest_tokens, input + output);
    steps += output;
  }
  if (lengths.empty()) return moments;
  std::vector<int> inputs;
  for (const auto& [input, output] : lengths) inputs.push_back(input);
  const auto middle = inputs.begin() + static_cast<std::ptrdiff_t>(inputs.size() / 2);
  std::nth_element(inputs.begin(), middle, inputs.end());
  moments.median_input_tokens = *middle;
  const auto number = static_cast<double>(lengths.size());
  for (double* mean : {&moments.input_tokens, &moments.output_tokens, &moments.input_square}) *mean /= number;
  for (double* mean : {&moments.decode_context_tokens, &moments.whole_tokens}) *mean /= steps;
  return moments;
}

SteadyState steady_state(const planner::IterationModel& model, double kv_capacity_tokens, const planner::EngineSettings& engine,
                         const LengthMoments& lengths, double max_iteration_s, SteadyPart part) {
  const double stages = std::max(1, model.pipeline_stages());
  const double held = reserves(engine.batching) ? lengths.whole_tokens : lengths.decode_context_tokens;
  double most = std::min<double>(engine.max_sequences, kv_capacity_tokens / stages / held);
  if (planner::chunks_prompts(engine.batching) && part == SteadyPart::kWhole) {
    const double steps = std::max(1e-6, lengths.output_tokens - 1);
    most = std::min(most, engine.max_batch_tokens / (1 + lengths.input_tokens / steps));
  }
  if (most < 1 && kv_capacity_tokens / stages < lengths.input_tokens + lengths.output_tokens) return {};
  most = std::max(1.0, most);
  const auto at = [&](double batch) { return share_of(model, engine, lengths, batch, part); };
  if (std::isfinite(max_iteration_s) && at(most).iteration_s > max_iteration_s) {
    double inside = 1, outside = most;
    for (int i = 0; i < kBatchBisections && outside - inside > 0.5; ++i) {
      const double middle = (inside + outside) / 2;
      (at(middle).iteration_s <= max_iteration_s ? inside : outside) = middle;
    }
    most = inside;
  }
  SteadyState best;
  for (int i = 0; i <= kHalvings; ++i) {
    const double batch = std::max(1.0, std::ldexp(most, -i));
    const Share share = at(batch);
    if (share.request_s > 0 && 1 / share.request_s > best.requests_per_s)
      best = {1 / share.request_s, batch, share.iteration_s};
    if (batch <= 1) break;
  }
  return best;
}

SteadyState steady_state(const WorkerKind& kind, const planner::EngineSettings& engine, const LengthMoments& lengths,
                         double max_iteration_s, SteadyPart part) {
  return steady_state(*kind.model, kind.kv_capacity_tokens, engine, lengths, max_iteration_s, part);
}

}  // namespace windlass::search
