// See simulated_engine.h.
#include "planner/sim/simulated_engine.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace windlass::sim {
namespace {

int predicted_output(const SequenceSpec& spec) {
  return spec.predicted_output_tokens > 0 ? spec.predicted_output_tokens : spec.output_tokens;
}

}  // namespace

SimulatedEngine::SimulatedEngine(const planner::EngineSettings& options)
    : options_(options),
      chunks_(options.batching == planner::Batching::kSarathi || options.batching == planner::Batching::kVllmV1),
      reserves_(options.batching == planner::Batching::kStatic || options.batching == planner::Batching::kOrca),
      static_(options.batching == planner::Batching::kStatic),
      looks_ahead_(options.admission != planner::DecodeAdmission::kGreedy && !reserves_),
      watermark_(static_cast<std::int64_t>(options.admission_reserve * static_cast<double>(options.kv_blocks))),
      pages_(options.kv_blocks),
      starting_page_(static_cast<std::size_t>(options.block_tokens), 0),
      host_free_(options.host_blocks),
      working_set_(options.admission, options.block_tokens) {
  assert(options.max_sequences >= 1 && options.max_batch_tokens >= 1 && options.block_tokens >= 1);
  assert(options.prompt_order_window >= 1 && options.host_blocks >= 0);
}

bool SimulatedEngine::can_hold(int prompt_tokens, int output_tokens) const {
  return blocks_of(std::int64_t{prompt_tokens} + output_tokens) <= options_.kv_blocks;
}

SimulatedEngine::Sequence SimulatedEngine::make(const SequenceSpec& spec) {
  Sequence sequence = static_cast<Sequence>(states_.size());
  if (unused_.empty()) {
    states_.emplace_back();
  } else {
    sequence = unused_.back();
    unused_.pop_back();
  }
  const bool prefix = options_.prefix_caching && spec.prefix >= 0;
  at(sequence) = State{.request = spec.request,
                       .serial = next_serial_,
                       .arrival = next_serial_,
                       .prompt = spec.prompt_tokens,
                       .output = spec.output_tokens,
                       .predicted = predicted_output(spec),
                       .prefix = prefix ? spec.prefix : -1,
                       .prefix_tokens = prefix ? spec.prefix_tokens : 0};
  ++next_serial_;
  ++held_;
  return sequence;
}

void SimulatedEngine::forget(Sequence sequence) {
  at(sequence).serial = -1;
  at(sequence).decoding = false;
  unused_.push_back(sequence);
  --held_;
}

SimulatedEngine::Sequence SimulatedEngine::enqueue(const SequenceSpec& spec) {
  assert(spec.prompt_tokens >= 1 && spec.output_tokens >= (spec.hand_over ? 2 : 1));
  assert(can_hold(spec.prompt_tokens, spec.hand_over ? 0 : spec.output_tokens));
  assert(spec.prefix_tokens >= 0 && spec.prefix_tokens <= spec.prompt_tokens);
  const Sequence sequence = make(spec);
  at(sequence).hand_over = spec.hand_over;
  if (working_ && options_.schedules_ahead) {
    late_.push_back(sequence);
  } else {
    see(sequence);
  }
  waiting_tokens_ += spec.prompt_tokens;
  return sequence;
}

void SimulatedEngine::see(Sequence sequence) {
  (options_.prompt_order == planner::PromptOrder::kArrival ? waiting_ : arrived_).push_back(sequence);
}

void SimulatedEngine::see_late_prompts() {
  for (const Sequence sequence : late_) see(sequence);
  late_.clear();
}

// Paged: one more page, which the next token may need immediately, unless it never needs one.
std::int64_t SimulatedEngine::blocks_for_next(std::int64_t tokens, std::int64_t tokens_left) const {
  const std::int64_t whole = blocks_of(tokens + tokens_left);
  return reserves_ ? whole : std::min(whole, blocks_of(tokens) + 1);
}

