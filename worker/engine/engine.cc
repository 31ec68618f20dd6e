// Engine::step(): plan the batch, run the forward pass, sample, remove finished sequences.
#include "worker/engine/engine.h"

#include <algorithm>
#include <cassert>
#include <unordered_map>

#include <fmt/core.h>

namespace windlass::worker {

const char* to_string(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop: return "stop";
    case FinishReason::kLength: return "length";
    case FinishReason::kCancelled: return "abort";
    case FinishReason::kError: return "error";
  }
  return "error";
}

struct Engine::Sequence {
  Sequence(RequestId request_id, std::uint64_t order, GenerationRequest from)
      : id(request_id),
        arrival(order),
        request(std::move(from)),
        tokens(request.prompt),
        sampler(request.sampling, request.prompt),
        text(request.stop) {}

  RequestId id;
  std::uint64_t arrival;  // order among all requests: lower is older
  GenerationRequest request;
  std::vector<std::int32_t> tokens;  // prompt, then output
  std::int64_t cached = 0;           // leading tokens whose keys and values are in the cache
  std::vector<std::int32_t> blocks;
  std::int64_t named = 0;  // leading blocks full at the end of this step, as registered with the allocator
  KvAllocator::Name prefix = KvAllocator::kBeginning;  // name of the last of these blocks
  KvAllocator::Prefix known;                           // while it waits: the last prefix lookup
  std::int64_t found = 0;                              // prompt tokens found in the cache at first admission
  std::int64_t told = 0;                               // leading tokens announced to the sender, in all layers
  Sampler sampler;
  TextStream text;
  RequestTimes times;
  bool planned = false;    // has work in this step
  bool finished = false;   // to be removed at the end of this step
  bool receiving = false;  // its prompt comes from another worker: no work until then
  bool sending = false;    // the transfer uses its blocks

  [[nodiscard]] std::int64_t pending() const { return static_cast<std::int64_t>(tokens.size()) - cached; }
  [[nodiscard]] const KvSession& kv() const { return request.kv; }
  [[nodiscard]] std::int64_t generated() const { return static_cast<std::int64_t>(tokens.size() - request.prompt.size()); }
};

Engine::Engine(EngineOptions options, Backend& backend, TokenBytes token_bytes, const Clock& clock, KvTransfer transfer)
    : options_(std::move(options)),
      backend_(backend),
      token_bytes_(std::move(token_bytes)),
      clock_(clock),
      transfer_(transfer),
      kv_(backend.kv_blocks()) {
  assert(options_.max_running >= 1 && options_.max_batch_tokens >= options_.max_running);
  assert(kv_.total() >= blocks_for(options_.max_context_tokens));
  plan_.reserve(static_cast<std::size_t>(options_.max_running));
  chunks_.reserve(static_cast<std::size_t>(options_.max_running));
}

Engine::~Engine() = default;

Result<void> Engine::check(const EngineOptions& options, std::int64_t vocab_size, const GenerationRequest& request) {
  const auto bad = [](std::string text) { return Error{ErrorCode::kInvalidArgument, std::move(text)}; };
  const auto length = static_cast<std::int64_t>(request.prompt.size());
  if (length == 0) return bad("prompt: must have at least 1 token (got none)");
  if (length >= options.max_context_tokens) {
    return bad(
        fmt::format("the prompt has {} tokens, but the context holds {} tokens and the answer needs at least one of them",
                    length, options.max_context_tokens));
  }
  if (request.max_tokens < 1) return bad(fmt::format("max_tokens: must be at least 1 (got {})", request.max_tokens));
  for (const std::int32_t token : request.prompt) {
    if (token < 0 || token >= vocab_size) {
      return bad(fmt::format("prompt: must have token ids from 0 to {} (got {})", vocab_size - 1, token));
    }
  }
  return {};
}

Result<void> Engine::submit(RequestId id, GenerationRequest request, double arrived_s) {
  WINDLASS_RETURN_IF_ERROR(check(options_, backend_.vocab_size(), request));
  assert(!request.kv.sends() || transfer_.sender != nullptr);
  assert(!request.kv.receives() || transfer_.receiver != nullptr);
  const auto waiting = static_cast<std::int64_t>(waiting_.size());
  const std::int64_t free_places = std::max<std::int64_t>(0, options_.max_running - static_cast<std::int64_t>(running_.size()));
  if (waiting >= options_.max_waiting + free_places) {
    return Error{ErrorCode::kResourceExhausted,
                 fmt::format("the engine is full: {} requests run and {} wait (at most {} and {})", running_.size(), waiting,
                             options_.max_running, options_.max_waiting)};
  }
  auto sequence = std::make_unique<Sequence>(id, arrivals_++, std::move(request));
  sequence->times.arrived_s = arrived_s;
  waiting_.push_back(std::move(sequence));
  stalled_ = false;
  return {};
}

