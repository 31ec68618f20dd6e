// Checks which dimensions divide by the number of ranks.
#include "worker/model/tensor_slice.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <fmt/core.h>
#include <fmt/format.h>

#include "worker/collective/rank_group.h"

namespace windlass::worker {

Result<void> check_tensor_parallel(const ModelConfig& config, int ranks) {
  if (config.embedding_size > 0 && ranks != 1) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("--tensor-parallel: must be 1 for this model (got {}): config.json's "
                                                          "word_embed_proj_dim ({}) is not hidden_size ({})",
                                                          ranks, config.embedding_size, config.hidden_size)};
  }
  const bool opt = config.architecture == Architecture::kOpt;
  std::vector<std::pair<const char*, std::int64_t>> fields;
  if (!opt) fields.emplace_back("num_key_value_heads", config.kv_heads);
  fields.emplace_back("num_attention_heads", config.heads);
  if (config.has_mlp()) fields.emplace_back(opt ? "ffn_dim" : "intermediate_size", config.intermediate_size);
  if (config.experts > 0) {
    const bool mixtral = config.architecture == Architecture::kMixtral;
    fields.emplace_back(mixtral ? "intermediate_size" : "moe_intermediate_size", config.expert_intermediate_size);
  }
  const auto divides = [&](int degree) {
    return std::all_of(fields.begin(), fields.end(), [&](const auto& field) { return field.second % degree == 0; });
  };
  if (ranks >= 1 && ranks <= RankGroup::kMaxRanks && divides(ranks)) return {};
  std::vector<int> allowed;
  for (int degree = 1; degree <= RankGroup::kMaxRanks; ++degree) {
    if (divides(degree)) allowed.push_back(degree);
  }
  std::string why;
  for (const auto& [name, count] : fields) {
    if (ranks >= 1 && count % ranks != 0) why += fmt::format("{}{} ({})", why.empty() ? "" : " and ", name, count);
  }
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("--tensor-parallel: must be one of {} for this model (got {}){}", fmt::join(allowed, ", "), ranks,
                           why.empty() ? "" : ": config.json's " + why + " must be divisible by it")};
}

ModelConfig config_of_rank(const ModelConfig& config, int ranks) {
  ModelConfig part = config;
  part.heads /= ranks;
  part.kv_heads /= ranks;
  part.intermediate_size /= ranks;
  part.expert_intermediate_size /= ranks;
  return part;
}

}  // namespace windlass::worker