// With nothing running there is nothing to wait for, however much is predicted.
std::int64_t SimulatedEngine::predicted_growth(std::int64_t tokens, std::int64_t tokens_left) const {
  return looks_ahead_ && !working_set_.empty() ? working_set_.growth(tokens, tokens_left) : 0;
}

bool SimulatedEngine::has_room(const SequenceSpec& spec) const {
  if (held_ >= options_.max_sequences || away_ > 0) return false;
  const std::int64_t ahead = blocks_at_first(spec.prompt_tokens, spec.output_tokens) +
                             predicted_growth(spec.prompt_tokens, predicted_output(spec) - 1);
  return std::max(blocks_for_next(spec.prompt_tokens, spec.output_tokens), ahead) <= pages_.free();
}

SimulatedEngine::Sequence SimulatedEngine::reserve(const SequenceSpec& spec) {
  assert(has_room(spec) && spec.output_tokens >= 2);
  const Sequence sequence = make(spec);
  State& state = at(sequence);
  state.prefilled = spec.prompt_tokens;
  state.made = 1;
  state.started = true;
  state.blocks = static_cast<int>(blocks_at_first(spec.prompt_tokens, spec.output_tokens));
  pages_.take(state.blocks);
  ++holding_;
  if (looks_ahead_) working_set_.add(sequence, state.prompt, state.predicted - state.made);
  return sequence;
}

void SimulatedEngine::join(Sequence sequence) {
  if (busy_) {
    joining_.push_back(sequence);
    return;
  }
  start_decoding(sequence);
}

void SimulatedEngine::release(Sequence sequence) {
  give_back(sequence, at(sequence).blocks);
  forget(sequence);
}

void SimulatedEngine::give_back(Sequence sequence, std::int64_t blocks) {
  State& state = at(sequence);
  pages_.give(blocks);
  --holding_;
  if (state.shared > 0) pages_.release(state.prefix, std::exchange(state.shared, 0));
  if (looks_ahead_) working_set_.remove(sequence);
}

int SimulatedEngine::cached_prefix(const State& state) const {
  const int most = std::min(state.prefix_tokens, state.prompt - 1) / options_.block_tokens;
  return static_cast<int>(std::min<std::int64_t>(most, pages_.cached(state.prefix)));
}

// Sorts the prompts of the next window.
void SimulatedEngine::sort_window() {
  std::size_t size = std::min(arrived_.size(), static_cast<std::size_t>(options_.prompt_order_window));
  if (static_) size = std::min(size, static_cast<std::size_t>(forming_));  // none that came later
  waiting_.insert(waiting_.end(), arrived_.begin(), arrived_.begin() + static_cast<std::ptrdiff_t>(size));
  arrived_.erase(arrived_.begin(), arrived_.begin() + static_cast<std::ptrdiff_t>(size));
  std::stable_sort(waiting_.begin(), waiting_.end(), [&](Sequence a, Sequence b) {
    return options_.prompt_order == planner::PromptOrder::kShortestFirst ? at(a).prompt < at(b).prompt
                                                                         : at(a).prompt > at(b).prompt;
  });
}

// Whether a prompt that takes `own` pages besides its prefix's leaves enough pages free.
bool SimulatedEngine::leaves_enough(const State& state, int shared, std::int64_t own) const {
  const std::int64_t growth = state.hand_over ? 0 : predicted_growth(state.prompt, state.predicted - state.made - 1);
  const std::int64_t revived = shared > 0 ? pages_.unreferenced(state.prefix, shared) : 0;
  return own + revived + std::max(growth, watermark()) <= pages_.free();
}

// Admits a sequence and takes its pages.
void SimulatedEngine::admit(Sequence sequence, int shared, std::int64_t own) {
  State& state = at(sequence);
  if (shared > 0) pages_.reference(state.prefix, shared);
  pages_.take(own);
  ++holding_;
  state.shared = shared;
  state.blocks = static_cast<int>(own);
  state.prefilled = shared * options_.block_tokens;
  waiting_tokens_ -= state.prefilled;
  prefix_hit_tokens_ += state.prefilled;
  if (looks_ahead_ && !state.hand_over) working_set_.add(sequence, state.prompt, state.predicted - state.made - 1);
}