void Engine::release(Sequence& sequence) {
  if (std::exchange(sequence.receiving, false)) transfer_.receiver->stop(sequence.id);
  if (std::exchange(sequence.sending, false)) transfer_.sender->stop(sequence.kv().id);
  kv_.give_back(sequence.blocks);
  sequence.blocks.clear();
  sequence.cached = sequence.named = 0;
  sequence.prefix = KvAllocator::kBeginning;
}

TokenEvent Engine::end_event(Sequence& sequence, FinishReason reason, const std::string& why) const {
  TokenEvent event = event_of(sequence);
  event.text = sequence.text.finish();
  event.finish = reason;
  event.error = why;
  return event;
}

// Removes the sequence and frees its place and blocks.
TokenEvent Engine::end(Sequences& list, Sequences::iterator at, FinishReason reason, const std::string& why) {
  TokenEvent event = end_event(**at, reason, why);
  release(**at);
  list.erase(at);
  stalled_ = false;
  return event;
}

std::optional<TokenEvent> Engine::cancel(RequestId id, const std::string& why) {
  for (Sequences* list : {&running_, &waiting_, &held_}) {
    const auto it = std::find_if(list->begin(), list->end(), [&](const auto& sequence) { return sequence->id == id; });
    if (it != list->end()) return end(*list, it, FinishReason::kCancelled, why);
  }
  return std::nullopt;
}

std::optional<TokenEvent> Engine::taken(const std::string& session) {
  const auto it = std::find_if(held_.begin(), held_.end(), [&](const auto& sequence) { return sequence->kv().id == session; });
  if (it == held_.end()) return std::nullopt;
  return end(held_, it, FinishReason::kStop, "");
}

std::optional<TokenEvent> Engine::abandoned(const std::string& session) {
  for (Sequences* list : {&running_, &held_}) {
    const auto it = std::find_if(list->begin(), list->end(),
                                 [&](const auto& sequence) { return sequence->kv().sends() && sequence->kv().id == session; });
    if (it != list->end()) return end(*list, it, FinishReason::kCancelled, "nobody fetches the keys and values any more");
  }
  return std::nullopt;
}

std::optional<TokenEvent> Engine::received(RequestId id, const Result<Sampled>& first) {
  const auto it = std::find_if(running_.begin(), running_.end(),
                               [&](const auto& sequence) { return sequence->receiving && sequence->id == id; });
  if (it == running_.end()) return std::nullopt;
  Sequence& sequence = **it;
  sequence.receiving = false;
  stalled_ = false;
  if (!first.ok()) {
    sequence.request.kv = {};
    return std::nullopt;
  }
  sequence.cached = static_cast<std::int64_t>(sequence.tokens.size());
  sequence.sampler.adopt(first->id);
  TokenEvent event = extend(sequence, *first, clock_.now_s());
  drop_finished();
  return event;
}

// Drops a prompt computed for another worker, which can compute it itself.
void Engine::give_up(Sequences& list, const Sequence& sequence) {
  ++preemptions_;
  const auto it = std::find_if(list.begin(), list.end(), [&](const auto& s) { return s.get() == &sequence; });
  given_up_.push_back(
      end(list, it, FinishReason::kCancelled, "the keys and values were dropped to make room for other requests"));
}

void Engine::preempt(Sequence& sequence) {
  if (sequence.planned) {
    const auto work = std::find_if(plan_.begin(), plan_.end(), [&](const Work& w) { return w.sequence == &sequence; });
    budget_ += work->tokens;
    plan_.erase(work);
    sequence.planned = false;
  }
  if (sequence.kv().sends()) return give_up(running_, sequence);  // the other worker recomputes it sooner than this one would
  ++preemptions_;
  release(sequence);
  sequence.request.kv = {};  // nothing more will arrive: compute it here
  const auto it = std::find_if(running_.begin(), running_.end(), [&](const auto& s) { return s.get() == &sequence; });
  const auto place =
      std::find_if(waiting_.begin(), waiting_.end(), [&](const auto& s) { return s->arrival > sequence.arrival; });
  waiting_.insert(place, std::move(*it));
  running_.erase(it);
}

