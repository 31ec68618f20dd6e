// Computes local blocks, makes one call per chain, and collects the rows in the batch's order.
#include "worker/parallel/chain_backend.h"

#include <algorithm>
#include <cassert>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <string_view>
#include <utility>

#include <fmt/core.h>

namespace windlass::worker {
namespace {

constexpr auto kLook = std::chrono::milliseconds(100);  // interval of checks for lost chains
constexpr std::string_view kOver = "it no longer has the session: it has restarted, or the session's lease expired";

Error lost_chain(const ChainPtr& chain, std::string_view why) {
  return Error{ErrorCode::kUnavailable,
               fmt::format("a later worker of the request's chain is lost: {}: {}", chain->next(), why)};
}

}  // namespace

// Outlives the step if an answer arrives too late.
struct ChainBackend::Answers {
  explicit Answers(std::size_t groups) : by_group(groups) {}

  void take(std::size_t group, ChainAnswer answer) {
    const std::scoped_lock lock(mutex);
    by_group[group] = std::move(answer);
    changed.notify_all();
  }

  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::optional<ChainAnswer>> by_group;
};

ChainBackend::ChainBackend(std::unique_ptr<Backend> local, const ChainModel& model, ChainSessions& sessions, const Clock& clock,
                           const metrics::WorkerMetrics& metrics)
    : local_(std::move(local)), model_(model), sessions_(sessions), clock_(clock), metrics_(metrics) {}

void ChainBackend::fail(const ChainPtr& chain, std::size_t chunk, std::string_view why) {
  open_[chunk] = false;
  failures_[chunk] = lost_chain(chain, why);
}

// Groups the open chunks by chain; chunks whose sessions are gone fail.
std::vector<ChainBackend::Group> ChainBackend::groups_of(std::span<const SequenceChunk> chunks) {
  std::vector<Group> groups;
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    if (!open_[i]) continue;
    const SequenceChunk& chunk = chunks[i];
    const ChainPtr chain = sessions_.chain_of(chunk.chain_session);
    if (chain == nullptr) {
      open_[i] = false;
      failures_[i] = Error{ErrorCode::kUnavailable, "the request has no reservation at the later workers of its chain"};
      continue;
    }
    if (sessions_.over(chunk.chain_session)) {
      fail(chain, i, kOver);
      continue;
    }
    auto group = std::find_if(groups.begin(), groups.end(), [&](const Group& each) { return each.chain == chain; });
    if (group == groups.end()) group = groups.insert(groups.end(), Group{chain, {}, {}, 0});
    group->chunks.push_back(i);
    group->heads.push_back({std::string(chunk.chain_session), chunk.start, static_cast<std::int64_t>(chunk.tokens.size()),
                            chunk.wants_logits, chunk.need, chunk.row_may_follow});
    group->logit_bytes += logit_bytes(group->heads.back(), model_.vocab_size);
  }
  return groups;
}

bool ChainBackend::over(const Group& group) const {
  return std::any_of(group.heads.begin(), group.heads.end(),
                     [&](const ChainChunk& head) { return sessions_.over(head.session); });
}

// `hidden` has shape (tokens of the batch, hidden size).
std::string ChainBackend::step_of(const Group& group, std::span<const SequenceChunk> chunks, const float* hidden) const {
  std::string body = step_head(group.heads);
  std::int64_t tokens = 0;
  for (const ChainChunk& head : group.heads) tokens += head.tokens;
  body.reserve(body.size() + static_cast<std::size_t>(tokens * model_.hidden_size) * sizeof(float));
  auto next = group.chunks.begin();
  for (std::size_t i = 0; i < chunks.size() && next != group.chunks.end(); ++i) {
    const std::size_t floats = chunks[i].tokens.size() * static_cast<std::size_t>(model_.hidden_size);
    if (i == *next) {
      body.append(reinterpret_cast<const char*>(hidden), floats * sizeof(float));
      ++next;
    }
    hidden += floats;
  }
  return body;
}

// Waits until each group has an answer, or its chain is lost (then the group has none).
std::vector<std::optional<ChainAnswer>> ChainBackend::wait(const std::vector<Group>& groups, ChainVerb verb,
                                                           Answers& answers) const {
  const double began_s = clock_.now_s();
  std::unique_lock lock(answers.mutex);
  for (;;) {
    bool all = true;
    for (std::size_t i = 0; i < groups.size(); ++i) {
      if (answers.by_group[i]) continue;
      // A restarted worker answers keep calls but never this step.
      const bool lost = sessions_.silent(groups[i].chain) || over(groups[i]) ||
                        clock_.now_s() - began_s > patience_s(verb, groups[i].chain->hops.size() - 1);
      all = all && lost;
    }
    if (all) break;
    answers.changed.wait_for(lock, kLook);
  }
  std::vector<std::optional<ChainAnswer>> came;
  for (auto& each : answers.by_group) came.push_back(std::exchange(each, std::nullopt));
  return came;
}

