// Checks whether a request fits on a worker; see packed_worker.h.
#include "planner/dispatch/packed_worker.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>

namespace windlass::dispatch {
namespace {

constexpr double kUnbounded = std::numeric_limits<double>::infinity();
constexpr double kNoObjective_s = 1e6;  // finite, so that sums and differences stay numbers

}  // namespace

PackingModel shared(const PackingModel& model, double share) {
  PackingModel own = model;
  own.prefill_token_s /= share;
  own.context_token_s /= share;
  own.decode_request_s /= share;
  own.kv_capacity_tokens *= share;
  return own;
}

PackedWorker::PackedWorker(const PackingModel& model, const PackingRules& rules)
    : rules_(rules), earliest_deadline_s_(kUnbounded), first_waiting_s_(kUnbounded) {
  rules_.ttft_s = std::min(rules_.ttft_s, kNoObjective_s);
  rules_.tpot_s = std::min(rules_.tpot_s, kNoObjective_s);
  set_model(model);
}

void PackedWorker::set_model(const PackingModel& model) {
  model_ = model;
  const double left_s = std::max(1e-9, rules_.tpot_s - model.decode_s);  // no time left: only empty workers take requests
  max_context_ = model.context_token_s > 0 ? left_s / model.context_token_s : kUnbounded;
  if (model.kv_capacity_tokens > 0) max_context_ = std::min(max_context_, model.kv_capacity_tokens);
  max_batch_ = model.decode_request_s > 0 ? left_s / model.decode_request_s : kUnbounded;
  max_batch_ = std::min(max_batch_, static_cast<double>(std::max(1, model.max_requests)));
  weigh();
}

std::size_t PackedWorker::place_of(Handle request) const {
  std::size_t at = 0;
  while (at < entries_.size() && entries_[at].request != request) ++at;
  assert(at < entries_.size());
  return at;
}

void PackedWorker::insert(const Entry& entry) {
  const auto after = [](const Entry& a, const Entry& b) { return a.end > b.end; };
  entries_.insert(std::upper_bound(entries_.begin(), entries_.end(), entry, after), entry);
}

PackedWorker::Entry PackedWorker::take(Handle request) {
  const std::size_t at = place_of(request);
  const Entry entry = entries_[at];
  entries_.erase(entries_.begin() + static_cast<std::ptrdiff_t>(at));
  return entry;
}

void PackedWorker::set_error(Entry& entry) {
  withdraw_error(entry);
  entry.error = entry.predicted;
  error_.add(entry.error);
}

void PackedWorker::withdraw_error(Entry& entry) {
  if (entry.error > 0) error_.withdraw(entry.error);
  entry.error = 0;
}

void PackedWorker::weigh() {
  const double batch = static_cast<double>(entries_.size()) / max_batch_, context = context_ / max_context_;
  norm_ = std::sqrt(batch * batch + context * context);
}

// Workers of one phase have no decodes that a prompt could stall.
void PackedWorker::find_first_waiting() {
  first_waiting_s_ = kUnbounded;
  if (rules_.phase != PackingPhase::kBoth || !(waiting_ > 0)) return;
  for (const Entry& entry : entries_) {
    if (!entry.decodes) first_waiting_s_ = std::min(first_waiting_s_, entry.added_s);
  }
}

void PackedWorker::add(Handle request, int input_tokens, int predicted_tokens, double now_s) {
  Entry entry;
  entry.request = request;
  entry.input = input_tokens;
  entry.predicted = predicted_tokens;
  entry.added_s = now_s;
  entry.end = iteration_ + predicted_tokens;
  entry.offset = input_tokens + model_.kv_request_tokens - static_cast<double>(iteration_);
  if (rules_.phase != PackingPhase::kDecode) waiting_ += input_tokens;
  context_ += weight(entry);
  insert(entry);
  find_first_waiting();
  weigh();
}

void PackedWorker::begin_decode(Handle request, double now_s) {
  Entry entry = take(request);
  if (entry.decodes) return insert(entry);
  if (rules_.phase != PackingPhase::kDecode) waiting_ -= entry.input;
  entry.decodes = true;
  entry.end = iteration_ + entry.predicted - 1;
  entry.offset = entry.input + 1 + model_.kv_request_tokens - static_cast<double>(iteration_);
  entry.deadline_s = now_s - earned_s_;
  earliest_deadline_s_ = std::min(earliest_deadline_s_, entry.deadline_s);
  insert(entry);
  find_first_waiting();
}

void PackedWorker::iterated() {
  ++iteration_;
  earned_s_ += rules_.tpot_s;
  error_.iterated(1);
}

// Only requests that decode have made tokens.
std::int64_t PackedWorker::made(const Entry& entry) const {
  return entry.decodes ? entry.predicted + iteration_ - entry.end : 0;
}

void PackedWorker::saw_tokens(std::int64_t count) {
  const auto decoding = std::count_if(entries_.begin(), entries_.end(), [](const Entry& entry) { return entry.decodes; });
  error_.iterated(static_cast<double>(count) / static_cast<double>(std::max<std::ptrdiff_t>(1, decoding)));
}

void PackedWorker::tokens_made(Handle request, int count) {
  Entry entry = take(request);
  const double before_s = entry.deadline_s;
  entry.end -= count;
  entry.offset += count;
  entry.deadline_s += count * rules_.tpot_s;
  insert(entry);
  saw_tokens(count);
  if (before_s > earliest_deadline_s_) return;
  earliest_deadline_s_ = kUnbounded;
  for (const Entry& other : entries_) {
    if (other.decodes) earliest_deadline_s_ = std::min(earliest_deadline_s_, other.deadline_s);
  }
}

void PackedWorker::predict_again(Handle request, int predicted_tokens) {
  Entry entry = take(request);
  const int more = predicted_tokens - entry.predicted;
  context_ -= weight(entry);
  entry.predicted = predicted_tokens;
  entry.end += more;
  if (more > 0) set_error(entry);
  context_ += weight(entry);
  insert(entry);
  weigh();
}

void PackedWorker::remove(Handle request, int output_tokens) {
  // Tokens of an answer that is not streamed are seen only now.
  if (const std::int64_t unseen = output_tokens - made(entries_[place_of(request)]); unseen > 0) saw_tokens(unseen);
  Entry entry = take(request);
  withdraw_error(entry);
  if (output_tokens > 0) error_.ended_early(output_tokens, entry.predicted);
  if (!entry.decodes && rules_.phase != PackingPhase::kDecode) waiting_ -= entry.input;
  context_ -= weight(entry);
  if (entries_.empty()) {
    context_ = waiting_ = 0;  // remove rounding errors
    error_.clear();
  }
  if (!entry.decodes) find_first_waiting();
  if (entry.decodes && entry.deadline_s <= earliest_deadline_s_) {
    earliest_deadline_s_ = kUnbounded;
    for (const Entry& other : entries_) {
      if (other.decodes) earliest_deadline_s_ = std::min(earliest_deadline_s_, other.deadline_s);
    }
  }
  weigh();
}

std::optional<PackedWorker::Overdue> PackedWorker::overdue() const {
  for (auto entry = entries_.rbegin(); entry != entries_.rend() && entry->end < iteration_; ++entry) {
    if (!entry->decodes) continue;  // its prompt waited long
    return Overdue{entry->request, entry->input, static_cast<int>(made(*entry))};
  }
  return std::nullopt;
}

double PackedWorker::context_limit(int requests) const {
  if (requests > model_.max_requests) return -kUnbounded;
  if (rules_.phase == PackingPhase::kPrefill || model_.context_token_s <= 0) return kUnbounded;
  return (rules_.theta * rules_.tpot_s - model_.decode_s - model_.decode_request_s * requests) / model_.context_token_s;
}

bool PackedWorker::cache_fits(int input_tokens, int predicted_tokens) const {
  if (model_.kv_capacity_tokens <= 0) return true;
  const double limit = model_.kv_capacity_tokens;
  const std::int64_t end = iteration_ + (rules_.phase == PackingPhase::kPrefill ? 0 : predicted_tokens);
  const double offset = input_tokens + model_.kv_request_tokens - static_cast<double>(iteration_);
  double offsets = 0;
  int count = 0;
  // For requests that end after the new one, the cache is fullest with it at its own end or at the end of an earlier one.
  std::size_t next = 0;
  for (; next < entries_.size() && end_of(entries_[next]) >= end; ++next) {
    offsets += entries_[next].offset;
    ++count;
  }
  offsets += offset;
  ++count;
  if (offsets + count * static_cast<double>(end) > limit) return false;
  for (; next < entries_.size(); ++next) {
    offsets += entries_[next].offset;
    ++count;
    if (offsets + count * static_cast<double>(end_of(entries_[next])) > limit) return false;
  }
  return true;
}

double PackedWorker::cache_peak() const {
  double offsets = 0, peak = 0;
  int count = 0;
  for (const Entry& entry : entries_) {
    offsets += entry.offset;
    ++count;
    peak = std::max(peak, offsets + count * static_cast<double>(end_of(entry)));
  }
  return peak;
}

double PackedWorker::cache_after(std::int64_t iterations) const {
  double sum = 0;
  for (const Entry& entry : entries_) {
    if (end_of(entry) >= iteration_ + iterations) sum += entry.offset + static_cast<double>(iteration_ + iterations);
  }
  return sum;
}

std::vector<std::int64_t> PackedWorker::ends_after() const {
  std::vector<std::int64_t> ends;
  for (const Entry& entry : entries_) ends.push_back(end_of(entry) - iteration_);
  return ends;
}

bool PackedWorker::fits(int input_tokens, int predicted_tokens, double now_s) const {
  if (entries_.empty()) {
    return model_.kv_capacity_tokens <= 0 || input_tokens + model_.kv_request_tokens <= model_.kv_capacity_tokens;
  }
  const double context = context_ + input_tokens + rules_.gamma * predicted_tokens;
  if (context > context_limit(requests() + 1)) return false;
  if (rules_.phase != PackingPhase::kDecode && model_.prefill_token_s > 0) {
    const double prefill_s = model_.prefill_token_s * (waiting_ + input_tokens) + model_.prefill_s;
    if (prefill_s > rules_.ttft_s) return false;
    if (prefill_s > rules_.theta * saved_s(now_s)) return false;
  }
  return cache_fits(input_tokens, predicted_tokens);
}

std::size_t PackedWorker::horizon_of(int predicted_tokens) {
  std::size_t horizon = kHorizons.size() - 1;
  while (kHorizons[horizon] > predicted_tokens) --horizon;
  return horizon;
}

PackedWorker::Rooms PackedWorker::rooms() const {
  Rooms rooms;
  rooms.prefill_token_s = model_.prefill_token_s;
  const bool empty = entries_.empty();
  const bool prefills = rules_.phase != PackingPhase::kDecode && !empty;
  rooms.context = empty ? kUnbounded : context_limit(requests() + 1) - context_;
  rooms.prompt = kUnbounded;
  rooms.saved_s = kUnbounded;
  if (prefills && model_.prefill_token_s > 0) {
    rooms.prompt = (rules_.ttft_s - model_.prefill_s) / model_.prefill_token_s - waiting_;
    rooms.saved_s = rules_.theta * (earliest_deadline_s_ + earned_s_) - model_.prefill_token_s * waiting_ - model_.prefill_s;
  }
  // A tolerance, so that rounding does not make the bound refuse what fits() accepts.
  rooms.context += 1e-6;
  rooms.prompt += 1e-6;
  rooms.saved_s += 1e-9;
  if (model_.kv_capacity_tokens <= 0) {
    rooms.cache.fill(kUnbounded);
    return rooms;
  }
  const double limit = model_.kv_capacity_tokens - model_.kv_request_tokens + 1e-6;
  if (empty || rules_.phase == PackingPhase::kPrefill) {
    double now = 0;
    for (const Entry& entry : entries_) now += entry.offset + static_cast<double>(iteration_);
    rooms.cache.fill(limit - now);
    return rooms;
  }
  // Least room at the ends of the requests here, by the horizon just after them; then at each horizon itself.
  rooms.cache.fill(kUnbounded);
  double offsets = 0;
  int count = 0;
  auto horizon = static_cast<std::ptrdiff_t>(kHorizons.size()) - 1;
  const auto at_horizon = [&](std::ptrdiff_t h) {
    const double after = kHorizons[static_cast<std::size_t>(h)];
    double& room = rooms.cache[static_cast<std::size_t>(h)];
    room = std::min(room, limit - (offsets + count * (static_cast<double>(iteration_) + after)) - after);
  };
  for (const Entry& entry : entries_) {
    const std::int64_t end = end_of(entry);
    const std::int64_t after = end - iteration_;
    while (horizon >= 0 && after < kHorizons[static_cast<std::size_t>(horizon)]) at_horizon(horizon--);
    offsets += entry.offset;
    ++count;
    if (horizon + 1 == static_cast<std::ptrdiff_t>(kHorizons.size()))
      continue;  // after the last horizon: may not apply to any request
    double& room = rooms.cache[static_cast<std::size_t>(horizon + 1)];
    room = std::min(room, limit - (offsets + count * static_cast<double>(end)) - static_cast<double>(after));
  }
  while (horizon >= 0) at_horizon(horizon--);
  for (std::size_t h = 1; h < kHorizons.size(); ++h) rooms.cache[h] = std::min(rooms.cache[h], rooms.cache[h - 1]);
  return rooms;
}

void PackedWorker::Rooms::widen(const Rooms& other) {
  context = std::max(context, other.context);
  prompt = std::max(prompt, other.prompt);
  saved_s = std::max(saved_s, other.saved_s);
  prefill_token_s = std::min(prefill_token_s, other.prefill_token_s);
  for (std::size_t h = 0; h < cache.size(); ++h) cache[h] = std::max(cache[h], other.cache[h]);
}

}  // namespace windlass::dispatch
