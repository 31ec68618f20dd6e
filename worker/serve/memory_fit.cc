// Memory checks and advice; see memory_fit.h.
#include "worker/serve/memory_fit.h"

#include <algorithm>

#include <fmt/core.h>

#include "worker/backend/backend.h"

namespace windlass::worker {
namespace {

// One part in 20 of the available memory. Check: the need may exceed it by this much, because it is an estimate. Advice: leaves
// this much free, because a process uses more than what is counted, at least for requests, their texts and threads.
constexpr std::int64_t kMarginShare = 20;
constexpr std::int64_t kLeastMarginBytes = 64'000'000;

double in_gb(std::int64_t bytes) { return static_cast<double>(bytes) / 1e9; }

bool fits(std::int64_t bytes, const MemoryRoom& room) { return bytes <= room.bytes + room.bytes / kMarginShare; }

// What counts against one limit apart from the cache: all ranks together, or one rank.
struct BesideCache {
  WeightSizes weights;
  std::int64_t step_bytes = 0;
};

// Tokens of KV cache that fit next to weights in this format, in whole blocks; 0: too few to be useful.
std::int64_t tokens_beside(const HostMemoryNeed& need, const BesideCache& beside, WeightFormat format, const MemoryRoom& room) {
  const std::int64_t margin = std::max(room.bytes / kMarginShare, kLeastMarginBytes);
  const std::int64_t left = room.bytes - margin - beside.step_bytes - beside.weights.bytes(format);
  const std::int64_t tokens = left / need.kv_bytes_per_token / kKvBlockTokens * kKvBlockTokens;
  return left < 0 || tokens < std::min(kLeastAdvisedContext, need.max_context_tokens) ? 0 : tokens;
}

// Flags for a KV cache of this many tokens, which may be less than a context.
std::string cache_flags(const HostMemoryNeed& need, std::int64_t tokens) {
  const std::string cache = fmt::format("--kv-cache-tokens {}", tokens);
  return tokens < need.max_context_tokens ? fmt::format("--max-context-tokens {} {}", tokens, cache) : cache;
}

std::string what_would_fit(const HostMemoryNeed& need, const BesideCache& beside, const MemoryRoom& room) {
  const WeightSizes& weights = beside.weights;
  if (const std::int64_t tokens = tokens_beside(need, beside, need.format, room); tokens > 0)
    return cache_flags(need, tokens) + " would fit";
  for (const WeightFormat format : {WeightFormat::kBlocks, WeightFormat::kBf16, WeightFormat::kInt8, WeightFormat::kFp8}) {
    if (weights.bytes(format) >= weights.bytes(need.format)) continue;
    const std::int64_t tokens = tokens_beside(need, beside, format, room);
    if (tokens == 0) continue;
    return fmt::format("--weights {} ({:.2f} GB) would fit{}", to_string(format), in_gb(weights.bytes(format)),
                       tokens < need.kv_tokens ? " with " + cache_flags(need, tokens) : "");
  }
  return "no format of --weights would fit; some of the model's blocks may (--blocks)";
}

std::string need_text(const HostMemoryNeed& need, const BesideCache& beside) {
  return fmt::format("weights take {:.2f} GB as {}, a KV cache of {} tokens {:.2f} GB and buffers {:.2f} GB",
                     in_gb(beside.weights.bytes(need.format)), to_string(need.format), need.kv_tokens, in_gb(need.kv_bytes()),
                     in_gb(beside.step_bytes));
}

Error too_much(std::int64_t bytes, const MemoryRoom& room, const std::string& more) {
  return {ErrorCode::kResourceExhausted, fmt::format("memory: {:.2f} GB are missing: {}; {:.2f} GB are available ({})",
                                                     in_gb(bytes - room.bytes), more, in_gb(room.bytes), room.limit)};
}

Result<void> check_within(const HostMemoryNeed& need, const BesideCache& beside, const std::optional<MemoryRoom>& room) {
  const std::int64_t bytes = beside.weights.bytes(need.format) + beside.step_bytes + need.kv_bytes();
  if (!room || fits(bytes, *room)) return {};
  Error error = too_much(bytes, *room, need_text(need, beside));
  error.message += "; " + what_would_fit(need, beside, *room);
  return error;
}

}  // namespace

std::string to_text(const HostMemoryNeed& need) { return need_text(need, {need.weights, need.step_bytes}); }

Result<void> check_memory(const HostMemoryNeed& need, const HostMemory& memory) {
  WINDLASS_RETURN_IF_ERROR(check_within(need, {need.weights, need.step_bytes}, memory.shared));
  return check_within(need, {need.rank_weights, need.rank_step_bytes}, memory.address_space);
}

Result<void> check_growth(std::int64_t bytes, const HostMemory& memory) {
  for (const auto* room : {&memory.shared, &memory.address_space}) {
    if (!*room || fits(bytes, **room)) continue;
    return too_much(bytes, **room, fmt::format("{:.2f} GB more are needed", in_gb(bytes)));
  }
  return {};
}

}  // namespace windlass::worker