// Why the answer is unusable; empty if it is valid.
std::string ChainBackend::why_not(const Group& group, const std::optional<ChainAnswer>& answer) const {
  if (!answer) return std::string(over(group) ? kOver : "did not answer in time");
  if (!answer->ok()) return !sessions_over(*answer).empty() ? std::string(kOver) : answer->body;
  if (answer->body.size() == group.logit_bytes) return "";
  return fmt::format("answered {} bytes of logits instead of {}", answer->body.size(), group.logit_bytes);
}

void ChainBackend::take(const Group& group, const std::optional<ChainAnswer>& answer) {
  if (answer && !answer->ok()) {
    sessions_.end(group.chain, sessions_over(*answer));
    if (over(group)) return;  // the other chunks stay open
  }
  std::string why = why_not(group, answer);
  if (why.empty()) {
    metrics_.chain_bytes("received").add(static_cast<double>(answer->body.size()));
    if (const auto taken = take_logits(group, answer->body); !taken.ok()) why = taken.error().message;
  }
  for (const std::size_t i : group.chunks) {
    if (!why.empty()) fail(group.chain, i, why);
    open_[i] = false;
  }
}

// REQUIRES: `bytes` has the group's logit_bytes.
Result<void> ChainBackend::take_logits(const Group& group, std::string_view logits) {
  const auto vocab = static_cast<std::size_t>(model_.vocab_size);
  for (std::size_t i = 0; i < group.chunks.size(); ++i) {
    const ChainChunk& head = group.heads[i];
    const std::string_view own = logits.substr(0, logit_bytes(head, model_.vocab_size));
    logits.remove_prefix(own.size());
    if (!head.wants_logits) continue;
    const std::size_t row = row_of_[group.chunks[i]];
    if (head.need.likeliest == 0) {
      std::memcpy(logits_.data() + row * vocab, own.data(), own.size());
      continue;
    }
    WINDLASS_ASSIGN_OR_RETURN(LogitSummary summary, summary_from(own, head.need, model_.vocab_size));
    rows_[row] = {group.chain, head.session, summary};
  }
  return {};
}

// Sends all groups and then waits for them.
void ChainBackend::ask(const std::vector<Group>& groups, std::span<const SequenceChunk> chunks, const float* hidden) {
  const auto answers = std::make_shared<Answers>(groups.size());
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const std::size_t most = groups[i].logit_bytes + max_refusal_bytes(groups[i].chunks.size());
    sessions_.step(groups[i].chain, step_of(groups[i], chunks, hidden), most,
                   [answers, i](ChainAnswer answer) { answers->take(i, std::move(answer)); });
  }
  const auto came = wait(groups, ChainVerb::kStep, *answers);
  for (std::size_t i = 0; i < groups.size(); ++i) take(groups[i], came[i]);
}

Result<std::span<const float>> ChainBackend::row(std::size_t row) {
  assert(summary(row) != nullptr);
  const Row& wanted = rows_[row];
  const Group alone{
      wanted.chain, {}, {ChainChunk{wanted.session}}, static_cast<std::size_t>(model_.vocab_size) * sizeof(float)};
  const auto answers = std::make_shared<Answers>(1);
  sessions_.row(wanted.chain, wanted.session, [answers](ChainAnswer answer) { answers->take(0, std::move(answer)); });
  const auto answer = std::move(wait({alone}, ChainVerb::kRow, *answers).front());
  if (const std::string why = why_not(alone, answer); !why.empty()) return lost_chain(wanted.chain, why);
  metrics_.chain_bytes("received").add(static_cast<double>(answer->body.size()));
  fetched_.resize(static_cast<std::size_t>(model_.vocab_size));
  std::memcpy(fetched_.data(), answer->body.data(), answer->body.size());
  return std::span<const float>(fetched_);
}

Result<std::span<const float>> ChainBackend::run(std::span<const SequenceChunk> chunks, const LayerDone& layer_done,
                                                 std::int64_t skip) {
  assert(skip == 0);
  WINDLASS_ASSIGN_OR_RETURN(const std::span<const float> hidden, local_->forward(chunks, layer_done, skip));
  failures_.assign(chunks.size(), std::nullopt);
  open_.assign(chunks.size(), true);
  row_of_.clear();
  std::size_t rows = 0;
  for (const SequenceChunk& chunk : chunks) {
    row_of_.push_back(rows);
    rows += chunk.wants_logits ? 1 : 0;
  }
  rows_.assign(rows, {});
  const std::size_t floats = rows * static_cast<std::size_t>(model_.vocab_size);
  if (logits_.size() < floats) logits_.resize(floats);  // rows with a summary are not written
  const auto logits = std::span<const float>(logits_).first(floats);

  std::vector<Group> groups = groups_of(chunks);
  if (groups.empty()) return logits;
  const double began_s = clock_.now_s();
  // Sends again chunks that were sent together with a session that was gone.
  for (; !groups.empty(); groups = groups_of(chunks)) ask(groups, chunks, hidden.data());
  metrics_.chain_step.observe(clock_.now_s() - began_s);
  return logits;
}

}  // namespace windlass::worker
