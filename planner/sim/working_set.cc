// See working_set.h.
#include "planner/sim/working_set.h"

#include <algorithm>
#include <cassert>

namespace windlass::sim {

WorkingSet::WorkingSet(planner::DecodeAdmission admission, int block_tokens)
    : admission_(admission),
      block_tokens_(block_tokens),
      due_(static_cast<std::size_t>(block_tokens), 0),
      due_in_time_(due_),
      length_on_way_(due_) {}

// Pages it still takes until its predicted end.
std::int64_t WorkingSet::promised(const Member& member) const {
  if (member.outlived) return 0;
  const std::int64_t now = member.tokens + (member.decoding ? iteration_ - member.started : 0);
  return blocks_of(member.tokens + member.tokens_left) - blocks_of(now);
}

std::size_t WorkingSet::phase(const Member& member) const {
  return static_cast<std::size_t>((((member.tokens - member.started) % block_tokens_) + block_tokens_) % block_tokens_);
}

std::int64_t WorkingSet::shortest() const {
  std::int64_t shortest = 0;
  if (!ends_.empty()) shortest = ends_.begin()->first - iteration_;
  if (!on_way_.empty() && (ends_.empty() || on_way_.begin()->first < shortest)) shortest = on_way_.begin()->first;
  return shortest;
}

std::int64_t WorkingSet::growth(std::int64_t tokens, std::int64_t tokens_left) const {
  tokens_left = std::max<std::int64_t>(0, tokens_left);
  if (admission_ == planner::DecodeAdmission::kReserveStatic)
    return promised_ + blocks_of(tokens + tokens_left) - blocks_of(tokens);
  std::int64_t until = tokens_left;
  if (!ends_.empty() || !on_way_.empty()) until = tokens_left > 0 ? std::min(shortest(), tokens_left) : shortest();
  // Every sequence takes one page in block_tokens iterations; those due within the remainder take one more.
  std::int64_t pages = std::int64_t{members_} * (until / block_tokens_);
  for (std::int64_t i = 0; i < until % block_tokens_; ++i) {
    const std::int64_t on_way = (block_tokens_ - i) % block_tokens_;
    const std::int64_t decoding = (block_tokens_ - (iteration_ + i) % block_tokens_) % block_tokens_;
    pages += length_on_way_[static_cast<std::size_t>(on_way)] + due_[static_cast<std::size_t>(decoding)];
  }
  return pages + blocks_of(tokens + until) - blocks_of(tokens);
}

void WorkingSet::add(int sequence, std::int64_t tokens, std::int64_t tokens_left) {
  const auto index = static_cast<std::size_t>(sequence);
  if (index >= by_sequence_.size()) by_sequence_.resize(index + 1);
  Member& member = by_sequence_[index];
  assert(!member.present);
  member = Member{};
  member.present = true;
  member.tokens = tokens;
  member.tokens_left = tokens_left;
  member.outlived = tokens_left <= 0;
  ++members_;
  promised_ += promised(member);
  ++length_on_way_[static_cast<std::size_t>(tokens % block_tokens_)];
  if (!member.outlived) on_way_.emplace(tokens_left, sequence);
}

void WorkingSet::start(int sequence) {
  Member& member = by_sequence_[static_cast<std::size_t>(sequence)];
  assert(member.present && !member.decoding);
  --length_on_way_[static_cast<std::size_t>(member.tokens % block_tokens_)];
  on_way_.erase({member.tokens_left, sequence});
  member.decoding = true;
  member.started = iteration_;
  ++due_[phase(member)];
  if (member.outlived) return;
  ++due_in_time_[phase(member)];
  ends_.emplace(iteration_ + member.tokens_left, sequence);
}

void WorkingSet::remove(int sequence) {
  if (static_cast<std::size_t>(sequence) >= by_sequence_.size()) return;
  Member& member = by_sequence_[static_cast<std::size_t>(sequence)];
  if (!member.present) return;
  promised_ -= promised(member);
  if (member.decoding) {
    --due_[phase(member)];
    if (!member.outlived) {
      --due_in_time_[phase(member)];
      ends_.erase({member.started + member.tokens_left, sequence});
    }
  } else {
    --length_on_way_[static_cast<std::size_t>(member.tokens % block_tokens_)];
    on_way_.erase({member.tokens_left, sequence});
  }
  member.present = false;
  --members_;
}

void WorkingSet::begin_iteration() {
  promised_ -= due_in_time_[static_cast<std::size_t>((block_tokens_ - iteration_ % block_tokens_) % block_tokens_)];
  ++iteration_;
}

void WorkingSet::end_iteration() {
  while (!ends_.empty() && ends_.begin()->first <= iteration_) {
    Member& member = by_sequence_[static_cast<std::size_t>(ends_.begin()->second)];
    assert(promised(member) == 0);
    member.outlived = true;
    --due_in_time_[phase(member)];
    ends_.erase(ends_.begin());
  }
}

}  // namespace windlass::sim
