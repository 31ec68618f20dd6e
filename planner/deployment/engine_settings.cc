// Names and defaults of engine settings; see engine_settings.h.
#include "planner/deployment/engine_settings.h"

namespace windlass::planner {

const char* to_string(Batching batching) {
  switch (batching) {
    case Batching::kStatic: return "static";
    case Batching::kOrca: return "orca";
    case Batching::kVllm: return "vllm";
    case Batching::kMixed: return "mixed";
    case Batching::kSarathi: return "sarathi";
    case Batching::kVllmV1: return "vllm-v1";
  }
  return "";
}

const char* to_string(Preemption preemption) { return preemption == Preemption::kSwap ? "swap" : "recompute"; }

const char* to_string(PromptOrder order) {
  switch (order) {
    case PromptOrder::kArrival: return "fcfs";
    case PromptOrder::kShortestFirst: return "sjf";
    case PromptOrder::kLongestFirst: return "ljf";
  }
  return "";
}

const char* to_string(DecodeAdmission admission) {
  switch (admission) {
    case DecodeAdmission::kGreedy: return "greedy";
    case DecodeAdmission::kReserveStatic: return "reserve-static";
    case DecodeAdmission::kReserveDynamic: return "reserve-dynamic";
  }
  return "";
}

EngineSettings with_defaults_of(Batching batching) {
  EngineSettings options;
  options.batching = batching;
  if (batching == Batching::kVllmV1) {
    options.prefix_caching = true;
    options.admission_reserve = 0;
    options.schedules_ahead = true;
  }
  return options;
}

ToldSettings told(const EngineSettings& settings) {
  const EngineSettings usual;
  ToldSettings told;
  const bool chosen = settings.batching != usual.batching;
  if (chosen) told.batching = settings.batching;
  if (chosen || settings.max_sequences != usual.max_sequences) told.max_sequences = settings.max_sequences;
  if (chosen || settings.max_batch_tokens != usual.max_batch_tokens) told.max_batch_tokens = settings.max_batch_tokens;
  told.precision = settings.precision;
  return told;
}

}  // namespace windlass::planner
