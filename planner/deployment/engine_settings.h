// EngineSettings: how a worker's scheduler is set: batching, budgets, pages, and the policies beside them.
//
// Sources: FasterTransformer, Orca, vLLM and Sarathi-Serve as Vidur Section 4.4 and 7.1 names them; prompt orders and decode
// admissions from TetriInfer Sections 3.3.1 and 3.4; vllm-v1 is vLLM's scheduler since its version 1.
#pragma once

#include <array>
#include <cstdint>

namespace windlass::planner {

enum class Batching { kStatic, kOrca, kVllm, kMixed, kSarathi, kVllmV1 };
inline constexpr std::array kAllBatchings = {Batching::kStatic, Batching::kOrca,    Batching::kVllm,
                                             Batching::kMixed,  Batching::kSarathi, Batching::kVllmV1};
const char* to_string(Batching batching);  // "static", "orca", "vllm", "mixed", "sarathi", "vllm-v1"

// What becomes of a decoding sequence whose pages are taken away.
enum class Preemption { kRecompute, kSwap };
inline constexpr std::array kAllPreemptions = {Preemption::kRecompute, Preemption::kSwap};
const char* to_string(Preemption preemption);  // "recompute", "swap"

// Which waiting prompt is next.
enum class PromptOrder { kArrival, kShortestFirst, kLongestFirst };
inline constexpr std::array kAllPromptOrders = {PromptOrder::kArrival, PromptOrder::kShortestFirst, PromptOrder::kLongestFirst};
const char* to_string(PromptOrder order);  // "fcfs", "sjf", "ljf"

// When there is room for a further sequence that will decode.
enum class DecodeAdmission { kGreedy, kReserveStatic, kReserveDynamic };
inline constexpr std::array kAllDecodeAdmissions = {DecodeAdmission::kGreedy, DecodeAdmission::kReserveStatic,
                                                    DecodeAdmission::kReserveDynamic};
const char* to_string(DecodeAdmission admission);  // "greedy", "reserve-static", "reserve-dynamic"

struct EngineSettings {
  Batching batching = Batching::kVllm;
  int max_sequences = 256;
  // Prompt tokens in one iteration (a longer prompt runs alone); sarathi and vllm-v1: decodes and chunks together.
  int max_batch_tokens = 2048;
  int block_tokens = 16;            // of a page of the KV cache
  std::int64_t kv_blocks = 0;       // pages that there are
  double admission_reserve = 0.01;  // share of the pages that new prompts leave free (vLLM's watermark)
  Preemption preemption = Preemption::kRecompute;
  std::int64_t host_blocks = 0;  // pages of host memory for swapped caches; a cache that does not fit is recomputed
  bool prefix_caching = false;
  PromptOrder prompt_order = PromptOrder::kArrival;
  // Prompts are sorted in windows of as many as were waiting when the last window was done, at most this many, so that none
  // starves (TetriInfer's PrefillSchedBatch).
  int prompt_order_window = 16;
  DecodeAdmission admission = DecodeAdmission::kGreedy;  // static and orca reserve the whole length whatever this says
  bool pads_chunks = false;  // a prompt's last chunk is computed as if it had max_batch_tokens (TetriInfer, Section 3.3.3)

  bool operator==(const EngineSettings&) const = default;
};

// Options as the batching's own engine has them by default: vllm-v1 caches prefixes and keeps no watermark.
[[nodiscard]] EngineSettings with_defaults_of(Batching batching);

// Whether prompts are cut into chunks, so that an iteration holds at most max_batch_tokens.
[[nodiscard]] inline bool chunks_prompts(Batching batching) {
  return batching == Batching::kSarathi || batching == Batching::kVllmV1;
}

}  // namespace windlass::planner
