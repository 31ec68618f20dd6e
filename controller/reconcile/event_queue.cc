// See event_queue.h.
#include "controller/reconcile/event_queue.h"

#include <optional>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

namespace windlass::controller {
namespace {

constexpr std::size_t kMaxNames = 20;    // per message
constexpr std::size_t kMaxMessages = 3;  // quoted in full, if more than one word differs

std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words;
  std::size_t from = 0;
  for (std::size_t end = text.find(' '); end != std::string::npos; end = text.find(' ', from)) {
    words.push_back(text.substr(from, end - from));
    from = end + 1;
  }
  words.push_back(text.substr(from));
  return words;
}

// Index of the only word in which they differ; nullopt if more than one differs.
std::optional<std::size_t> differing_word(const std::vector<std::vector<std::string>>& all) {
  std::optional<std::size_t> differing;
  for (const auto& words : all) {
    if (words.size() != all.front().size()) return std::nullopt;
    for (std::size_t i = 0; i < words.size(); ++i) {
      if (words[i] == all.front()[i] || differing == i) continue;
      if (differing) return std::nullopt;
      differing = i;
    }
  }
  return differing;
}

std::string listed(std::vector<std::string> items, std::size_t most, const char* separator) {
  const std::size_t more = items.size() > most ? items.size() - most : 0;
  items.resize(items.size() - more);
  std::string text = fmt::format("{}", fmt::join(items, separator));
  if (more > 0) text += fmt::format("{}and {} more", separator, more);
  return text;
}

}  // namespace

std::string joined(const std::vector<std::string>& messages) {
  std::vector<std::string> different;  // in order of arrival
  std::set<std::string> known;
  for (const std::string& message : messages) {
    if (known.insert(message).second) different.push_back(message);
  }
  if (different.empty()) return "";
  if (different.size() == 1) return different.front();
  std::vector<std::vector<std::string>> all;
  for (const std::string& message : different) all.push_back(words_of(message));
  const auto at = differing_word(all);
  if (!at) return listed(std::move(different), kMaxMessages, "; ");
  std::vector<std::string> names;
  for (const auto& words : all) names.push_back(words[*at]);
  all.front()[*at] = listed(std::move(names), kMaxNames, ", ");
  return fmt::format("{}", fmt::join(all.front(), " "));
}

void EventQueue::add(const Happening& happening) {
  const Key key{happening.service->metadata.uid, happening.reason, happening.warning};
  auto entry = waiting_.find(key);
  if (entry == waiting_.end()) {
    if (waiting_.size() >= kMaxWaiting) return;
    entry = waiting_.emplace(key, Entry{}).first;
    entry->second.service.metadata = happening.service->metadata;
    order_.push_back(key);
  }
  entry->second.messages.push_back(happening.message);
}

void EventQueue::write(ObjectStore& store, Instant now, const std::function<bool()>& time_is_up) {
  while (!order_.empty()) {
    const auto next = waiting_.extract(order_.front());
    order_.pop_front();
    const Key& key = next.key();
    const Entry& entry = next.mapped();
    const auto told = store.record_event(entry.service, key.warning, key.reason, joined(entry.messages), now);
    if (!told.ok()) spdlog::debug("event not written: {}", told.error().message);
    if (time_is_up && time_is_up()) return;
  }
}

void EventQueue::clear() {
  waiting_.clear();
  order_.clear();
}

}  // namespace windlass::controller
