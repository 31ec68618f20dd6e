// Implements fake_engine.h.
#include "tests/cluster/kwok/fake_engine.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace windlass::testing {

bool FakeEngine::submit(std::int64_t request, int input_tokens, int output_tokens, double now_s) {
  if (waiting() >= options_.max_waiting) return false;
  // An iteration interrupted by a prefill is repeated after it.
  if (!prefilling_) now_s_ = std::max(now_s_, now_s);
  waiting_.push_back({request, input_tokens, output_tokens, 0, 0});
  begin_prefill();
  return true;
}

void FakeEngine::cancel(std::int64_t request, double now_s) {
  const auto same = [&](const Sequence& one) { return one.request == request; };
  std::erase_if(waiting_, same);
  std::erase_if(decoding_, same);
  if (prefilling_ && same(*prefilling_)) {
    prefilling_.reset();
    now_s_ = std::max(now_s_, now_s);
  }
  begin_prefill();
}

void FakeEngine::begin_prefill() {
  if (prefilling_ || waiting_.empty() || static_cast<int>(decoding_.size()) >= options_.max_concurrency) return;
  prefilling_ = waiting_.front();
  waiting_.pop_front();
  prefill_end_s_ = now_s_ + planner::LinearModel(options_.times).prefill_s(prefilling_->input);
}

double FakeEngine::iteration_s() const {
  double context = 0;
  for (const Sequence& one : decoding_) context += one.input + one.generated;
  const auto batch = static_cast<double>(decoding_.size());
  return planner::LinearModel(options_.times).decode_s(batch, context / batch);
}

int FakeEngine::steps_to_next() const {
  int steps = std::numeric_limits<int>::max();
  for (const Sequence& one : decoding_) {
    const int piece_left = options_.piece_tokens - (one.generated - one.emitted);
    steps = std::min({steps, piece_left, one.output - one.generated});
  }
  return steps;
}

void FakeEngine::emit(Sequence& sequence, double at_s, std::vector<Emission>& out) const {
  out.push_back({sequence.request, sequence.generated - sequence.emitted, sequence.generated,
                 sequence.generated >= sequence.output, at_s});
  sequence.emitted = sequence.generated;
}

std::vector<Emission> FakeEngine::advance(double now_s) {
  std::vector<Emission> out;
  while (true) {
    if (prefilling_) {
      if (prefill_end_s_ > now_s) return out;
      now_s_ = prefill_end_s_;
      prefilling_->generated = 1;
      emit(*prefilling_, now_s_, out);
      if (prefilling_->generated < prefilling_->output) decoding_.push_back(*prefilling_);
      prefilling_.reset();
      begin_prefill();
      continue;
    }
    if (decoding_.empty()) {
      now_s_ = now_s;
      return out;
    }
    const double iteration = iteration_s();
    const int wanted = steps_to_next();
    const int possible = static_cast<int>(std::min<double>(wanted, std::floor((now_s - now_s_) / iteration)));
    if (possible <= 0) return out;
    now_s_ += possible * iteration;
    for (Sequence& one : decoding_) {
      one.generated += possible;
      if (one.generated - one.emitted >= options_.piece_tokens || one.generated >= one.output) emit(one, now_s_, out);
    }
    std::erase_if(decoding_, [](const Sequence& one) { return one.generated >= one.output; });
    begin_prefill();
  }
}

std::optional<double> FakeEngine::next_event_s() const {
  if (prefilling_) return prefill_end_s_;
  if (decoding_.empty()) return std::nullopt;
  return now_s_ + steps_to_next() * iteration_s();
}

double FakeEngine::kv_use() const {
  double tokens = prefilling_ ? prefilling_->input : 0;
  for (const Sequence& one : decoding_) tokens += one.input + one.generated;
  return options_.times.kv_capacity_tokens > 0 ? std::min(1.0, tokens / options_.times.kv_capacity_tokens) : 0;
}

}  // namespace windlass::testing
