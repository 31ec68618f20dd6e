// ReflectorSet: a local copy of the objects of one resource in all namespaces, by one Reflector, or in some, by one for each,
// so that a Role in each of them suffices.
//
// A namespace that the server keeps refusing to list (it does not exist, or has no Role for us) does not hold up the others:
// what was read of it before stays, and problem() names it. Where the server does not answer a list, the next one waits until
// that one is tried again, so that a step waits for one timeout at most. Single-threaded, as Reflector is.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include <nlohmann/json.hpp>

#include "controller/kube/reflector.h"

namespace windlass::kube {

class ReflectorSet {
 public:
  // `namespaces` take the place of options.name_space; empty: all.
  ReflectorSet(KubeClient& client, ReflectorOptions options, const std::set<std::string>& namespaces = {});

  void step(double now_s);
  void list_anew(double now_s);  // as Reflector::list_anew, of each

  // Each namespace has been listed, but for those that are refused; never where all are.
  [[nodiscard]] bool synced() const;
  // This one has been listed.
  [[nodiscard]] bool synced(const std::string& name_space) const;

  // What fails now, a line each; "" if nothing does.
  [[nodiscard]] std::string problem() const;

  [[nodiscard]] std::uint64_t generation() const;  // grows with every change of any object
  [[nodiscard]] std::uint64_t lists() const;       // begun so far

  // Calls see(key, object) for each, in the order of namespaces and then of the Reflector's keys.
  template <class See>
  void visit(See see) const {
    for (const auto& [name_space, member] : members_) {
      for (const auto& [key, object] : member.reflector.objects()) see(key, object);
    }
  }
  [[nodiscard]] const nlohmann::json* find(const std::string& name_space, const std::string& name) const;

  void observe_write(const nlohmann::json& object);  // as Reflector's

 private:
  static constexpr int kRefusalsToBelieve = 3;  // a server that has just started may refuse what its caches do not hold yet

  struct Member {
    Member(KubeClient& client, const ReflectorOptions& options) : reflector(client, options) {}
    Reflector reflector;
    int refusals = 0;  // in a row
  };
  [[nodiscard]] const Member* member_of(const std::string& name_space) const;

  std::map<std::string, Member> members_;  // by namespace; "": of all
  std::string unanswered_;                 // whose list was the last without an answer
  double wait_until_s_ = 0;                // no list before this
};

}  // namespace windlass::kube
