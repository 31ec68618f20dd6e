// Orders waiting requests by deadline and arrival; see waiting_line.h.
#include "planner/dispatch/waiting_line.h"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

namespace windlass::dispatch {
namespace {

constexpr double kFirstShare = 0.1;  // of the objective, while nothing is known
constexpr double kQuantile = 0.98;
constexpr double kStep = 0.05;

}  // namespace

const char* to_string(QueueOrder order) { return order == QueueOrder::kObjective ? "objective" : "arrival"; }

Result<QueueOrder> queue_order_from_string(std::string_view text) {
  for (const QueueOrder order : {QueueOrder::kObjective, QueueOrder::kArrival}) {
    if (text == to_string(order)) return order;
  }
  return Error{ErrorCode::kInvalidArgument, fmt::format("must be objective or arrival (got '{}')", text)};
}

void WaitingLine::join(std::uint64_t place, std::uint64_t id, double deadline_s) {
  // Normally all others come before it, unless it returns to an old place.
  const auto after = by_place_.upper_bound(place);
  const auto before =
      after == by_place_.end() ? static_cast<std::ptrdiff_t>(by_place_.size()) : std::distance(by_place_.begin(), after);
  by_place_[place] = Entry{id, deadline_s, turns_ + static_cast<std::uint64_t>(before) + 1};
  // By arrival alone, every request counts as late: one line, sorted by place.
  if (order_ == QueueOrder::kArrival) {
    late_.insert(place);
  } else {
    in_time_.emplace(deadline_s, place);
  }
}

bool WaitingLine::leave(std::uint64_t place) {
  const auto found = by_place_.find(place);
  if (found == by_place_.end()) return false;
  if (late_.erase(place) == 0) in_time_.erase({found->second.deadline_s, place});
  by_place_.erase(found);
  return true;
}

std::optional<WaitingLine::Waiting> WaitingLine::next(double now_s, double margin_s) {
  while (!in_time_.empty() && in_time_.begin()->first < now_s + margin_s) {
    late_.insert(in_time_.begin()->second);
    in_time_.erase(in_time_.begin());
  }
  if (by_place_.empty()) return std::nullopt;
  const bool theirs = !late_.empty() && (in_time_.empty() || passed_ + 1 >= kTurns);
  const std::uint64_t place = theirs ? *late_.begin() : in_time_.begin()->second;
  const Entry& entry = by_place_.at(place);
  return Waiting{place, entry.id, entry.deadline_s};
}

void WaitingLine::take(std::uint64_t place) {
  ++turns_;
  passed_ = late_.contains(place) || late_.empty() ? 0 : passed_ + 1;
  leave(place);
}

void WaitingLine::give_back() {
  if (turns_ > 0) --turns_;
}

bool WaitingLine::overtaken(std::uint64_t place) const {
  const auto found = by_place_.find(place);
  return found != by_place_.end() && turns_ >= found->second.turn;
}

std::vector<WaitingLine::Waiting> WaitingLine::all() const {
  std::vector<Waiting> everybody;
  everybody.reserve(by_place_.size());
  for (const auto& [place, entry] : by_place_) everybody.push_back({place, entry.id, entry.deadline_s});
  return everybody;
}

std::vector<WaitingLine::Waiting> WaitingLine::take_all() {
  std::vector<Waiting> everybody = all();
  by_place_.clear();
  in_time_.clear();
  late_.clear();
  passed_ = 0;
  return everybody;
}

void FirstTokenTail::observe(double seconds) {
  if (!(seconds > 0)) return;
  if (tail_s_ <= 0) {
    tail_s_ = seconds;
  } else {
    tail_s_ *= seconds > tail_s_ ? 1 + kStep * kQuantile : 1 - kStep * (1 - kQuantile);
  }
}

double FirstTokenTail::margin_s(double objective_s) const {
  return std::min(tail_s_ > 0 ? tail_s_ : kFirstShare * objective_s, kMaxShare * objective_s);
}

}  // namespace windlass::dispatch
