// See probe_questions.h.
#include "controller/reconcile/probe_questions.h"

#include <utility>

namespace windlass::controller {

void ProbeQuestions::ask(const ProbeQuestion& question) {
  const std::lock_guard lock(mutex_);
  if (asked_.contains(question.worker_uid) || !open_.insert(question.configuration).second) return;
  asked_.insert(question.worker_uid);
  waiting_.push_back(question);
}

bool ProbeQuestions::waits() const {
  const std::lock_guard lock(mutex_);
  return !waiting_.empty();
}

std::optional<ProbeQuestion> ProbeQuestions::next() {
  const std::lock_guard lock(mutex_);
  if (waiting_.empty()) return std::nullopt;
  ProbeQuestion question = std::move(waiting_.front());
  waiting_.pop_front();
  return question;
}

void ProbeQuestions::answer(const ProbeQuestion& question, std::vector<planner::MeasuredIteration> measured) {
  const std::lock_guard lock(mutex_);
  open_.erase(question.configuration);
  if (measured.empty() || !asked_.contains(question.worker_uid)) return;
  answers_[question.worker_uid] = {question, std::move(measured)};
}

std::optional<ProbeAnswer> ProbeQuestions::take(const std::string& worker_uid) {
  const std::lock_guard lock(mutex_);
  auto found = answers_.extract(worker_uid);
  return found.empty() ? std::nullopt : std::optional(std::move(found.mapped()));
}

void ProbeQuestions::keep(const std::set<std::string>& worker_uids) {
  const std::lock_guard lock(mutex_);
  std::erase_if(asked_, [&](const std::string& uid) { return !worker_uids.contains(uid); });
  std::erase_if(answers_, [&](const auto& one) { return !worker_uids.contains(one.first); });
  std::erase_if(waiting_, [&](const ProbeQuestion& question) {
    const bool gone = !worker_uids.contains(question.worker_uid);
    if (gone) open_.erase(question.configuration);
    return gone;
  });
}

}  // namespace windlass::controller
