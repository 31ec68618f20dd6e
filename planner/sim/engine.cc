// See engine.h.
#include "planner/sim/engine.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace windlass::sim {
Engine::Engine(const EngineOptions& options)
    : options_(options), free_blocks_(options.kv_blocks), starting_page_(static_cast<std::size_t>(options.block_tokens), 0) {
  assert(options.max_sequences >= 1 && options.max_batch_tokens >= 1 && options.block_tokens >= 1);
}

bool Engine::can_hold(int prompt_tokens, int output_tokens) const {
  return blocks_of(std::int64_t{prompt_tokens} + output_tokens) <= options_.kv_blocks;
}

Engine::Sequence Engine::make(const SequenceSpec& spec) {
  Sequence sequence = static_cast<Sequence>(states_.size());
  if (unused_.empty()) {
    states_.emplace_back();
  } else {
    sequence = unused_.back();
    unused_.pop_back();
  }
  State& state = at(sequence);
  state = State{};
  state.request = spec.request;
  state.serial = next_serial_++;
  state.prompt = spec.prompt_tokens;
  state.output = spec.output_tokens;
  state.hand_over = spec.hand_over;
  ++held_;
  return sequence;
}

void Engine::forget(Sequence sequence) {
  at(sequence).serial = -1;
  at(sequence).decoding = false;
  unused_.push_back(sequence);
  --held_;
}

Engine::Sequence Engine::enqueue(const SequenceSpec& spec) {
  assert(spec.prompt_tokens >= 1 && spec.output_tokens >= (spec.hand_over ? 2 : 1));
  assert(can_hold(spec.prompt_tokens, spec.hand_over ? 0 : spec.output_tokens) && spec.prefix_tokens <= spec.prompt_tokens);
  const Sequence sequence = make(spec);
  waiting_.push_back(sequence);
  waiting_tokens_ += spec.prompt_tokens;
  return sequence;
}

bool Engine::has_room(const SequenceSpec& spec) const {
  // Paged: a page more than the prompt's, which the next token may need at once, unless it never needs one.
  const std::int64_t whole = blocks_of(std::int64_t{spec.prompt_tokens} + spec.output_tokens);
  const std::int64_t blocks = reserves() ? whole : std::min(whole, blocks_of(spec.prompt_tokens) + 1);
  return held_ < options_.max_sequences && blocks <= free_blocks_;
}

Engine::Sequence Engine::reserve(const SequenceSpec& spec) {
  assert(has_room(spec) && spec.output_tokens >= 2);
  const Sequence sequence = make(spec);
  State& state = at(sequence);
  state.hand_over = false;
  state.prefilled = spec.prompt_tokens;
  state.made = 1;
  state.blocks = reserves() ? blocks_of(std::int64_t{spec.prompt_tokens} + spec.output_tokens) : blocks_of(spec.prompt_tokens);
  free_blocks_ -= state.blocks;
  return sequence;
}

void Engine::join(Sequence sequence) { start_decoding(sequence); }

void Engine::release(Sequence sequence) {
  free_blocks_ += at(sequence).blocks;
  forget(sequence);
}

std::int64_t Engine::blocks_to_admit(const State& state) const {
  if (!reserves()) return blocks_of(state.prompt);
  return blocks_of(state.hand_over ? state.prompt : std::int64_t{state.prompt} + state.output - state.made);
}

int Engine::cached(const State& state) const { return state.prompt + static_cast<int>(tick_ - state.joined_tick); }

std::size_t Engine::page_phase(const State& state) const {
  const std::int64_t size = options_.block_tokens;
  return static_cast<std::size_t>((((state.prompt - state.joined_tick) % size) + size) % size);
}

bool Engine::admit(Sequence sequence) {
  State& state = at(sequence);
  const std::int64_t blocks = blocks_to_admit(state);
  // Alone it may take the last page: it fits, and nobody else needs one.
  const auto reserve =
      held_ > waiting() ? static_cast<std::int64_t>(options_.admission_reserve * static_cast<double>(options_.kv_blocks)) : 0;
  if (blocks + reserve > free_blocks_) return false;
  state.blocks = blocks;
  free_blocks_ -= blocks;
  return true;
}

void Engine::add_chunk(Sequence sequence, int tokens) {
  State& state = at(sequence);
  state.chunk = tokens;
  batch_.add_prefill(tokens, state.prefilled);
}

// Whole prompts up to the budget, or chunks that fill it.
void Engine::admit_prompts(int budget, bool chunked) {
  if (chunked) {
    for (const Sequence sequence : prefilling_) {
      if (budget <= 0) return;
      const int tokens = std::min(budget, at(sequence).prompt - at(sequence).prefilled);
      add_chunk(sequence, tokens);
      budget -= tokens;
    }
  }
  bool first = true;
  while (!waiting_.empty() && running() < options_.max_sequences) {
    const Sequence sequence = waiting_.front();
    const int prompt = at(sequence).prompt;
    if (chunked ? budget <= 0 : (prompt > budget && !first)) return;
    if (!admit(sequence)) return;
    waiting_.pop_front();
    prefilling_.push_back(sequence);
    if (at(sequence).made == 0) started_.push_back(at(sequence).request);
    const int tokens = chunked ? std::min(budget, prompt) : prompt;
    add_chunk(sequence, tokens);
    budget -= tokens;
    first = false;
  }
}

