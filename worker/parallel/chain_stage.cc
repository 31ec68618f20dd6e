// One lock protects sessions and queue; computing, copying and calls to other workers happen outside of it.
#include "worker/parallel/chain_stage.h"

#include <algorithm>
#include <atomic>
#include <cassert>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <utility>

#include <fmt/core.h>

#include "worker/engine/kv_allocator.h"
#include "worker/engine/row_summariser.h"
#include "worker/parallel/kv_wire.h"

namespace windlass::worker {
namespace {

constexpr int kMaxSessionSteps = 2;  // per session at a time: the first worker sends one, and a connection may send it again

ChainAnswer refusal(int status, std::string text, std::string rejected = "") {
  return {status, std::move(rejected), std::move(text)};
}

// A later worker's answer, or its absence, as reported to the previous worker.
ChainAnswer from_further(const std::string& address, ChainAnswer answer, int status_without) {
  if (answer.ok() || !sessions_over(answer).empty()) return answer;
  if (answer.status == 0) {
    answer.status = status_without;
    answer.rejected = status_without == 503 ? "unreachable" : "";
  }
  answer.body = fmt::format("worker {}: {}", address, answer.body);
  return answer;
}

}  // namespace

struct ChainStage::Impl : std::enable_shared_from_this<ChainStage::Impl> {
  struct Session {
    std::string name;
    std::vector<std::string> next_hops;
    std::int64_t skip = 0;      // blocks of this worker that the chain has already passed
    std::int64_t tokens = 0;    // reserved positions
    std::int64_t accepted = 0;  // positions received in steps
    std::vector<std::int32_t> blocks;
    std::shared_ptr<const std::string> row;  // of the last step, as bytes; null: none kept
    double heard_s = 0;
    int steps = 0;       // queued and not yet computed
    bool ended = false;  // its blocks are freed once its steps are done
  };
  using SessionPtr = std::shared_ptr<Session>;

  struct Job {
    std::string head;                 // of the step, as passed on
    std::vector<float> hidden;        // (tokens, hidden size)
    std::string out;                  // the next step, or logits
    std::size_t max_logit_bytes = 0;  // limit of the answer
    std::size_t unfinished = 0;
    std::optional<Error> error;
    SessionPtr any;  // all chunks of a step take the same route
    ChainAnswered answered;
  };
  // Consecutive tokens of a step's chunk.
  struct Entry {
    std::shared_ptr<Job> job;
    SessionPtr session;
    std::int64_t start = 0;
    std::int64_t tokens = 0;
    std::int64_t first = 0;     // the first of them, in the job's hidden states
    bool wants_logits = false;  // of its last token
    RowNeed need = {};          // of the logits
    bool keeps_row = false;
    std::size_t at = 0;  // offset of its logits in the answer
    bool last = true;    // of its chunk
  };

  Impl(const ChainStageOptions& o, std::unique_ptr<Backend> b, ChainPost p, const Clock& c, const metrics::WorkerMetrics& m)
      : options(o), backend(std::move(b)), post(std::move(p)), clock(c), metrics(m), kv(backend->kv_blocks()) {
    publish();
  }

  const ChainStageOptions options;
  std::unique_ptr<Backend> backend;  // destroyed with the stage, although later workers may still answer
  const ChainPost post;
  const Clock& clock;
  const metrics::WorkerMetrics& metrics;

  mutable std::mutex mutex;
  std::condition_variable changed;
  std::map<std::string, SessionPtr> sessions;
  KvAllocator kv;
  std::deque<Entry> queue;
  RowSummariser summariser;  // used only by the stage's thread
  bool draining = false;
  bool stopping = false;  // clock and metrics may be destroyed

  [[nodiscard]] bool ends() const { return options.blocks.end == options.model.layers; }

