// Finds settings that fit. The need grows with the context, so the longest one that fits is found by bisection.
#include "worker/backend/cuda/memory_fit.h"

#include <optional>
#include <vector>

#include <fmt/core.h>
#include <fmt/format.h>

#include "worker/backend/backend.h"

namespace windlass::worker::cuda {
namespace {

// One way to run the model on devices of one size.
struct Setting {
  const ModelConfig& config;
  CudaBackendOptions options;
  TensorSlice slice;
  Precision precision = Precision::kBf16;
  int multiprocessors = 0;
  std::int64_t budget_bytes = 0;
  bool cache_asked = false;

  [[nodiscard]] MemoryNeed need() const { return memory_need(config, options, slice, precision, multiprocessors); }

  // Blocks of KV cache that fit; negative if not even the weights fit.
  [[nodiscard]] std::int64_t blocks() const {
    const MemoryNeed found = need();
    const std::int64_t left = budget_bytes - found.weights_bytes - found.working_bytes;
    return left < 0 ? -1 : left / found.kv_block_bytes;
  }
  [[nodiscard]] bool has_context() const { return blocks() >= blocks_for(options.max_context_tokens); }
  [[nodiscard]] bool fits() const { return has_context() && (!cache_asked || blocks() >= options.kv_blocks); }
};

// The longest context, in whole blocks, that fits; 0: none of a useful length.
std::int64_t longest_context(Setting setting) {
  std::int64_t fits = 0, too_long = blocks_for(setting.options.max_context_tokens);
  while (too_long - fits > 1) {
    const std::int64_t half = fits + (too_long - fits) / 2;
    setting.options.max_context_tokens = half * kKvBlockTokens;
    (setting.has_context() ? fits : too_long) = half;
  }
  return fits * kKvBlockTokens < kLeastAdvisedContext ? 0 : fits * kKvBlockTokens;
}

// The smallest tensor-parallel degree that fits; 0: none.
int least_degree(Setting setting) {
  for (int ranks = setting.slice.ranks + 1; ranks <= RankGroup::kMaxRanks; ++ranks) {
    setting.slice = {ranks - 1, ranks};
    if (check_tensor_parallel(setting.config, ranks).ok() && setting.fits()) return ranks;
  }
  return 0;
}

// Flags for a cache that fits; "" if no flag is needed; nullopt if nothing helps.
std::optional<std::string> cache_flags(const Setting& setting) {
  if (setting.fits()) return "";
  if (setting.has_context()) return fmt::format("--kv-cache-tokens {}", setting.blocks() * kKvBlockTokens);
  const std::int64_t context = longest_context(setting);
  if (context == 0) return std::nullopt;
  const std::string shorter = fmt::format("--max-context-tokens {}", context);
  return setting.cache_asked ? fmt::format("{} --kv-cache-tokens {}", shorter, context) : shorter;
}

}  // namespace

std::string what_would_fit(const ModelConfig& config, const CudaBackendOptions& options, Precision precision,
                           int multiprocessors, std::int64_t budget_bytes, bool cache_asked) {
  const Setting asked{config, options, options.slice(), precision, multiprocessors, budget_bytes, cache_asked};
  std::vector<std::string> found;
  const auto add = [&](const std::string& flag, const Setting& setting) {
    const auto cache = cache_flags(setting);
    if (!cache) return;
    const double gb = static_cast<double>(setting.need().weights_bytes) / 1e9;
    found.push_back(fmt::format("{}{}{} (weights of {:.1f} GB)", flag, cache->empty() ? "" : " ", *cache, gb));
  };
  if (const auto cache = cache_flags(asked)) found.push_back(*cache);
  if (precision == Precision::kFp32) {
    Setting plainer = asked;
    plainer.precision = Precision::kBf16;
    add("--precision bf16", plainer);
  }
  Setting small = asked;
  small.options.weights = WeightFormat::kFp8;
  if (!options.eight_bits()) add("--weights fp8", small);
  if (const int ranks = least_degree(asked); ranks > 0) {
    found.push_back(fmt::format("--tensor-parallel {}, on GPUs like this one", ranks));
  } else if (const int small_ranks = options.eight_bits() ? 0 : least_degree(small); small_ranks > 0) {
    found.push_back(fmt::format("--weights fp8 --tensor-parallel {}, on GPUs like this one", small_ranks));
  }
  if (found.empty()) return "neither other weights nor --tensor-parallel would fit; some of the model's blocks may (--blocks)";
  return fmt::format("what would fit: {}", fmt::join(found, ", or "));
}

}  // namespace windlass::worker::cuda