void SimulatedEngine::add_chunk(Sequence sequence, int tokens) {
  State& state = at(sequence);
  state.chunk = tokens;
  batch_.add_prefill(tokens, state.prefilled);
}

// If there is no batch, the waiting requests form the next one. It is complete when something other than the budget ends an
// iteration's prompts.
void SimulatedEngine::form_static_batch() {
  if (decoding_ == 0 && forming_ == 0) forming_ = waiting() - static_cast<int>(late_.size());
  if (forming_ > 0 && !admit_prompts(options_.max_batch_tokens)) forming_ = 0;
}

// Admits whole prompts up to the budget, or chunks that fill it. Returns whether the budget kept the next one out.
bool SimulatedEngine::admit_prompts(int budget) {
  for (const Sequence sequence : prefilling_) {  // empty unless chunked
    if (budget <= 0) return true;
    const int tokens = std::min(budget, at(sequence).prompt - at(sequence).prefilled);
    add_chunk(sequence, tokens);
    budget -= tokens;
  }
  if (away_ > 0 || (preempted_ && options_.batching == planner::Batching::kVllmV1)) return false;
  bool first = true;
  while (running() < options_.max_sequences && !(static_ && forming_ == 0)) {
    if (chunks_ && budget <= 0) return true;
    if (waiting_.empty()) {
      if (arrived_.empty()) return false;
      sort_window();
    }
    const Sequence sequence = waiting_.front();
    State& state = at(sequence);
    const int shared = state.prefix < 0 ? 0 : cached_prefix(state);
    const std::int64_t own = blocks_at_first(state.prompt, state.hand_over ? 0 : state.output - state.made) - shared;
    // Alone it may take the last page: it fits, and no other sequence needs one.
    if (own + watermark() > pages_.free()) return false;
    if ((shared > 0 || looks_ahead_) && !leaves_enough(state, shared, own)) return false;
    if (!chunks_ && state.prompt - shared * options_.block_tokens > budget && !first) return true;
    waiting_.pop_front();
    if (static_) --forming_;
    admit(sequence, shared, own);
    prefilling_.push_back(sequence);
    if (!std::exchange(state.started, true)) started_.push_back(state.request);
    const int left = state.prompt - state.prefilled, tokens = chunks_ ? std::min(budget, left) : left;
    add_chunk(sequence, tokens);
    budget -= tokens;
    first = false;
  }
  return false;
}

std::optional<planner::Batch> SimulatedEngine::begin() {
  assert(!busy_);
  batch_ = planner::Batch{};
  preempted_ = false;
  swapped_tokens_ = 0;
  started_.clear();
  outcome_.first_tokens.clear();
  outcome_.finished.clear();
  outcome_.prefilled.clear();
  outcome_.decoded = 0;
  form_batch();
  if (!late_.empty()) {
    see_late_prompts();
    if (batch_.empty()) form_batch();
  }
  busy_ = working_ = !batch_.empty();
  return busy_ ? std::optional(batch_) : std::nullopt;
}

void SimulatedEngine::form_batch() {
  if (static_) {
    form_static_batch();
  } else if (!chunks_) {
    admit_prompts(options_.max_batch_tokens);
  }
  const bool prompts_alone = options_.batching == planner::Batching::kVllm || static_;
  if (!(prompts_alone && batch_.prefill_sequences > 0)) begin_decodes();
  if (chunks_) admit_prompts(options_.max_batch_tokens - batch_.decode_sequences);
}

void SimulatedEngine::begin_decodes() {
  if (decoding_ > 0 && !reserves_) take_pages_for_decodes();
  if (away_ > 0 && !preempted_) swap_in();
  if (decoding_ == 0) return;
  if (looks_ahead_) working_set_.begin_iteration();
  batch_.decode_sequences = decoding_;
  batch_.decode_context_tokens = static_cast<double>(cached_tokens_);
}