// Gives the sequence blocks for this many positions. Takes them from younger sequences if needed, then from prompts held for
// other workers.
bool Engine::make_room(Sequence& sequence, std::int64_t positions) {
  const auto needed = blocks_for(positions);
  while (static_cast<std::int64_t>(sequence.blocks.size()) < needed) {
    if (kv_.available() > 0) {
      sequence.blocks.push_back(kv_.take());
      continue;
    }
    Sequence& youngest = *running_.back();
    if (youngest.arrival > sequence.arrival) {
      preempt(youngest);
    } else if (!held_.empty()) {
      give_up(held_, *held_.back());
    } else {
      return false;
    }
  }
  return true;
}

void Engine::schedule(Sequence& sequence, std::int64_t tokens) {
  if (!make_room(sequence, sequence.cached + tokens)) return;
  plan_.push_back({&sequence, tokens});
  sequence.planned = true;
  budget_ -= tokens;
}

// A prompt for another worker that finds no memory does not hold up requests answered here: prompts held for others give way to
// these only, and would otherwise wait behind it for workers that wait for this one. Other prompts for others do wait behind
// it.
void Engine::admit() {
  bool sender_waits = false;
  auto at = waiting_.begin();
  while (at != waiting_.end() && static_cast<std::int64_t>(running_.size()) < options_.max_running && budget_ > 0) {
    Sequence& next = **at;
    const bool sends = next.kv().sends();
    if ((sends && sender_waits) || !reserve(next)) {
      if (!sends) return;
      sender_waits = true;
      ++at;
      continue;
    }
    // Queue a preempted sequence before younger ones; running_ stays ordered by arrival.
    const auto place = std::find_if(running_.begin(), running_.end(), [&](const auto& s) { return s->arrival > next.arrival; });
    running_.insert(place, std::move(*at));
    at = waiting_.erase(at);
    if (next.kv().receives()) {
      receive(next);
    } else {
      schedule(next, std::min(next.pending(), budget_));
      name_blocks(plan_.back());  // reserve() has allocated the blocks
    }
  }
}

// Requires room for all known tokens plus one; with less, the sequence would take blocks only to lose them again. Cached prefix
// blocks are shared with it from here on.
bool Engine::reserve(Sequence& next) {
  const auto length = static_cast<std::int64_t>(next.tokens.size());
  const bool shares = shares_prefix(next);
  KvAllocator::Prefix& prefix = next.known;
  if (shares) prefix = kv_.find(std::span(next.tokens).first(static_cast<std::size_t>(length - 1)), std::move(prefix));
  kv_.share(prefix.blocks);
  const std::int64_t needed = blocks_for(length + 1) - static_cast<std::int64_t>(prefix.blocks.size());
  if (!next.kv().sends()) take_from_held(needed);
  if (kv_.available() < needed) {
    kv_.give_back(prefix.blocks);
    return false;
  }
  next.prefix = prefix.name();
  next.blocks = std::exchange(prefix, {}).blocks;
  next.named = static_cast<std::int64_t>(next.blocks.size());
  next.cached = next.named * kKvBlockTokens;
  if (next.times.started_s == 0 && shares) {
    next.found = next.cached;
    prefix_counts_.prompt_tokens += length;
    prefix_counts_.found += next.found;
  }
  return true;
}

// False for received prompts: their content is whatever another worker sent.
bool Engine::shares_prefix(const Sequence& sequence) const {
  return options_.prefix_caching && sequence.request.chain.empty() && !sequence.kv().receives();
}

// Names the blocks that this step fills, so that requests with the same prefix can share them.
void Engine::name_blocks(const Work& work) {
  Sequence& sequence = *work.sequence;
  if (!shares_prefix(sequence)) return;
  for (; (sequence.named + 1) * kKvBlockTokens <= sequence.cached + work.tokens; ++sequence.named) {
    const auto at = static_cast<std::size_t>(sequence.named);
    sequence.prefix =
        kv_.name(sequence.blocks[at], sequence.prefix, std::span(sequence.tokens).subspan(at * kKvBlockTokens, kKvBlockTokens));
  }
}

// After a failed step. Sequences that share these blocks have failed too.
void Engine::unname_uncomputed(Sequence& sequence) {
  const std::int64_t computed = sequence.cached / kKvBlockTokens;
  if (sequence.named <= computed) return;
  kv_.unname(std::span(sequence.blocks)
                 .subspan(static_cast<std::size_t>(computed), static_cast<std::size_t>(sequence.named - computed)));
}

// Drops held prompts until that many blocks are free; drops none if dropping all would not suffice.
void Engine::take_from_held(std::int64_t blocks) {
  std::int64_t free = kv_.available();
  std::unordered_map<std::int32_t, int> holders;
  for (const auto& sequence : held_) {
    for (const std::int32_t block : sequence->blocks) free += ++holders[block] == kv_.holders(block) ? 1 : 0;
  }
  if (free < blocks) return;
  while (kv_.available() < blocks) give_up(held_, *held_.back());
}