  void publish() const;
  void end(const SessionPtr& session);
  void remove(const std::vector<std::string>& names);
  [[nodiscard]] ChainAnswer admit(const ChainReservation& reservation);
  [[nodiscard]] ChainAnswer fits(const ChainReservation& reservation) const;
  void reserve(const std::string& body, ChainAnswered answered);
  void reserved_further(const ChainReservation& reservation, ChainAnswer answer, const ChainAnswered& answered);
  void keep(const std::string& body, const ChainAnswered& answered);
  void release(const std::string& body, const ChainAnswered& answered);
  void step(std::string_view body, const ChainAnswered& answered);
  void row(const std::string& session, ChainAnswered answered);
  [[nodiscard]] ChainAnswer enqueue(const ChainStep& step, const std::shared_ptr<Job>& job);
  [[nodiscard]] std::vector<Entry> take_batch();
  void compute(const std::vector<Entry>& batch);
  [[nodiscard]] Result<void> answer_logits(const std::vector<Entry>& batch, std::span<const float> rows);
  void answer_hidden(const std::vector<Entry>& batch, std::span<const float> hidden) const;
  void keep_row(Session& session, std::span<const float> row);
  void finish(const std::vector<Entry>& batch, const std::optional<Error>& error);
  void pass_on(const std::shared_ptr<Job>& job);
  void run();
};

// REQUIRES: mutex held, as for all functions that change sessions.
void ChainStage::Impl::publish() const {
  metrics.chain_sessions.set(static_cast<double>(sessions.size()));
  metrics.kv_blocks.set(static_cast<double>(kv.total()));
  metrics.kv_blocks_used.set(static_cast<double>(kv.used()));
  metrics.kv_cache_usage_ratio.set(static_cast<double>(kv.used()) / static_cast<double>(kv.total()));
}

void ChainStage::Impl::end(const SessionPtr& session) {
  session->ended = true;
  if (session->steps == 0) kv.give_back(std::exchange(session->blocks, {}));
}

void ChainStage::Impl::remove(const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    const auto it = sessions.find(name);
    if (it == sessions.end()) continue;
    end(it->second);
    sessions.erase(it);
  }
  publish();
}

// Whether this worker can be this part of this chain at all.
ChainAnswer ChainStage::Impl::fits(const ChainReservation& reservation) const {
  const BlockRange& mine = options.blocks;
  const std::int64_t layers = options.model.layers;
  if (reservation.model != options.model) {
    return refusal(409,
                   fmt::format("model: must have fingerprint {:016x} and {} blocks, as on this worker (got {:016x} and {})",
                               options.model.fingerprint, layers, reservation.model.fingerprint, reservation.model.layers));
  }
  if (reservation.block < mine.first || reservation.block >= mine.end) {
    return refusal(409, fmt::format("blocks: must be {}:{} or the first of them (got {}:{} here)", reservation.block, layers,
                                    mine.first, mine.end));
  }
  if (!ends() && reservation.next_hops.empty()) {
    return refusal(409, fmt::format("blocks: must also have {}:{} (got a chain that ends here with {}:{})", mine.end, layers,
                                    mine.first, mine.end));
  }
  if (ends() && !reservation.next_hops.empty()) {
    return refusal(409, fmt::format("blocks: the chain must end here, at the last block (got another worker, {})",
                                    reservation.next_hops.front()));
  }
  if (reservation.tokens > options.max_tokens) {
    return refusal(409, fmt::format("tokens: must be at most this worker's --max-context-tokens, which is {} (got {})",
                                    options.max_tokens, reservation.tokens));
  }
  return {};
}

// Admits all sessions or none.
ChainAnswer ChainStage::Impl::admit(const ChainReservation& reservation) {
  if (ChainAnswer unfit = fits(reservation); !unfit.ok()) return unfit;
  if (draining) return refusal(503, "this worker is draining and accepts no new sessions", "draining");
  for (const std::string& name : reservation.sessions) {
    if (sessions.count(name) > 0) return refusal(409, "sessions: must be new to this worker");
  }
  const std::int64_t each = blocks_for(reservation.tokens);
  const std::int64_t needed = each * static_cast<std::int64_t>(reservation.sessions.size());
  if (needed > kv.available()) {
    return refusal(
        503, fmt::format("this worker is full: {} blocks of the KV cache are free and {} are needed", kv.available(), needed),
        "full");
  }
  for (const std::string& name : reservation.sessions) {
    auto session = std::make_shared<Session>();
    session->name = name;
    session->next_hops = reservation.next_hops;
    session->skip = reservation.block - options.blocks.first;
    session->tokens = reservation.tokens;
    session->heard_s = clock.now_s();
    while (static_cast<std::int64_t>(session->blocks.size()) < each) session->blocks.push_back(kv.take());
    sessions.emplace(name, std::move(session));
  }
  publish();
  return {};
}

