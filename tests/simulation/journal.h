// Journal: records what happened in a simulated world, to explain a failing seed, and the invariants that were violated.
//
// Notes are kept in a ring, so that memory stays bounded. Their text is built only if `verbose`, because formatting costs more
// than the run itself.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace windlass::simulation {

struct Violation {
  std::string check;  // the invariant's name
  double at_s = 0;
  std::string what;
};

class Journal {
 public:
  explicit Journal(bool verbose, std::size_t kept = 400) : verbose_(verbose), kept_(kept) {}

  template <class... Args>
  void note(double now_s, fmt::format_string<Args...> format, Args&&... args) {
    if (!verbose_) return;
    notes_.push_back(fmt::format("{:9.3f}  {}", now_s, fmt::format(format, std::forward<Args>(args)...)));
    if (notes_.size() > kept_) notes_.pop_front();
  }

  // Keeps the first violation of each check, and the notes before it.
  void violate(double now_s, const std::string& check, const std::string& what) {
    note(now_s, "VIOLATION {}: {}", check, what);
    ++violations_seen_[check];
    if (violations_seen_[check] > 3) return;
    violations_.push_back({check, now_s, what});
    const bool wanted = notes_until.empty() || notes_until == check;
    if (wanted && notes_of_first_.empty()) notes_of_first_ = notes_;
  }

  [[nodiscard]] const std::vector<Violation>& violations() const { return violations_; }
  // The last notes before the first violation (of the check `notes_until`, if set), or of the whole run if there was none.
  [[nodiscard]] const std::deque<std::string>& notes() const { return notes_of_first_.empty() ? notes_ : notes_of_first_; }
  std::string notes_until;
  [[nodiscard]] bool verbose() const { return verbose_; }

 private:
  bool verbose_;
  std::size_t kept_;
  std::deque<std::string> notes_, notes_of_first_;
  std::vector<Violation> violations_;
  std::map<std::string, int> violations_seen_;
};

}  // namespace windlass::simulation