const SimulatedEngine::Outcome& SimulatedEngine::end() {
  assert(busy_);
  busy_ = false;
  // Decodes first: a prompt that ends now makes its next token in the next iteration.
  if (batch_.decode_sequences > 0) end_decodes();
  if (!joining_.empty()) {
    for (const Sequence sequence : joining_) start_decoding(sequence);
    joining_.clear();
  }
  if (batch_.prefill_sequences > 0) end_prefills();
  if (static_ && decoding_ > 0 && done_ == decoding_ && forming_ == 0) end_static_batch();
  return outcome_;
}

// Publishes the full pages of its prefix that it has computed, unless another sequence was faster.
void SimulatedEngine::publish_prefix(State& state) {
  const int full = std::min(state.prefilled, state.prefix_tokens) / options_.block_tokens;
  if (full <= state.shared || pages_.cached(state.prefix) != state.shared) return;
  pages_.publish(state.prefix, state.shared, full);
  state.blocks -= full - state.shared;
  state.shared = full;
}

void SimulatedEngine::end_prefills() {
  std::size_t kept = 0;
  for (const Sequence sequence : prefilling_) {
    State& state = at(sequence);
    waiting_tokens_ -= state.chunk;
    state.prefilled += std::exchange(state.chunk, 0);
    if (state.prefix >= 0) publish_prefix(state);
    if (state.prefilled < state.prompt) {
      prefilling_[kept++] = sequence;
      continue;
    }
    if (state.made == 0) outcome_.first_tokens.push_back(state.request);
    ++state.made;
    if (state.made >= state.output && !static_) {
      outcome_.finished.push_back(state.request);
      give_back(sequence, state.blocks);
      forget(sequence);
    } else if (state.hand_over) {
      outcome_.prefilled.push_back(sequence);
    } else {
      start_decoding(sequence);
    }
  }
  prefilling_.resize(kept);
}

void SimulatedEngine::start_decoding(Sequence sequence) {
  State& state = at(sequence);
  if (looks_ahead_) {
    if (std::exchange(state.hand_over, false)) working_set_.add(sequence, state.prompt, state.predicted - state.made);
    working_set_.start(sequence);
  }
  state.decoding = true;
  state.hand_over = false;  // if preempted, it returns here
  state.joined_tick = static_cast<std::uint32_t>(tick_);
  cached_tokens_ += state.prompt;
  state.page_phase = (state.prompt + static_cast<int>(page_now_)) % options_.block_tokens;
  ++starting_page_[static_cast<std::size_t>(state.page_phase)];
  if (state.made < state.output) {
    ends_.push(End{tick_ + state.output - state.made, state.serial, sequence});
  } else {
    ++done_;  // it stays until its static batch ends
  }
  admitted_.emplace_back(sequence, state.serial);
  ++decoding_;
}

// Returns its pages.
void SimulatedEngine::stop_decoding(Sequence sequence) {
  State& state = at(sequence);
  const int tokens = cached(state);
  cached_tokens_ -= tokens;
  --starting_page_[static_cast<std::size_t>(state.page_phase)];
  give_back(sequence, reserves_ ? state.blocks : blocks_of(tokens) - state.shared);
  state.decoding = false;
  --decoding_;
}

void SimulatedEngine::take_pages_for_decodes() {
  const int& starting = starting_page_[page_now_];
  while (starting > pages_.free()) {
    if (options_.batching != planner::Batching::kVllmV1 || !preempt_prompt()) preempt_last();
  }
  pages_.take(starting);  // before chunks of prompts take them
}

// Preempts the running prompt that was admitted last; it is recomputed before all waiting ones.
bool SimulatedEngine::preempt_prompt() {
  if (prefilling_.empty()) return false;
  const Sequence sequence = prefilling_.back();
  State& state = at(sequence);
  prefilling_.pop_back();
  give_back(sequence, state.blocks);
  waiting_tokens_ += std::exchange(state.prefilled, 0);
  waiting_.push_front(sequence);
  ++preemptions_;
  preempted_ = true;
  return true;
}

