// Implements load_recipe.h.
#include "tests/bench/fidelity/load_recipe.h"

#include <algorithm>

#include <fmt/format.h>

namespace windlass::bench {

Result<LoadRecipe> recipe_of(const EndToEndRow& row) {
  LoadRecipe recipe;
  if (row.engine == "trtllm") {
    // Decodes and prompts share an iteration; its overlap scheduler prepares the next one ahead. aiconfigurator's generators
    // set max_num_tokens to about a prompt and the batch; the prompt is without the template's tokens, so it may need a second
    // iteration. The cache is in FP8 for an FP8 checkpoint: with 64 clients of 4,608 tokens on one GPU, about 60 run.
    recipe.schedules_ahead = true;
    recipe.budget_prompts = 1;
    recipe.budget_clients = true;
    recipe.float8_cache = row.weights != planner::GemmKind::kBFloat16;
    recipe.memory_share = 0.85;
    recipe.largest_graph_tokens = 128;
    // By Little's law, one request of this set always waits, with any number of clients: clients x (change of TTFT) / (change
    // of the end-to-end time) between two output lengths is 0.8 to 1.0. Unexplained; Qwen's set has none.
    recipe.missing_slots = row.model == "meta-llama/Llama-3.1-8B-Instruct" ? 1 : 0;
    return recipe;
  }
  if (row.engine == "sglang") {
    recipe.schedules_ahead = true;
    recipe.memory_share = 0.84;
    recipe.reserved_bytes = 1e9;
    recipe.largest_graph_tokens = 256;
    if (row.gpu == "h200_sxm") {
      // As if aiconfigurator's generator had configured it: --enable-mixed-chunk, --max-prefill-tokens of a prompt and 1,500.
      // Its rounds are not known.
      recipe.budget_prompts = 1;
      recipe.budget_tokens = 1500;
      recipe.rounds = 10;
      recipe.max_requests = 1 << 20;
      recipe.max_sequences = 464;  // by Little's law, about 45 of 512 clients always wait
    } else {
      // Prompts first. 16,384 is the default of max_prefill_tokens; chunks of 8,192, also a default, fit less well.
      recipe.batching = planner::Batching::kVllm;
      recipe.budget_tokens = 16384;
      // 0.5.8 keeps more memory free: by Little's law 2 to 5 of 16 requests run, so the cache holds 6,000 to 8,000 tokens.
      if (row.version == "0.5.8.post1") recipe.reserved_bytes = 4.8e9;
    }
    return recipe;
  }
  if (row.engine == "vllm") {
    // Asynchronous scheduling is off before 0.14. 2,048 is the default of servers that embed the engine; 8,192, the default of
    // its own server, fits less well.
    recipe.batching = planner::Batching::kVllmV1;
    recipe.rounds = 10;
    recipe.budget_tokens = 2048;
    return recipe;
  }
  return Error{ErrorCode::kInvalidArgument, fmt::format("backend: must be vllm, sglang or trtllm (got '{}')", row.engine)};
}

planner::EngineOverhead overhead_of(const LoadRecipe& recipe, const EngineCosts& costs) {
  planner::EngineOverhead overhead;
  overhead.iteration_s = costs.iteration_s;
  overhead.sequence_s = costs.sequence_s;
  overhead.prefill_s = costs.prefill_s;
  overhead.eager_layer_s = costs.eager_layer_s;
  overhead.overlaps = recipe.schedules_ahead;
  overhead.largest_graph_tokens = recipe.largest_graph_tokens;
  overhead.memory_share = recipe.memory_share;
  overhead.reserved_bytes = recipe.reserved_bytes;
  return overhead;
}

ClosedLoop load_of(const EndToEndRow& row, const LoadRecipe& recipe, const EngineCosts& costs) {
  ClosedLoop load;
  load.clients = row.clients;
  load.requests = std::min(recipe.rounds * row.clients, std::max(recipe.max_requests, row.clients));
  load.input_tokens = row.input_tokens + recipe.template_tokens;
  load.output_tokens = row.output_tokens;
  load.output_jitter = recipe.output_jitter;
  load.turnaround_s = costs.turnaround_s;
  load.request_s = costs.request_s;
  load.token_s = costs.token_s;
  return load;
}

planner::EngineSettings settings_of(const EndToEndRow& row, const LoadRecipe& recipe) {
  planner::EngineSettings settings = planner::with_defaults_of(recipe.batching);
  settings.schedules_ahead = recipe.schedules_ahead;
  settings.max_batch_tokens =
      recipe.budget_tokens + recipe.budget_prompts * row.input_tokens + (recipe.budget_clients ? row.clients : 0);
  settings.max_sequences = std::clamp(row.clients - recipe.missing_slots, 1, recipe.max_sequences);
  return settings;
}

}  // namespace windlass::bench