void ChainStage::Impl::reserve(const std::string& body, ChainAnswered answered) {
  auto reservation = reservation_from_json(body);
  if (!reservation.ok()) return answered(refusal(400, reservation.error().message));
  ChainAnswer here;
  {
    const std::scoped_lock lock(mutex);
    here = stopping ? refusal(503, "this worker is stopping", "draining") : admit(*reservation);
    if (!here.ok() && !stopping) metrics.chain_refusals(here.rejected.empty() ? "mismatch" : here.rejected).add(1);
  }
  if (!here.ok() || reservation->next_hops.empty()) return answered(std::move(here));
  ChainReservation further = *reservation;
  further.block = options.blocks.end;
  further.next_hops.erase(further.next_hops.begin());
  const std::string next = reservation->next_hops.front();
  const double timeout_s = patience_s(ChainVerb::kReserve, further.next_hops.size());
  post({next, ChainVerb::kReserve, to_json(further), timeout_s, kChainMaxErrorBytes},
       [self = shared_from_this(), reservation = std::move(*reservation), answered = std::move(answered)](ChainAnswer answer) {
         self->reserved_further(reservation, std::move(answer), answered);
       });
}

void ChainStage::Impl::reserved_further(const ChainReservation& reservation, ChainAnswer answer,
                                        const ChainAnswered& answered) {
  answer.step_port = 0;  // of the later worker, not this one
  const std::string& next = reservation.next_hops.front();
  const bool unknown = answer.status == 0;
  bool gone = false;  // released while the call was in progress
  {
    const std::scoped_lock lock(mutex);
    for (const std::string& name : reservation.sessions) gone = gone || stopping || sessions.count(name) == 0;
    if (unknown && !stopping) metrics.chain_refusals("unreachable").add(1);
    if (!stopping && (gone || !answer.ok())) remove(reservation.sessions);
  }
  if (unknown || (gone && answer.ok())) {
    post({next, ChainVerb::kRelease, sessions_text(reservation.sessions), kChainKeepAnswerS, kChainMaxErrorBytes},
         [](const ChainAnswer&) {});
  }
  if (gone && answer.ok()) return answered(refusal(409, "sessions: released before they were reserved"));
  answered(from_further(next, std::move(answer), 503));
}

void ChainStage::Impl::keep(const std::string& body, const ChainAnswered& answered) {
  const auto names = sessions_from(body);
  if (!names.ok()) return answered(refusal(400, names.error().message));
  struct Round {
    std::mutex mutex;
    std::size_t open = 0;
    std::vector<std::string> over;  // sessions
    ChainAnswer failure;            // of a later worker

    [[nodiscard]] ChainAnswer answer() const {
      return !failure.ok() ? failure : over.empty() ? ChainAnswer{} : sessions_over(over);
    }
  };
  auto round = std::make_shared<Round>();
  std::map<std::vector<std::string>, std::vector<std::string>> further;  // by route
  {
    const std::scoped_lock lock(mutex);
    const double now_s = stopping ? 0 : clock.now_s();
    for (const std::string& name : *names) {
      const auto it = sessions.find(name);
      if (stopping || it == sessions.end()) {
        round->over.push_back(name);
        continue;
      }
      it->second->heard_s = now_s;
      if (!it->second->next_hops.empty()) further[it->second->next_hops].push_back(name);
    }
  }
  if (further.empty()) return answered(round->answer());
  round->open = further.size();
  for (const auto& [hops, theirs] : further) {
    const double timeout_s = patience_s(ChainVerb::kKeep, hops.size() - 1);
    post({hops.front(), ChainVerb::kKeep, sessions_text(theirs), timeout_s, max_refusal_bytes(theirs.size())},
         [round, address = hops.front(), answered](ChainAnswer answer) {
           {
             const std::scoped_lock lock(round->mutex);
             const auto over = sessions_over(answer);
             round->over.insert(round->over.end(), over.begin(), over.end());
             if (!answer.ok() && over.empty()) round->failure = from_further(address, std::move(answer), 502);
             if (--round->open > 0) return;
           }
           answered(round->answer());
         });
  }
}

void ChainStage::Impl::release(const std::string& body, const ChainAnswered& answered) {
  const auto names = sessions_from(body);
  if (!names.ok()) return answered(refusal(400, names.error().message));
  std::map<std::string, std::vector<std::string>> further;
  {
    const std::scoped_lock lock(mutex);
    for (const std::string& name : *names) {
      const auto it = sessions.find(name);
      if (it != sessions.end() && !it->second->next_hops.empty()) further[it->second->next_hops.front()].push_back(name);
    }
    if (!stopping) remove(*names);
  }
  // If this call gets lost, the lease ends the sessions.
  for (const auto& [address, theirs] : further) {
    post({address, ChainVerb::kRelease, sessions_text(theirs), kChainKeepAnswerS, kChainMaxErrorBytes},
         [](const ChainAnswer&) {});
  }
  answered({});
}