void Engine::receive(Sequence& sequence) {
  const auto needed = static_cast<std::size_t>(blocks_for(static_cast<std::int64_t>(sequence.tokens.size()) + 1));
  while (sequence.blocks.size() < needed) sequence.blocks.push_back(kv_.take());  // admit() has checked that enough are free
  sequence.receiving = true;
  sequence.times.started_s = clock_.now_s();
  transfer_.receiver->receive(sequence.id, sequence.kv(), sequence.tokens, sequence.blocks);
}

void Engine::plan_step() {
  plan_.clear();
  budget_ = options_.max_batch_tokens;
  // Loop by index: preempt() removes from the back of running_ during the loop.
  for (std::size_t i = 0; i < running_.size(); ++i) {
    if (running_[i]->pending() == 1 && !running_[i]->receiving) schedule(*running_[i], 1);
  }
  for (std::size_t i = 0; i < running_.size() && budget_ > 0; ++i) {
    Sequence& sequence = *running_[i];
    if (!sequence.planned && !sequence.receiving && sequence.pending() > 1)
      schedule(sequence, std::min(sequence.pending(), budget_));
  }
  // No sequence loses blocks from here on in this step, so newly admitted requests may share what it fills.
  for (const Work& work : plan_) name_blocks(work);
  admit();
}

// `logits` has shape (rows, vocabulary).
Result<Sampled> Engine::sample(Sequence& sequence, std::span<const float> logits, std::size_t row) {
  if (const LogitSummary* summary = backend_.summary(row))
    return sequence.sampler.sample(*summary, [&] { return backend_.row(row); });
  const auto vocab = static_cast<std::size_t>(backend_.vocab_size());
  return sequence.sampler.sample(logits.subspan(vocab * row, vocab));
}

TokenEvent Engine::advance(Sequence& sequence, const Result<Sampled>& sampled, double now_s) {
  if (!sampled.ok()) {
    sequence.finished = true;
    TokenEvent event = end_event(sequence, FinishReason::kError, sampled.error().message);
    event.chain_lost = sampled.error().code == ErrorCode::kUnavailable;  // the error came with fetching the row
    return event;
  }
  return sequence.kv().sends() ? hold(sequence, *sampled, now_s) : extend(sequence, *sampled, now_s);
}

TokenEvent Engine::event_of(const Sequence& sequence) {
  TokenEvent event;
  event.request = sequence.id;
  event.prompt_tokens = static_cast<std::int64_t>(sequence.request.prompt.size());
  event.cached_tokens = sequence.found;
  event.generated_tokens = sequence.generated();
  event.prompt_received = sequence.kv().receives() && !sequence.receiving;  // otherwise it lost its session
  event.for_another = sequence.kv().sends();
  event.times = sequence.times;
  return event;
}

// The prompt is computed. The first token goes to the other worker, which sends it to the client.
TokenEvent Engine::hold(Sequence& sequence, const Sampled& first, double now_s) {
  sequence.tokens.push_back(first.id);
  sequence.times.first_token_s = sequence.times.last_token_s = now_s;
  transfer_.sender->completed(sequence.kv().id, first);
  TokenEvent event = event_of(sequence);
  event.has_token = true;
  return event;
}

TokenEvent Engine::extend(Sequence& sequence, const Sampled& sampled, double now_s) {
  const std::int32_t token = sampled.id;
  sequence.tokens.push_back(token);
  if (sequence.generated() == 1) sequence.times.first_token_s = now_s;
  sequence.times.last_token_s = now_s;

  const auto holds = [&](const std::vector<std::int32_t>& ids) {
    return std::find(ids.begin(), ids.end(), token) != ids.end();
  };
  const bool ends_turn = !sequence.request.ignore_eos && (holds(options_.eos_token_ids) || holds(sequence.request.stop_tokens));
  TextStream::Piece piece;
  if (!ends_turn) piece = sequence.text.push(token_bytes_(token));
  const bool full = sequence.generated() >= sequence.request.max_tokens ||
                    static_cast<std::int64_t>(sequence.tokens.size()) >= options_.max_context_tokens;

  TokenEvent event = event_of(sequence);
  event.has_token = true;
  event.text = std::move(piece.text);
  if (sequence.request.sampling.logprobs) event.logprobs = logprobs_of(sampled);
  if (piece.stopped || ends_turn) {
    event.finish = FinishReason::kStop;
  } else if (full) {
    event.finish = FinishReason::kLength;
  }
  if (event.finish) {
    if (!piece.stopped) event.text += sequence.text.finish();
    sequence.finished = true;
  }
  return event;
}

