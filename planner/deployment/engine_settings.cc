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
  }
  return options;
}

}  // namespace windlass::planner