void ChainStage::Impl::step(std::string_view body, const ChainAnswered& answered) {
  const auto parsed = step_from(body, options.model.hidden_size);
  if (!parsed.ok()) return answered(refusal(400, parsed.error().message));
  auto job = std::make_shared<Job>();
  job->answered = answered;
  job->head = body.substr(0, parsed->head_bytes);
  job->hidden.resize(static_cast<std::size_t>(parsed->tokens * options.model.hidden_size));
  std::memcpy(job->hidden.data(), body.data() + parsed->head_bytes, body.size() - parsed->head_bytes);
  ChainAnswer taken;
  {
    const std::scoped_lock lock(mutex);
    taken = stopping ? refusal(503, "this worker is stopping") : enqueue(*parsed, job);
    if (taken.ok()) metrics.chain_bytes("received").add(static_cast<double>(body.size()));
  }
  if (!taken.ok()) return answered(std::move(taken));
  changed.notify_all();
}

// Returns the row kept from the session's last step.
void ChainStage::Impl::row(const std::string& session, ChainAnswered answered) {
  if (!is_session_id(session)) return answered(refusal(400, "row: must name a session"));
  std::shared_ptr<const std::string> kept;
  std::vector<std::string> hops;
  bool over = false;
  {
    const std::scoped_lock lock(mutex);
    const auto it = sessions.find(session);
    over = stopping || it == sessions.end();
    if (!over) {
      it->second->heard_s = clock.now_s();
      kept = it->second->row;
      hops = it->second->next_hops;
    }
  }
  if (over) return answered(sessions_over(std::span(&session, 1)));
  if (!hops.empty()) {
    const std::size_t most = static_cast<std::size_t>(options.model.vocab_size) * sizeof(float) + max_refusal_bytes(1);
    post({hops.front(), ChainVerb::kRow, session, patience_s(ChainVerb::kRow, hops.size() - 1), most},
         [answered = std::move(answered), next = hops.front()](ChainAnswer answer) {
           answered(from_further(next, std::move(answer), 502));
         });
    return;
  }
  if (kept == nullptr) return answered(refusal(409, "row: the session's last step kept none"));
  answered({200, "", *kept});
}

// Queues all chunks or none.
ChainAnswer ChainStage::Impl::enqueue(const ChainStep& step, const std::shared_ptr<Job>& job) {
  std::vector<std::string> over;
  for (const ChainChunk& chunk : step.chunks) {
    if (sessions.count(chunk.session) == 0) over.push_back(chunk.session);
  }
  if (!over.empty()) return sessions_over(over);
  std::vector<Entry> entries;
  std::int64_t first = 0;
  std::size_t at = 0;
  for (const ChainChunk& chunk : step.chunks) {
    const SessionPtr& session = sessions.find(chunk.session)->second;
    if (job->any == nullptr) job->any = session;
    if (session->next_hops != job->any->next_hops || session->skip != job->any->skip)
      return refusal(400, "step: must have sessions of one chain");
    if (session->steps >= kMaxSessionSteps)
      return refusal(400, fmt::format("step: must be one of at most {} of its session at a time (got {})", kMaxSessionSteps,
                                      session->steps + 1));
    if (chunk.start > session->accepted || chunk.start + chunk.tokens > session->tokens) {
      return refusal(400, fmt::format("step: must end by position {} and start by {} (got {} tokens from {})", session->tokens,
                                      session->accepted, chunk.tokens, chunk.start));
    }
    entries.push_back({job, session, chunk.start, chunk.tokens, first, chunk.wants_logits, chunk.need, chunk.keeps_row, at});
    first += chunk.tokens;
    at += logit_bytes(chunk, options.model.vocab_size);
  }
  const double now_s = clock.now_s();
  for (Entry& entry : entries) {
    entry.session->accepted = std::max(entry.session->accepted, entry.start + entry.tokens);
    entry.session->heard_s = now_s;
    ++entry.session->steps;
    queue.push_back(std::move(entry));
  }
  // Only after checking the sessions, because logits are much larger than the request for them.
  if (ends()) {
    job->out.resize(at);
  } else {
    job->out = job->head;
    job->out.resize(job->head.size() + static_cast<std::size_t>(step.tokens * options.model.hidden_size) * sizeof(float));
  }
  job->max_logit_bytes = at;
  job->unfinished = entries.size();
  return {};
}