TokenLogprobs Engine::logprobs_of(const Sampled& sampled) const {
  TokenLogprobs logprobs{{std::string(token_bytes_(sampled.id)), sampled.logprob, sampled.id}, {}};
  for (const TokenLogprob& likely : sampled.top) {
    logprobs.top.push_back({std::string(token_bytes_(likely.id)), likely.logprob, likely.id});
  }
  return logprobs;
}

// Removes finished sequences and moves those to be fetched by another worker to held_.
void Engine::drop_finished() {
  for (auto& sequence : running_) {
    if (sequence->finished) release(*sequence);
    if (sequence->kv().sends() && sequence->generated() > 0) held_.push_back(std::move(sequence));
  }
  std::erase_if(running_, [](const auto& sequence) { return sequence == nullptr || sequence->finished; });
}

// Announces layers of this step's chunks to other workers as they are computed. The first chunk also announces the shared
// prefix, which may come from this very step, in pieces of at most one chunk.
void Engine::tell_computed(std::int64_t layer) const {
  for (const Work& work : plan_) {
    const Sequence& sequence = *work.sequence;
    if (!sequence.sending) continue;
    const std::int64_t end = sequence.cached + work.tokens;
    for (std::int64_t at = sequence.told; at < end; at += options_.max_batch_tokens) {
      transfer_.sender->computed(sequence.kv().id, {layer, at, std::min(options_.max_batch_tokens, end - at)}, sequence.blocks);
    }
  }
}

std::vector<TokenEvent> Engine::step(const std::function<void()>& planned) {
  iteration_ = {};
  if (idle()) return {};
  const double began_s = clock_.now_s();
  plan_step();
  std::vector<TokenEvent> events = std::exchange(given_up_, {});
  stalled_ = plan_.empty();
  if (stalled_) {
    // The oldest sequence always has work and room, except for sequences that another worker is to fetch or to send.
    assert(!held_.empty() ||
           std::any_of(running_.begin(), running_.end(), [](const auto& sequence) { return sequence->receiving; }));
    return events;
  }
  std::sort(plan_.begin(), plan_.end(), [](const Work& a, const Work& b) { return a.sequence->arrival < b.sequence->arrival; });
  chunks_.clear();
  bool sends = false;
  for (const Work& work : plan_) {
    Sequence& sequence = *work.sequence;
    if (sequence.times.started_s == 0) sequence.times.started_s = began_s;
    if (sequence.kv().sends() && !std::exchange(sequence.sending, true)) transfer_.sender->begins(sequence.kv().id);
    sends = sends || sequence.sending;
    iteration_.tokens += work.tokens;
    chunks_.push_back(
        {std::span(sequence.tokens).subspan(static_cast<std::size_t>(sequence.cached), static_cast<std::size_t>(work.tokens)),
         sequence.cached,
         sequence.blocks,
         work.tokens == sequence.pending(),
         {},
         sequence.request.chain,
         sequence.sampler.need(),
         sequence.sampler.row_may_follow()});
  }
  if (planned) planned();
  const auto logits =
      backend_.forward(chunks_, sends ? LayerDone([this](std::int64_t layer) { tell_computed(layer); }) : nullptr);
  const double now_s = clock_.now_s();
  std::size_t row = 0;
  for (std::size_t i = 0; i < plan_.size(); ++i) {
    Sequence& sequence = *plan_[i].sequence;
    sequence.planned = false;
    const bool complete = plan_[i].tokens == sequence.pending();
    if (const Error* error = logits.ok() ? backend_.failure(i) : &logits.error()) {
      if (complete) ++row;
      unname_uncomputed(sequence);
      sequence.finished = true;
      events.push_back(end_event(sequence, FinishReason::kError, error->message));
      events.back().chain_lost = error->code == ErrorCode::kUnavailable;
      continue;
    }
    sequence.cached += plan_[i].tokens;
    if (sequence.sending) sequence.told = sequence.cached;
    if (complete) events.push_back(advance(sequence, sample(sequence, *logits, row++), now_s));
  }
  drop_finished();
  iteration_.seconds = clock_.now_s() - began_s;
  return events;
}

EngineLoad Engine::load() const {
  const auto size = [](const Sequences& list) { return static_cast<std::int64_t>(list.size()); };
  return {size(running_), size(waiting_), size(held_), kv_.used(), kv_.total()};
}

}  // namespace windlass::worker
