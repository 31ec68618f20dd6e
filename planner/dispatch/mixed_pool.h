// Splitwise's cluster-level scheduler: which machine computes a request's prompt, and which one makes its tokens (Patel et al.
// 2024, Section IV-A). The simulator and the gateway call the same code.
//
// A machine belongs to the prompt pool or to the token pool, by its role. While it has work of the other role it is in the
// mixed pool. When that work has ended it is back in its own pool. So nobody stores the pools: a machine's work says where it
// is.
//
// These functions change nothing. They are templates over what the caller knows of its machines.
//
// A Machine has
//   - waiting(): prompts that it has not begun
//   - pending(): tokens of prompts to compute, plus one for each request that decodes or will decode there
//   - mixed(): it has work of the other role
//   - has_unpromised(tokens): it has room for the KV cache of this many more tokens
//
// A Pool has the machines of one role. Its functions return a machine's number, or -1 if none passes; on a tie the first one:
//   - preferred(passes): the machine that the pool's own policy takes, such as the one with the fewest pending tokens
//   - fewest_pending(passes): by pending tokens
//   - fewest_promised(passes): by the KV cache tokens promised to requests
//   - at(number): the machine
#pragma once

#include <cstdint>

namespace windlass::dispatch {

// The value of the simulator published by Splitwise's authors.
inline constexpr std::int64_t kMixedPoolThresholdTokens = 8192;

// The machine for a phase of `tokens` tokens, by the shortest queue in pending tokens: in its own pool, unless its queue would
// exceed the threshold there. Then one of the mixed pool, first of the own role, whose queue is short. Then one of the other
// pool, which thereby enters the mixed pool. If nothing else admits the request, the shortest queue of its role.
template <class Pool, class Admits>
[[nodiscard]] int machine_by_queue(const Pool& own, const Pool& other, std::int64_t tokens, std::int64_t threshold_tokens,
                                   Admits admits) {
  const auto pure = [&](const auto& machine) { return !machine.mixed() && admits(machine); };
  const auto is_short = [&](const auto& machine) {
    return machine.waiting() == 0 || machine.pending() + tokens <= threshold_tokens;
  };
  const auto mixed = [&](const auto& machine) { return machine.mixed() && admits(machine) && is_short(machine); };
  const int preferred = own.preferred(pure);
  if (preferred >= 0 && is_short(own.at(preferred))) return preferred;
  int best = own.fewest_pending(mixed);
  if (best < 0) best = other.fewest_pending(mixed);
  if (best < 0) best = other.fewest_pending(pure);
  return best >= 0 ? best : own.fewest_pending(admits);
}

// The machine that makes a request's tokens: of its own pool, the one with the least memory promised that has room for `tokens`
// tokens of KV cache (the simulator published by Splitwise's authors). With a mixed pool, if none has: one of the mixed pool,
// first of the own role, then one of the other pool. If none has room, the one of its role with the least memory promised.
template <class Pool, class Admits>
[[nodiscard]] int machine_by_memory(const Pool& own, const Pool& other, std::int64_t tokens, bool mixed_pool, Admits admits) {
  const auto roomy = [&](const auto& machine) { return admits(machine) && machine.has_unpromised(tokens); };
  const auto pure = [&](const auto& machine) { return roomy(machine) && !(mixed_pool && machine.mixed()); };
  int best = own.fewest_promised(pure);
  if (best < 0 && mixed_pool) {
    const auto mixed = [&](const auto& machine) { return roomy(machine) && machine.mixed(); };
    best = own.fewest_promised(mixed);
    if (best < 0) best = other.fewest_promised(mixed);
    if (best < 0) best = other.fewest_promised(roomy);
  }
  return best >= 0 ? best : own.fewest_promised(admits);
}

}  // namespace windlass::dispatch