// Takes the oldest chunks that go through the same blocks, as many as fit; the last one may be split.
std::vector<ChainStage::Impl::Entry> ChainStage::Impl::take_batch() {
  std::vector<Entry> batch;
  std::int64_t tokens = 0;
  std::int64_t rows = 0;
  while (!queue.empty() && tokens < options.max_batch_tokens) {
    Entry& next = queue.front();
    if (!batch.empty() && next.session->skip != batch.front().session->skip) break;
    // A session's steps run one after the other.
    if (std::any_of(batch.begin(), batch.end(), [&](const Entry& entry) { return entry.session == next.session; })) break;
    const std::int64_t fits = std::min(next.tokens, options.max_batch_tokens - tokens);
    if (fits == next.tokens && next.wants_logits && ends() && ++rows > options.max_logit_rows) break;
    tokens += fits;
    batch.push_back(next);
    if (fits == next.tokens) {
      queue.pop_front();
      continue;
    }
    Entry& cut = batch.back();
    cut.tokens = fits;
    cut.wants_logits = false;
    cut.last = false;
    next.start += fits;
    next.tokens -= fits;
    next.first += fits;
  }
  return batch;
}

void ChainStage::Impl::compute(const std::vector<Entry>& batch) {
  const double began_s = clock.now_s();
  const std::int64_t hidden = options.model.hidden_size;
  std::vector<SequenceChunk> chunks;
  std::int64_t tokens = 0;
  for (const Entry& entry : batch) {
    SequenceChunk chunk;
    chunk.start = entry.start;
    chunk.blocks = entry.session->blocks;
    chunk.wants_logits = entry.wants_logits;
    chunk.need = entry.need;
    chunk.row_may_follow = entry.keeps_row;
    chunk.hidden =
        std::span(entry.job->hidden)
            .subspan(static_cast<std::size_t>(entry.first * hidden), static_cast<std::size_t>(entry.tokens * hidden));
    chunks.push_back(chunk);
    tokens += entry.tokens;
  }
  const auto rows = backend->forward(chunks, nullptr, batch.front().session->skip);
  if (!rows.ok()) return finish(batch, rows.error());
  if (ends()) {
    if (const auto answered = answer_logits(batch, *rows); !answered.ok()) return finish(batch, answered.error());
  } else {
    answer_hidden(batch, *rows);
  }
  metrics.iteration.observe(clock.now_s() - began_s);
  metrics.iteration_tokens.observe(static_cast<double>(tokens));
  finish(batch, std::nullopt);
}

// `hidden` has shape (tokens of the batch, hidden size).
void ChainStage::Impl::answer_hidden(const std::vector<Entry>& batch, std::span<const float> hidden) const {
  const auto width = static_cast<std::size_t>(options.model.hidden_size);
  for (const Entry& entry : batch) {
    const auto rows = hidden.first(static_cast<std::size_t>(entry.tokens) * width);
    const std::size_t at = entry.job->head.size() + static_cast<std::size_t>(entry.first) * width * sizeof(float);
    std::memcpy(entry.job->out.data() + at, rows.data(), rows.size_bytes());
    hidden = hidden.subspan(rows.size());
  }
}

// `rows` has shape (chunks that want logits, vocabulary); used where the backend made no summary.
Result<void> ChainStage::Impl::answer_logits(const std::vector<Entry>& batch, std::span<const float> rows) {
  const auto vocab = static_cast<std::size_t>(options.model.vocab_size);
  std::size_t index = 0;
  for (const Entry& entry : batch) {
    if (!entry.wants_logits) continue;
    std::span<const float> row = rows.subspan(index * vocab, vocab);
    const LogitSummary* summary = backend->summary(index);
    char* out = entry.job->out.data() + entry.at;
    if (entry.need.likeliest == 0) {
      std::memcpy(out, row.data(), row.size_bytes());
    } else {
      write_summary(summary != nullptr ? *summary : summariser.summary_of(row, entry.need), entry.need, out);
      if (entry.keeps_row && summary != nullptr) {
        WINDLASS_ASSIGN_OR_RETURN(row, backend->row(index));
      }
      if (entry.keeps_row) keep_row(*entry.session, row);
    }
    ++index;
  }
  return {};
}

void ChainStage::Impl::keep_row(Session& session, std::span<const float> row) {
  auto kept = std::make_shared<const std::string>(reinterpret_cast<const char*>(row.data()), row.size_bytes());
  const std::scoped_lock lock(mutex);
  session.row = std::move(kept);
}

