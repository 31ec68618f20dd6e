// Counts what each chain has and calls mixed_pool.h; see splitwise_policy.h.
#include "planner/dispatch/splitwise_policy.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "planner/dispatch/mixed_pool.h"
#include "planner/dispatch/packed_worker.h"

namespace windlass::dispatch {

// The chains of some roles, as mixed_pool.h sees a pool.
struct SplitwisePolicy::Pool {
  const std::vector<Machine>& machines;
  bool (*belongs)(Role);

  template <class Passes, class Tokens>
  [[nodiscard]] int least(Passes passes, Tokens tokens) const {
    int best = -1;
    std::int64_t fewest = 0;
    for (std::size_t i = 0; i < machines.size(); ++i) {
      if (!belongs(machines[i].role) || !passes(machines[i])) continue;
      const std::int64_t here = tokens(machines[i]);
      if (best >= 0 && here >= fewest) continue;
      best = static_cast<int>(i);
      fewest = here;
    }
    return best;
  }
  template <class Passes>
  [[nodiscard]] int fewest_pending(Passes passes) const {
    return least(passes, [](const Machine& machine) { return machine.pending(); });
  }
  template <class Passes>
  [[nodiscard]] int fewest_promised(Passes passes) const {
    return least(passes, [](const Machine& machine) { return machine.load->promised_tokens; });
  }
  template <class Passes>
  [[nodiscard]] int preferred(Passes passes) const {
    return fewest_pending(passes);
  }
  [[nodiscard]] const Machine& at(int machine) const { return machines[static_cast<std::size_t>(machine)]; }
};

namespace {

bool computes_prompts(Role role) { return role != Role::kDecode; }
bool only_prompts(Role role) { return role == Role::kPrefill; }
bool only_tokens(Role role) { return role == Role::kDecode; }

std::optional<std::size_t> index_of(int machine) {
  return machine < 0 ? std::nullopt : std::optional(static_cast<std::size_t>(machine));
}

}  // namespace

std::int64_t SplitwisePolicy::Machine::pending() const {
  return std::llround(static_cast<double>(load->decodes + load->prompt_tokens) / share);
}

bool SplitwisePolicy::Machine::mixed() const {
  return role == Role::kPrefill ? load->decodes > 0 : role == Role::kDecode && load->prompts > 0;
}

bool SplitwisePolicy::Machine::has_unpromised(std::int64_t tokens) const {
  return load->requests < capacity && (kv_tokens <= 0 || static_cast<double>(load->promised_tokens + tokens) <= kv_tokens);
}

void SplitwisePolicy::reset(std::span<const ChainState> chains) {
  for (auto& [key, load] : loads_) load.index = -1;
  machines_.assign(chains.size(), {});
  keys_.clear();
  for (std::size_t i = 0; i < chains.size(); ++i) {
    keys_.push_back(chains[i].key);
    machines_[i].load = &loads_[chains[i].key];
    machines_[i].load->index = static_cast<int>(i);
    update(i, chains[i]);
  }
  std::erase_if(loads_, [](const auto& one) { return one.second.index < 0 && one.second.requests + one.second.prompts == 0; });
}

void SplitwisePolicy::update(std::size_t index, const ChainState& state) {
  Machine& machine = machines_[index];
  machine.role = state.role;
  machine.open = state.takes_requests();
  machine.own_role_only = state.own_role_only;
  machine.capacity = state.capacity;
  machine.share = state.share > 0 ? std::min(1.0, state.share) : 1;
  machine.kv_tokens = state.packing == nullptr ? 0 : state.packing->kv_capacity_tokens;
}

int SplitwisePolicy::input_of(const RequestLengths& request) const {
  if (request.input_tokens > 0) return request.input_tokens;
  const double mean = std::min(1e9, history_.mean_input_tokens());
  return mean >= 1 ? static_cast<int>(std::lround(mean)) : kUnknownInput;
}

std::int64_t SplitwisePolicy::kv_of(const RequestLengths& request) const {
  const int input = input_of(request);
  return std::int64_t{input} + (request.output_tokens > 0 ? request.output_tokens : history_.predict(input));
}

std::optional<std::size_t> SplitwisePolicy::choose_for(const RequestLengths& request, double /*now_s*/) {
  const Pool prompts{machines_, computes_prompts}, tokens{machines_, only_tokens};
  const auto open = [](const Machine& machine) { return machine.open; };
  const bool decodes = tokens.fewest_pending(open) >= 0;
  const auto begins = [&](const Machine& machine) { return machine.takes_tokens() || (machine.open && decodes); };
  if (prompts.fewest_pending(begins) < 0) return index_of(tokens.fewest_pending(open));
  // A decode chain would serve it whole.
  const std::int64_t whole = kv_of(request);
  const auto admits = [&](const Machine& machine) {
    return begins(machine) && (machine.role != Role::kDecode || machine.has_unpromised(whole));
  };
  return index_of(machine_by_queue(prompts, tokens, input_of(request), threshold_tokens_, admits));
}

std::size_t SplitwisePolicy::decode_chain_for(std::size_t prompt_chain, std::int64_t kv_tokens) const {
  const Pool tokens{machines_, only_tokens}, prompts{machines_, only_prompts};
  const auto open = [](const Machine& machine) { return machine.open; };
  if (machines_[prompt_chain].role != Role::kPrefill || tokens.fewest_promised(open) < 0) return prompt_chain;
  const bool may_stay = machines_[prompt_chain].takes_tokens();
  const auto admits = [&](const Machine& machine) {
    return machine.takes_tokens() && (may_stay || machine.role == Role::kDecode);
  };
  const auto chain = static_cast<std::size_t>(machine_by_memory(tokens, prompts, kv_tokens, true, admits));
  // Another prefill chain would not be better, and both could fill with prompts that wait for each other.
  return machines_[chain].role == Role::kPrefill ? prompt_chain : chain;
}

void SplitwisePolicy::placed(std::size_t chain, const RequestLengths& request) {
  ended(request.id, 0);
  place(chain, decode_chain_for(chain, kv_of(request)), request);
}

void SplitwisePolicy::stays_at(std::size_t chain, const RequestLengths& request) {
  ended(request.id, 0);
  place(chain, chain, request);
}

void SplitwisePolicy::place(std::size_t prompt_chain, std::size_t decode_chain, const RequestLengths& request) {
  Request& of = requests_[request.id];
  of = {keys_[prompt_chain], keys_[decode_chain], input_of(request), kv_of(request), prompt_chain != decode_chain};
  Load& at = loads_.at(of.prompt_chain);
  ++at.prompts;
  ++at.unbegun;
  at.prompt_tokens += of.input_tokens;
  if (of.separate) {
    ++at.requests;
    at.promised_tokens += of.input_tokens;
  }
  promise(of, of.decode_chain);
}

void SplitwisePolicy::promise(Request& request, std::uint64_t decode_chain) {
  request.decode_chain = decode_chain;
  Load& at = loads_.at(decode_chain);
  ++at.requests;
  ++at.decodes;
  at.promised_tokens += request.kv_tokens;
}

void SplitwisePolicy::take_back_promise(const Request& request) {
  Load& at = loads_.at(request.decode_chain);
  --at.requests;
  --at.decodes;
  at.promised_tokens -= request.kv_tokens;
}

void SplitwisePolicy::begun(std::uint64_t id) {
  const auto found = requests_.find(id);
  if (found == requests_.end() || std::exchange(found->second.begun, true)) return;
  --loads_.at(found->second.prompt_chain).unbegun;
}

void SplitwisePolicy::first_token(std::uint64_t id, double /*now_s*/) {
  const auto found = requests_.find(id);
  if (found == requests_.end() || std::exchange(found->second.computed, true)) return;
  begun(id);
  const Request& of = found->second;
  Load& at = loads_.at(of.prompt_chain);
  --at.prompts;
  at.prompt_tokens -= of.input_tokens;
  if (!of.separate) return;
  --at.requests;
  at.promised_tokens -= of.input_tokens;
}

void SplitwisePolicy::ended(std::uint64_t id, int output_tokens) {
  first_token(id, 0);
  const auto found = requests_.find(id);
  if (found == requests_.end()) return;
  take_back_promise(found->second);
  if (output_tokens > 0) history_.observe(found->second.input_tokens, output_tokens);
  requests_.erase(found);
}

bool SplitwisePolicy::stays(std::uint64_t id) const {
  const auto found = requests_.find(id);
  return found != requests_.end() && !found->second.separate;
}

std::optional<std::size_t> SplitwisePolicy::second_step(const RequestLengths& request,
                                                        const std::function<bool(std::size_t)>& has_free_slot) {
  const auto found = requests_.find(request.id);
  const auto admits = [&](const Machine& machine) {
    return machine.takes_tokens() && has_free_slot(static_cast<std::size_t>(machine.load->index));
  };
  if (found != requests_.end()) {
    const int promised = loads_.at(found->second.decode_chain).index;
    if (promised >= 0 && admits(machines_[static_cast<std::size_t>(promised)])) return index_of(promised);
    take_back_promise(found->second);
  }
  const Pool tokens{machines_, only_tokens}, prompts{machines_, only_prompts};
  const std::int64_t kv_tokens = found == requests_.end() ? kv_of(request) : found->second.kv_tokens;
  const auto chain = index_of(machine_by_memory(tokens, prompts, kv_tokens, true, admits));
  if (found != requests_.end()) promise(found->second, chain ? keys_[*chain] : found->second.decode_chain);
  return chain;
}

void SplitwisePolicy::answers_at(std::size_t chain, std::uint64_t id) {
  const auto found = requests_.find(id);
  if (found == requests_.end()) return;
  take_back_promise(found->second);
  promise(found->second, keys_[chain]);
}

int SplitwisePolicy::mixed_chains() const {
  return static_cast<int>(std::count_if(machines_.begin(), machines_.end(), [](const auto& one) { return one.mixed(); }));
}

}  // namespace windlass::dispatch
