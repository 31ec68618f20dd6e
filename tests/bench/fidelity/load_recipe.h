// LoadRecipe says how a published end-to-end run was made: its clients, and the settings of its server. EngineCosts is what the
// engine's CPU and front end take; nobody published it, so it is fitted (cost_fit.h).
//
// Where a recipe comes from: the values themselves (each mean of H100's rows is a whole number of nanoseconds over the number
// of requests, which gives 20 requests for each client and at most 2,000 for TensorRT-LLM and SGLang, 10 for vLLM); the
// generators of aiconfigurator, whose authors measured (genai_perf_runner.py: warm-up first, equal lengths, ignore_eos, unique
// prompts through the chat template; *.rule: token budgets); and the engines' sources of these versions.
// docs/algorithms/latency-end-to-end.md says what is known and what was chosen because it fits.
#pragma once

#include "planner/base/result.h"
#include "planner/deployment/engine_settings.h"
#include "planner/perf/operator_model.h"
#include "tests/bench/fidelity/closed_loop.h"
#include "tests/bench/fidelity/operator_data.h"

namespace windlass::bench {

struct LoadRecipe {
  int rounds = 20;           // requests for each client
  int max_requests = 2000;   // in total
  int template_tokens = 15;  // that the chat template adds to a prompt
  double output_jitter = 0;  // closed_loop.h: every set has answers of equal lengths
  planner::Batching batching = planner::Batching::kSarathi;
  bool schedules_ahead = false;  // EngineOverhead::overlaps too
  // Token budget of an iteration: a constant, plus prompts of the client's length, plus one for each client.
  int budget_tokens = 0;
  int budget_prompts = 0;
  bool budget_clients = false;
  int missing_slots = 0;        // sequences run at once, fewer than clients
  int max_sequences = 1 << 20;  // the same, in total
  bool float8_cache = false;
  double memory_share = 0.9;    // fraction of a GPU's memory
  double reserved_bytes = 4e9;  // part of it that is no cache
  double largest_graph_tokens = 512;
};

// Error kInvalidArgument: an engine without a recipe.
[[nodiscard]] Result<LoadRecipe> recipe_of(const EndToEndRow& row);

// Fitted for each engine.
struct EngineCosts {
  double iteration_s = 0, sequence_s = 0, prefill_s = 0, eager_layer_s = 0;  // EngineOverhead
  double request_s = 0, token_s = 0, turnaround_s = 0;                       // ClosedLoop

  bool operator==(const EngineCosts&) const = default;
};

[[nodiscard]] planner::EngineOverhead overhead_of(const LoadRecipe& recipe, const EngineCosts& costs);
[[nodiscard]] ClosedLoop load_of(const EndToEndRow& row, const LoadRecipe& recipe, const EngineCosts& costs);
// Without kv_blocks.
[[nodiscard]] planner::EngineSettings settings_of(const EndToEndRow& row, const LoadRecipe& recipe);

}  // namespace windlass::bench