void ChainStage::Impl::finish(const std::vector<Entry>& batch, const std::optional<Error>& error) {
  std::vector<std::shared_ptr<Job>> done;
  {
    const std::scoped_lock lock(mutex);
    const double now_s = clock.now_s();
    for (const Entry& entry : batch) {
      if (error && !entry.job->error) entry.job->error = error;
      if (!entry.last) continue;
      Session& session = *entry.session;
      session.heard_s = now_s;
      if (--session.steps == 0 && session.ended) kv.give_back(std::exchange(session.blocks, {}));
      if (--entry.job->unfinished == 0) done.push_back(entry.job);
    }
    publish();
  }
  for (const auto& job : done) pass_on(job);
}

void ChainStage::Impl::pass_on(const std::shared_ptr<Job>& job) {
  if (job->error) return job->answered(refusal(500, job->error->message));
  if (ends()) return job->answered({200, "", std::move(job->out)});
  const std::string& next = job->any->next_hops.front();
  const double began_s = clock.now_s();
  metrics.chain_bytes("sent").add(static_cast<double>(job->out.size()));
  const std::size_t most = job->max_logit_bytes + max_refusal_bytes(kChainMaxTokens);
  post({next, ChainVerb::kStep, std::move(job->out), patience_s(ChainVerb::kStep, job->any->next_hops.size() - 1), most},
       [self = shared_from_this(), answered = job->answered, next, began_s](ChainAnswer answer) {
         {
           const std::scoped_lock lock(self->mutex);
           if (!self->stopping && answer.ok()) {
             self->metrics.chain_step.observe(self->clock.now_s() - began_s);
           }
         }
         answered(from_further(next, std::move(answer), 502));
       });
}

void ChainStage::Impl::run() {
  for (;;) {
    std::vector<Entry> batch;
    {
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return stopping || !queue.empty(); });
      if (stopping) return;
      batch = take_batch();
    }
    compute(batch);
  }
}

ChainStage::ChainStage(const ChainStageOptions& options, std::unique_ptr<Backend> backend, ChainPost post, const Clock& clock,
                       const metrics::WorkerMetrics& metrics)
    : impl_(std::make_shared<Impl>(options, std::move(backend), std::move(post), clock, metrics)),
      thread_([impl = impl_.get()] { impl->run(); }) {
  assert(options.blocks.first > 0 && options.max_batch_tokens >= 1 && options.max_logit_rows >= 1);
}

ChainStage::~ChainStage() {
  {
    const std::scoped_lock lock(impl_->mutex);
    impl_->stopping = true;
  }
  impl_->changed.notify_all();
  thread_.join();
  impl_->backend.reset();
  impl_->metrics.chain_sessions.set(0);
  std::deque<Impl::Entry> left;
  {
    const std::scoped_lock lock(impl_->mutex);
    left = std::move(impl_->queue);
  }
  for (const Impl::Entry& entry : left) {
    if (entry.last && --entry.job->unfinished == 0) entry.job->answered(refusal(503, "this worker is stopping"));
  }
}

void ChainStage::call(ChainVerb verb, std::string body, ChainAnswered answered) {
  switch (verb) {
    case ChainVerb::kReserve: return impl_->reserve(body, std::move(answered));
    case ChainVerb::kStep: return impl_->step(body, answered);
    case ChainVerb::kRow: return impl_->row(body, std::move(answered));
    case ChainVerb::kKeep: return impl_->keep(body, answered);
    case ChainVerb::kRelease: return impl_->release(body, answered);
  }
}

void ChainStage::step(std::string_view body, const ChainAnswered& answered) { impl_->step(body, answered); }

void ChainStage::tick() {
  const std::scoped_lock lock(impl_->mutex);
  const double now_s = impl_->clock.now_s();
  std::vector<std::string> expired;
  for (const auto& [name, session] : impl_->sessions) {
    if (session->steps == 0 && now_s - session->heard_s > kChainLeaseS) expired.push_back(name);
  }
  if (expired.empty()) return;
  impl_->metrics.chain_sessions_expired.add(static_cast<double>(expired.size()));
  impl_->remove(expired);
}

void ChainStage::drain() {
  const std::scoped_lock lock(impl_->mutex);
  impl_->draining = true;
}

std::int64_t ChainStage::sessions() const {
  const std::scoped_lock lock(impl_->mutex);
  return static_cast<std::int64_t>(impl_->sessions.size());
}

const ChainStageOptions& ChainStage::options() const { return impl_->options; }

}  // namespace windlass::worker
