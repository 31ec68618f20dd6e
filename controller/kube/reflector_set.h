// ReflectorSet keeps a local copy of one resource's objects, in all namespaces or in some. For all namespaces it uses one
// Reflector. For some namespaces it uses one Reflector each, so that a Role in each namespace is enough.
//
// If the server keeps refusing to list a namespace (it does not exist, or we have no Role there), the other namespaces
// continue, the objects read before stay, and problem() names the namespace. If the server does not answer a list at all, no
// other list starts until that one has been retried. So a step waits for at most one timeout. Single-threaded, like Reflector.
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
  // `namespaces` replaces options.name_space; empty: all.
  ReflectorSet(KubeClient& client, ReflectorOptions options, const std::set<std::string>& namespaces = {});

  void step(double now_s);
  void list_anew(double now_s);  // calls Reflector::list_anew on each

  // Whether each namespace has been listed, except the refused ones; false if all are refused.
  [[nodiscard]] bool synced() const;
  // Whether this namespace has been listed.
  [[nodiscard]] bool synced(const std::string& name_space) const;

  // Current failures, one per line; "" if there are none.
  [[nodiscard]] std::string problem() const;

  [[nodiscard]] std::uint64_t generation() const;  // grows with every change of any object
  [[nodiscard]] std::uint64_t lists() const;       // started so far

  // Calls see(key, object) for each object, ordered by namespace, then by key.
  template <class See>
  void visit(See see) const {
    for (const auto& [name_space, member] : members_) {
      for (const auto& [key, object] : member.reflector.objects()) see(key, object);
    }
  }
  [[nodiscard]] const nlohmann::json* find(const std::string& name_space, const std::string& name) const;

  void observe_write(const nlohmann::json& object);  // see Reflector::observe_write

 private:
  // a server that has just started may refuse lists that its caches cannot serve yet
  static constexpr int kRefusalsToBelieve = 3;

  struct Member {
    Member(KubeClient& client, const ReflectorOptions& options) : reflector(client, options) {}
    Reflector reflector;
    int refusals = 0;  // in a row
  };
  [[nodiscard]] const Member* member_of(const std::string& name_space) const;

  std::map<std::string, Member> members_;  // by namespace; "": of all
  std::string unanswered_;                 // namespace whose list last got no answer
  double wait_until_s_ = 0;                // start no list before this; monotonic
};

}  // namespace windlass::kube