std::optional<planner::Batch> Engine::begin() {
  assert(!busy_);
  batch_ = planner::Batch{};
  started_.clear();
  outcome_.first_tokens.clear();
  outcome_.finished.clear();
  outcome_.prefilled.clear();
  outcome_.decoded = 0;
  swapped_tokens_ = 0;
  switch (options_.batching) {
    case Batching::kStatic:
      if (decoding_ == 0) admit_prompts(options_.max_batch_tokens, false);
      break;
    case Batching::kVllm:
    case Batching::kOrca:
    case Batching::kMixed: admit_prompts(options_.max_batch_tokens, false); break;
    case Batching::kSarathi:
    case Batching::kVllmV1: break;
  }
  const bool prompts_alone = options_.batching == Batching::kVllm || options_.batching == Batching::kStatic;
  if (decoding_ > 0 && !(prompts_alone && batch_.prefill_sequences > 0)) {
    if (!reserves()) take_pages_for_decodes();
    batch_.decode_sequences = decoding_;
    batch_.decode_context_tokens = static_cast<double>(cached_tokens_);
  }
  const bool chunked = options_.batching == Batching::kSarathi || options_.batching == Batching::kVllmV1;
  if (chunked) admit_prompts(options_.max_batch_tokens - batch_.decode_sequences, true);
  if (batch_.empty()) return std::nullopt;
  busy_ = true;
  return batch_;
}

const Engine::Outcome& Engine::end() {
  assert(busy_);
  busy_ = false;
  // Decodes first: a prompt that ends now makes its next token in the next iteration.
  if (batch_.decode_sequences > 0) end_decodes();
  if (batch_.prefill_sequences > 0) end_prefills();
  return outcome_;
}

void Engine::end_prefills() {
  std::size_t kept = 0;
  for (const Sequence sequence : prefilling_) {
    State& state = at(sequence);
    state.prefilled += std::exchange(state.chunk, 0);
    if (state.prefilled < state.prompt) {
      prefilling_[kept++] = sequence;
      continue;
    }
    waiting_tokens_ -= state.prompt;
    if (state.made == 0) outcome_.first_tokens.push_back(state.request);
    ++state.made;
    if (state.made >= state.output) {
      outcome_.finished.push_back(state.request);
      free_blocks_ += state.blocks;
      forget(sequence);
    } else if (state.hand_over) {
      outcome_.prefilled.push_back(sequence);
    } else {
      start_decoding(sequence);
    }
  }
  prefilling_.resize(kept);
}

void Engine::start_decoding(Sequence sequence) {
  State& state = at(sequence);
  state.decoding = true;
  state.hand_over = false;  // preempted, it comes back here
  state.joined_tick = tick_;
  cached_tokens_ += state.prompt;
  ++starting_page_[page_phase(state)];
  ends_.push(End{tick_ + state.output - state.made, state.serial, sequence});
  admitted_.emplace_back(sequence, state.serial);
  ++decoding_;
}

// Its pages go back.
void Engine::stop_decoding(Sequence sequence) {
  State& state = at(sequence);
  const int tokens = cached(state);
  cached_tokens_ -= tokens;
  --starting_page_[page_phase(state)];
  free_blocks_ += reserves() ? state.blocks : blocks_of(tokens);
  state.decoding = false;
  --decoding_;
}

void Engine::take_pages_for_decodes() {
  const auto size = static_cast<std::int64_t>(options_.block_tokens);
  const auto starting = [&] { return starting_page_[static_cast<std::size_t>((size - tick_ % size) % size)]; };
  while (starting() > free_blocks_) preempt_last();
  free_blocks_ -= starting();  // before chunks of prompts take them
}

// Who began to decode last is recomputed later, before all that wait.
void Engine::preempt_last() {
  for (;;) {
    assert(!admitted_.empty());
    const auto [sequence, serial] = admitted_.back();
    admitted_.pop_back();
    State& state = at(sequence);
    if (state.serial != serial || !state.decoding) continue;
    stop_decoding(sequence);
    const int made = static_cast<int>(tick_ - state.joined_tick);
    state.made += made;
    state.prompt = cached(state) + 1;  // the last token made is not in the cache yet
    state.prefilled = 0;
    state.serial = next_serial_++;  // what the heaps know of it is stale
    waiting_.push_front(sequence);
    waiting_tokens_ += state.prompt;
    ++preemptions_;
    return;
  }
}

void Engine::end_decodes() {
  outcome_.decoded = decoding_;
  ++tick_;
  cached_tokens_ += decoding_;
  while (!ends_.empty() && ends_.top().tick <= tick_) {
    const End end = ends_.top();
    ends_.pop();
    if (at(end.sequence).serial != end.serial || !at(end.sequence).decoding) continue;
    stop_decoding(end.sequence);
    outcome_.finished.push_back(at(end.sequence).request);
    forget(end.sequence);
  }
  // Stale entries must not pile up.
  while (!admitted_.empty() &&
         (at(admitted_.back().first).serial != admitted_.back().second || !at(admitted_.back().first).decoding)) {
    admitted_.pop_back();
  }
  if (admitted_.size() > 64 + 4 * static_cast<std::size_t>(decoding_)) {
    std::erase_if(admitted_,
                  [&](const auto& entry) { return at(entry.first).serial != entry.second || !at(entry.first).decoding; });
  }
}

std::vector<int> Engine::abandon() {
  std::vector<std::pair<int, int>> requests;  // by serial: the order of arrival
  for (const State& state : states_) {
    if (state.serial >= 0 && state.request >= 0) requests.emplace_back(state.serial, state.request);
  }
  std::sort(requests.begin(), requests.end());
  *this = Engine(options_);
  std::vector<int> result;
  for (const auto& [serial, request] : requests) result.push_back(request);
  return result;
}

}  // namespace windlass::sim
