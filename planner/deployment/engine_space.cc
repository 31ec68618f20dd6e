// What each type of engine can be told; see engine_space.h.
#include "planner/deployment/engine_space.h"

#include <algorithm>

namespace windlass::planner {
namespace {

constexpr int kMaxWindlassSequences = 1024;  // of windlass-worker's --max-concurrent
constexpr int kMaxBatchTokens = 65536;       // of its --max-batch-tokens; more gain nothing on any engine

template <class Value>
bool one_of(const std::vector<Value>& values, Value value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

}  // namespace

bool EngineSpace::holds(Batching batching) const { return one_of(batchings, batching); }

bool EngineSpace::holds(const EngineSettings& settings) const {
  if (settings == EngineSettings{}) return true;
  const EngineSettings usual;
  const bool schedules = settings.prompt_order != usual.prompt_order || settings.admission != usual.admission ||
                         settings.pads_chunks || settings.preemption != usual.preemption || settings.host_blocks > 0;
  return holds(settings.batching) && max_sequences.holds(settings.max_sequences) &&
         max_batch_tokens.holds(settings.max_batch_tokens) && (scheduling || !schedules) &&
         (!settings.precision || one_of(precisions, *settings.precision));
}

bool EngineSpace::holds(const WorkerSpec& spec) const {
  return holds(spec.engine) && (length_predictor || !spec.length_predictor) && (power_share || spec.power_share == 1);
}

EngineSettings EngineSpace::nearest(EngineSettings settings) const {
  if (holds(settings)) return settings;
  if (!scheduling) {
    const EngineSettings usual;
    settings.prompt_order = usual.prompt_order;
    settings.prompt_order_window = usual.prompt_order_window;
    settings.admission = usual.admission;
    settings.pads_chunks = usual.pads_chunks;
    settings.preemption = usual.preemption;
    settings.host_blocks = usual.host_blocks;
    if (settings == usual) return settings;
  }
  if (!holds(settings.batching)) settings.batching = batchings.front();
  settings.max_sequences = std::clamp(settings.max_sequences, max_sequences.least, max_sequences.most);
  settings.max_batch_tokens = std::clamp(settings.max_batch_tokens, max_batch_tokens.least, max_batch_tokens.most);
  if (settings.precision && !one_of(precisions, *settings.precision)) settings.precision.reset();
  return settings;
}

EngineSpace space_of(EngineType type) {
  EngineSpace space;
  space.max_sequences = {1, 4096};
  space.max_batch_tokens = {32, kMaxBatchTokens};
  space.scheduling = space.length_predictor = space.power_share = false;
  switch (type) {
    case EngineType::kWindlass:  // each iteration has all decodes, then pieces of prompts
      space.batchings = {Batching::kSarathi};
      space.max_sequences.most = kMaxWindlassSequences;
      space.precisions = {DType::kFloat32, DType::kBFloat16, DType::kFloat8, DType::kInt8};
      return space;
    case EngineType::kVLLM:
      space.batchings = {Batching::kVllmV1};
      space.precisions = {DType::kFloat32, DType::kFloat16, DType::kBFloat16, DType::kFloat8};
      return space;
    case EngineType::kSGLang:  // prompts first; with --enable-mixed-chunk decodes and pieces of prompts together
      space.batchings = {Batching::kVllm, Batching::kSarathi};
      space.precisions = {DType::kFloat32, DType::kFloat16, DType::kBFloat16, DType::kFloat8};
      return space;
    case EngineType::kTensorRTLLM:  // without chunks it rejects prompts above the budget
      space.batchings = {Batching::kSarathi};
      space.precisions = {};
      return space;
    case EngineType::kLlamaCpp:
      space.batchings = {Batching::kSarathi};
      space.precisions = {};  // the GGUF file's own
      return space;
  }
  return space;
}

EngineSettings own_settings(EngineType type) {
  EngineSettings settings = with_defaults_of(space_of(type).batchings.front());
  settings.schedules_ahead = type == EngineType::kVLLM || type == EngineType::kSGLang || type == EngineType::kTensorRTLLM;
  return settings;
}

}  // namespace windlass::planner
