// See reflector_set.h.
#include "controller/kube/reflector_set.h"

#include <fmt/format.h>

#include "controller/kube/json_path.h"

namespace windlass::kube {

using nlohmann::json;

ReflectorSet::ReflectorSet(KubeClient& client, ReflectorOptions options, const std::set<std::string>& namespaces) {
  const auto add = [&](const std::string& name_space) {
    options.name_space = name_space;
    members_.try_emplace(name_space, client, options);
  };
  if (namespaces.empty()) add("");
  for (const std::string& name_space : namespaces) add(name_space);
}

const ReflectorSet::Member* ReflectorSet::member_of(const std::string& name_space) const {
  auto found = members_.find("");
  if (found == members_.end()) found = members_.find(name_space);
  return found == members_.end() ? nullptr : &found->second;
}

void ReflectorSet::step(double now_s) {
  // Start after the member whose list last got no answer, so that a member that never gets one does not block the others.
  auto next = members_.upper_bound(unanswered_);
  for (std::size_t i = 0; i < members_.size(); ++i, ++next) {
    if (next == members_.end()) next = members_.begin();
    auto& [reflector, refusals] = next->second;
    if (!reflector.watching() && now_s < wait_until_s_) continue;
    const std::uint64_t lists = reflector.counters().lists;
    reflector.step(now_s);
    if (reflector.counters().lists == lists) continue;
    const auto failed = [&](ErrorCode code) { return reflector.last_error() && reflector.last_error()->code == code; };
    refusals = failed(ErrorCode::kPermissionDenied) ? refusals + 1 : 0;
    if (failed(ErrorCode::kUnavailable) || failed(ErrorCode::kDeadlineExceeded)) {
      unanswered_ = next->first;
      wait_until_s_ = reflector.next_step_at();
    }
  }
}

void ReflectorSet::list_anew(double now_s) {
  for (auto& [name_space, member] : members_) member.reflector.list_anew(now_s);
}

bool ReflectorSet::synced() const {
  bool any = false;
  for (const auto& [name_space, member] : members_) {
    if (!member.reflector.synced() && member.refusals < kRefusalsToBelieve) return false;
    any = any || member.reflector.synced();
  }
  return any;
}

bool ReflectorSet::synced(const std::string& name_space) const {
  const Member* member = member_of(name_space);
  return member != nullptr && member->reflector.synced();
}

std::string ReflectorSet::problem() const {
  std::string all;
  for (const auto& [name_space, member] : members_) {
    const auto& error = member.reflector.last_error();
    if (!error) continue;
    const bool refused = !name_space.empty() && error->code == ErrorCode::kPermissionDenied;
    all += (all.empty() ? "" : "\n") +
           (refused ? fmt::format("namespace {}: must exist and have a Role and RoleBinding of the controller (got '{}')",
                                  name_space, error->message)
                    : error->message);
  }
  return all;
}

std::uint64_t ReflectorSet::generation() const {
  std::uint64_t sum = 0;
  for (const auto& [name_space, member] : members_) sum += member.reflector.generation();
  return sum;
}

std::uint64_t ReflectorSet::lists() const {
  std::uint64_t sum = 0;
  for (const auto& [name_space, member] : members_) sum += member.reflector.counters().lists;
  return sum;
}

const json* ReflectorSet::find(const std::string& name_space, const std::string& name) const {
  const Member* member = member_of(name_space);
  return member == nullptr ? nullptr : member->reflector.find(name_space, name);
}

void ReflectorSet::observe_write(const json& object) {
  const std::string written_in = text_at(object, {"metadata", "namespace"});
  for (auto& [name_space, member] : members_) {
    if (name_space.empty() || name_space == written_in) member.reflector.observe_write(object);
  }
}

}  // namespace windlass::kube
