// Local blocks, one call for each chain, and the rows in the batch's order.
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

constexpr auto kLook = std::chrono::milliseconds(100);  // how often silence is looked for
constexpr std::string_view kOver = "it has the session no more: it has begun anew, or has not heard of the session in time";

}  // namespace

// Outlives the step where an answer comes too late for it.
struct ChainBackend::Answers {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::optional<ChainAnswer>> by_group;
};

ChainBackend::ChainBackend(std::unique_ptr<Backend> local, const ChainModel& model, ChainSessions& sessions, const Clock& clock,
                           const metrics::WorkerMetrics& metrics)
    : local_(std::move(local)), model_(model), sessions_(sessions), clock_(clock), metrics_(metrics) {}

void ChainBackend::fail(const Group& group, std::size_t chunk, std::string_view why) {
  open_[chunk] = false;
  failures_[chunk] = Error{ErrorCode::kUnavailable,
                           fmt::format("a later worker of the request's chain is lost: {}: {}", group.chain->next(), why)};
}

// Of the chunks that are open; those whose sessions are over fail.
std::vector<ChainBackend::Group> ChainBackend::groups_of(std::span<const SequenceChunk> chunks) {
  std::vector<Group> groups;
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    if (!open_[i]) continue;
    const ChainPtr chain = sessions_.chain_of(chunks[i].chain_session);
    if (chain == nullptr) {
      open_[i] = false;
      failures_[i] = Error{ErrorCode::kUnavailable, "the request has no room at the later workers of its chain"};
      continue;
    }
    if (sessions_.over(chunks[i].chain_session)) {
      fail({chain, {}, 0}, i, kOver);
      continue;
    }
    auto group = std::find_if(groups.begin(), groups.end(), [&](const Group& each) { return each.chain == chain; });
    if (group == groups.end()) group = groups.insert(groups.end(), Group{chain, {}, 0});
    group->chunks.push_back(i);
    group->rows += chunks[i].wants_logits ? 1 : 0;
  }
  return groups;
}

bool ChainBackend::over(const Group& group, std::span<const SequenceChunk> chunks) const {
  return std::any_of(group.chunks.begin(), group.chunks.end(),
                     [&](std::size_t i) { return sessions_.over(chunks[i].chain_session); });
}

// `hidden` (tokens of the batch, hidden size).
std::string ChainBackend::step_of(const Group& group, std::span<const SequenceChunk> chunks, const float* hidden) const {
  std::vector<ChainChunk> heads;
  for (const std::size_t i : group.chunks) {
    const SequenceChunk& chunk = chunks[i];
    heads.push_back(
        {std::string(chunk.chain_session), chunk.start, static_cast<std::int64_t>(chunk.tokens.size()), chunk.wants_logits});
  }
  std::string body = step_head(heads);
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

// Until each group has an answer, or its chain is lost (then it has none).
std::vector<std::optional<ChainAnswer>> ChainBackend::wait(const std::vector<Group>& groups,
                                                           std::span<const SequenceChunk> chunks, Answers& answers) const {
  const double began_s = clock_.now_s();
  std::unique_lock lock(answers.mutex);
  for (;;) {
    bool all = true;
    for (std::size_t i = 0; i < groups.size(); ++i) {
      if (answers.by_group[i]) continue;
      // A worker that has begun anew answers what it is told of sessions, and never the step.
      const bool lost = sessions_.silent(groups[i].chain) || over(groups[i], chunks) ||
                        clock_.now_s() - began_s > patience_s(ChainVerb::kStep, groups[i].chain->hops.size() - 1);
      all = all && lost;
    }
    if (all) break;
    answers.changed.wait_for(lock, kLook);
  }
  std::vector<std::optional<ChainAnswer>> came;
  for (auto& each : answers.by_group) came.push_back(std::exchange(each, std::nullopt));
  return came;
}

void ChainBackend::take(const Group& group, std::span<const SequenceChunk> chunks, const std::optional<ChainAnswer>& answer) {
  const auto vocab = static_cast<std::size_t>(model_.vocab_size);
  const std::size_t expected = static_cast<std::size_t>(group.rows) * vocab * sizeof(float);
  std::string why;
  if (!answer) {
    why = over(group, chunks) ? kOver : "has not answered in time";
  } else if (!answer->ok()) {
    sessions_.end(group.chain, sessions_over(*answer));
    if (over(group, chunks)) return;  // the others' chunks are still open
    why = answer->body;
  } else if (answer->body.size() != expected) {
    why = fmt::format("answered {} bytes of logits, expected are {}", answer->body.size(), expected);
  }
  for (const std::size_t i : group.chunks) {
    if (!why.empty()) fail(group, i, why);
    open_[i] = false;
  }
  if (!why.empty()) return;
  metrics_.chain_bytes("received").add(static_cast<double>(answer->body.size()));
  const char* from = answer->body.data();
  std::size_t row = 0;
  auto next = group.chunks.begin();
  for (std::size_t i = 0; i < chunks.size() && next != group.chunks.end(); ++i) {
    const bool mine = i == *next;
    if (mine) ++next;
    if (!chunks[i].wants_logits) continue;
    if (mine) {
      std::memcpy(logits_.data() + row * vocab, from, vocab * sizeof(float));
      from += vocab * sizeof(float);
    }
    ++row;
  }
}

// All groups at once.
void ChainBackend::ask(const std::vector<Group>& groups, std::span<const SequenceChunk> chunks, const float* hidden) {
  const auto answers = std::make_shared<Answers>();
  answers->by_group.resize(groups.size());
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const std::size_t most = static_cast<std::size_t>(groups[i].rows * model_.vocab_size) * sizeof(float) +
                             most_refusal_bytes(groups[i].chunks.size());
    sessions_.step(groups[i].chain, step_of(groups[i], chunks, hidden), most, [answers, i](ChainAnswer answer) {
      const std::scoped_lock lock(answers->mutex);
      answers->by_group[i] = std::move(answer);
      answers->changed.notify_all();
    });
  }
  const auto came = wait(groups, chunks, *answers);
  for (std::size_t i = 0; i < groups.size(); ++i) take(groups[i], chunks, came[i]);
}

Result<std::span<const float>> ChainBackend::run(std::span<const SequenceChunk> chunks, const LayerDone& layer_done,
                                                 std::int64_t skip) {
  assert(skip == 0);
  WINDLASS_ASSIGN_OR_RETURN(const std::span<const float> hidden, local_->forward(chunks, layer_done, skip));
  failures_.assign(chunks.size(), std::nullopt);
  open_.assign(chunks.size(), true);
  const auto rows = std::count_if(chunks.begin(), chunks.end(), [](const auto& chunk) { return chunk.wants_logits; });
  logits_.resize(static_cast<std::size_t>(rows * model_.vocab_size));

  std::vector<Group> groups = groups_of(chunks);
  if (groups.empty()) return std::span<const float>(logits_);
  const double began_s = clock_.now_s();
  // A second time for those that were sent together with a session that was over.
  for (; !groups.empty(); groups = groups_of(chunks)) ask(groups, chunks, hidden.data());
  metrics_.chain_step.observe(clock_.now_s() - began_s);
  return std::span<const float>(logits_);
}

}  // namespace windlass::worker