// Preempts the sequence that began to decode last.
void SimulatedEngine::preempt_last() {
  for (;;) {
    assert(!admitted_.empty());
    const auto [sequence, serial] = admitted_.back();
    admitted_.pop_back();
    if (stale(sequence, serial)) continue;
    State& state = at(sequence);
    stop_decoding(sequence);
    state.made += decoded(state);
    state.prompt = cached(state);
    state.serial = next_serial_++;  // makes its heap entries stale
    const std::int64_t blocks = blocks_of(state.prompt);
    if (options_.preemption == planner::Preemption::kSwap && blocks <= host_free_) {
      host_free_ -= blocks;
      swapped_tokens_ += state.prompt;
      swapped_.push_back(sequence);
      ++away_;
    } else {
      ++state.prompt;  // the last token is not in the cache yet
      state.prefilled = 0;
      waiting_.push_front(sequence);
      waiting_tokens_ += state.prompt;
    }
    ++preemptions_;
    preempted_ = true;
    return;
  }
}

// They decode in this iteration.
void SimulatedEngine::swap_in() {
  while (away_ > 0 && running() < options_.max_sequences) {
    const Sequence sequence = swapped_.front();
    State& state = at(sequence);
    const int tokens_left = state.output - state.made;
    if (blocks_for_next(state.prompt, tokens_left) + watermark() > pages_.free()) return;
    swapped_.pop_front();
    --away_;
    host_free_ += blocks_of(state.prompt);
    pages_.take(blocks_of(state.prompt + 1));
    ++holding_;
    swapped_tokens_ += state.prompt;
    if (looks_ahead_) working_set_.add(sequence, state.prompt, state.predicted - state.made);
    start_decoding(sequence);
  }
}

void SimulatedEngine::end_decodes() {
  outcome_.decoded = decoding_ - done_;
  ++tick_;
  page_now_ = (page_now_ == 0 ? starting_page_.size() : page_now_) - 1;
  cached_tokens_ += decoding_;
  while (!ends_.empty() && ends_.top().tick <= tick_) {
    const End end = ends_.top();
    ends_.pop();
    if (stale(end.sequence, end.serial)) continue;
    if (static_) {
      ++done_;
      continue;
    }
    stop_decoding(end.sequence);
    outcome_.finished.push_back(at(end.sequence).request);
    forget(end.sequence);
  }
  if (looks_ahead_) working_set_.end_iteration();
  // Stale entries must not accumulate.
  while (!admitted_.empty() && stale(admitted_.back().first, admitted_.back().second)) admitted_.pop_back();
  if (admitted_.size() > 64 + 4 * static_cast<std::size_t>(decoding_)) {
    std::erase_if(admitted_, [&](const auto& entry) { return stale(entry.first, entry.second); });
  }
}

// All decoding sequences leave, in order of arrival.
void SimulatedEngine::end_static_batch() {
  std::sort(admitted_.begin(), admitted_.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  for (const auto& [sequence, serial] : admitted_) {
    stop_decoding(sequence);
    outcome_.finished.push_back(at(sequence).request);
    forget(sequence);
  }
  admitted_.clear();
  done_ = 0;
}

std::vector<int> SimulatedEngine::abandon() {
  std::vector<std::pair<int, int>> requests;
  for (const State& state : states_) {
    if (state.serial >= 0) requests.emplace_back(state.arrival, state.request);
  }
  std::sort(requests.begin(), requests.end());
  const std::int64_t preemptions = preemptions_, prefix_hit_tokens = prefix_hit_tokens_;
  *this = SimulatedEngine(options_);
  preemptions_ = preemptions;
  prefix_hit_tokens_ = prefix_hit_tokens;
  std::vector<int> result;
  for (const auto& [arrival, request] : requests) result.push_back(request);
  return result;
}

}  // namespace windlass::sim
