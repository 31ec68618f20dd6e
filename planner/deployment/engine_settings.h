// EngineSettings configures the scheduler of a worker: batching, budgets, pages and policies.
//
// Sources: FasterTransformer, Orca, vLLM and Sarathi-Serve as described in Vidur, Sections 4.4 and 7.1; prompt orders and
// decode admission from TetriInfer, Sections 3.3.1 and 3.4; vllm-v1 is vLLM's scheduler since version 1.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "planner/catalog/dtype.h"

namespace windlass::planner {

enum class Batching { kStatic, kOrca, kVllm, kMixed, kSarathi, kVllmV1 };
inline constexpr std::array kAllBatchings = {Batching::kStatic, Batching::kOrca,    Batching::kVllm,
                                             Batching::kMixed,  Batching::kSarathi, Batching::kVllmV1};
const char* to_string(Batching batching);  // "static", "orca", "vllm", "mixed", "sarathi", "vllm-v1"

// What happens to a decoding sequence whose pages are taken away.
enum class Preemption { kRecompute, kSwap };
inline constexpr std::array kAllPreemptions = {Preemption::kRecompute, Preemption::kSwap};
const char* to_string(Preemption preemption);  // "recompute", "swap"

// The order of waiting prompts.
enum class PromptOrder { kArrival, kShortestFirst, kLongestFirst };
inline constexpr std::array kAllPromptOrders = {PromptOrder::kArrival, PromptOrder::kShortestFirst, PromptOrder::kLongestFirst};
const char* to_string(PromptOrder order);  // "fcfs", "sjf", "ljf"

// When another sequence that will decode may start.
enum class DecodeAdmission { kGreedy, kReserveStatic, kReserveDynamic };
inline constexpr std::array kAllDecodeAdmissions = {DecodeAdmission::kGreedy, DecodeAdmission::kReserveStatic,
                                                    DecodeAdmission::kReserveDynamic};
const char* to_string(DecodeAdmission admission);  // "greedy", "reserve-static", "reserve-dynamic"

struct EngineSettings {
  Batching batching = Batching::kVllm;
  int max_sequences = 256;
  // Prompt tokens per iteration (a longer prompt runs alone); for sarathi and vllm-v1: decodes and chunks together.
  int max_batch_tokens = 2048;
  int block_tokens = 16;            // size of a KV-cache page
  std::int64_t kv_blocks = 0;       // number of pages
  double admission_reserve = 0.01;  // fraction of the pages that new prompts leave free (vLLM's watermark)
  Preemption preemption = Preemption::kRecompute;
  std::int64_t host_blocks = 0;  // pages of host memory for swapped caches; a cache that does not fit is recomputed
  bool prefix_caching = false;
  PromptOrder prompt_order = PromptOrder::kArrival;
  // Prompts are sorted in windows: the prompts waiting when the last window was done, at most this many, so that none starves
  // (TetriInfer's PrefillSchedBatch).
  int prompt_order_window = 16;
  DecodeAdmission admission = DecodeAdmission::kGreedy;  // static and orca always reserve the whole length
  // An iteration is prepared while the one before it runs, so that a request that comes in between waits for one more.
  bool schedules_ahead = false;
  bool pads_chunks = false;  // the last chunk of a prompt costs as much as max_batch_tokens (TetriInfer, Section 3.3.3)
  std::optional<DType> precision = {};  // of the layers' weights; none: the model's own

  bool operator==(const EngineSettings&) const = default;
};

// The defaults of the engine that uses this batching: vllm-v1 caches prefixes, keeps no watermark and schedules ahead (since
// 0.14).
[[nodiscard]] EngineSettings with_defaults_of(Batching batching);

// The settings that a worker gets, each only if it differs from the default, which stands for the engine's own. With a
// batching it gets all numbers, because they were chosen together.
struct ToldSettings {
  std::optional<Batching> batching;
  std::optional<int> max_sequences, max_batch_tokens;
  std::optional<DType> precision;
};
[[nodiscard]] ToldSettings told(const EngineSettings& settings);

// Whether prompts are split into chunks, so that an iteration has at most max_batch_tokens.
[[nodiscard]] inline bool chunks_prompts(Batching batching) {
  return batching == Batching::kSarathi || batching == Batching::kVllmV1;
}

}  // namespace windlass::planner
