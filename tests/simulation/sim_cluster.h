// SimCluster: nodes, scheduler, kubelets and worker processes of a simulated world, on top of the fake API server.
//
// It knows only what a kubelet knows of a pod: node, probes, deletion and grace period. Gateways talk to the processes by
// address, as over HTTP: a process accepts a call, refuses it (absent, full, stopping), or dies with it. Every fault here is
// requested by Chaos or drawn from the cluster's own streams when a process starts.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "planner/base/result.h"
#include "planner/base/rng.h"
#include "tests/fakes/fake_api_server.h"
#include "tests/simulation/journal.h"
#include "tests/simulation/scenario.h"
#include "tests/simulation/timeline.h"

namespace windlass::simulation {

using CallId = std::uint64_t;

class SimCluster {
 public:
  static constexpr double kStepS = 0.5;

  SimCluster(Timeline& timeline, fakes::FakeApiServer& api, Journal& journal, const Scenario& scenario);

  void step();

  // ---- used by the gateways

  [[nodiscard]] CallId next_call() { return ++last_call_; }
  enum class Taken { kYes, kConnect, kFull, kDraining };
  // `broken` is called if the process dies during the call; never after give_back().
  [[nodiscard]] Taken take(const std::string& address, CallId call, std::function<void()> broken);
  // The response is complete, or the caller left.
  void give_back(CallId call);
  // When a call that should end now may end: later if the process hangs. nullopt: the process is gone.
  [[nodiscard]] std::optional<double> free_at(CallId call) const;
  // The response to GET url; an Error if nobody listens.
  [[nodiscard]] Result<kube::HttpResponse> metrics_page(const std::string& url) const;

  // ---- faults

  void api_is_back();
  void stop_faults();
  bool api_down = false;                 // kubelets and scheduler cannot reach the API server
  std::set<std::string> broken_images;   // services whose image cannot be pulled
  std::set<std::string> mute_addresses;  // workers whose /metrics cannot be read now

  // Crashes one of the serving workers, chosen by `draw`. Returns the pod's name; "" if nobody serves.
  std::string crash_one(std::uint64_t draw, bool out_of_memory);
  std::string hang_one(std::uint64_t draw, double seconds);
  std::string mute_one(std::uint64_t draw, double seconds);
  // Takes a node away for `seconds`; `removed`: deletes its object too.
  void lose_node(std::size_t index, double seconds, bool removed);
  [[nodiscard]] std::size_t nodes() const { return nodes_.size(); }
  // Another user's pod takes `gpus` of a node for `seconds`. False if they do not fit.
  bool foreign_pod(std::size_t index, int gpus, double seconds);

  // ---- observation

  // Called before calls end with their process because the pod's grace period ran out (`pod`: the stored object).
  std::function<void(const nlohmann::json& pod, std::size_t calls)> on_killed_by_deletion;
  [[nodiscard]] int calls_in(const std::string& uid) const;
  [[nodiscard]] long calls_broken() const { return calls_broken_; }

 private:
  enum class Phase { kPulling, kLoading, kServing, kBackingOff, kEnded };
  struct Node {
    std::string name, accelerator;
    int gpus = 0;
    bool up = true;
    int losses = 0;           // counts losses, so that the end of an old loss does not end a new one
    bool unreported = false;  // it came back while the API server was down
  };
  struct Process {
    std::string name, uid, ip, node, service;
    Phase phase = Phase::kPulling;
    double until_s = 0;  // end of the phase
    double pull_until_s = 0;
    double slow = 1;
    int crashes_left = 0;
    int restarts = 0;
    std::string last_end;
    int capacity = 1;
    bool stopping = false;
    double kill_at_s = 0;
    double hung_until_s = 0;
    bool changed = true;  // since the last report to the API server
    std::map<CallId, std::function<void()>> calls;
  };
  struct PodView {
    std::string name, uid, node, phase, service, accelerator;
    bool deleting = false, worker = false, told_unschedulable = false;
    double grace_s = 0;
    int gpus = 0;
    int capacity = 1;
  };

  void look();
  void schedule();
  void run_pods();
  void advance(Process& process);
  void start(Process& process);
  void die(Process& process, const std::string& why);
  void break_calls(Process& process);
  void report(Process& process);
  void mark_node(const Node& node, bool ready);
  [[nodiscard]] Node* node_of(const std::string& name);
  [[nodiscard]] const Process* at_address(const std::string& url) const;
  [[nodiscard]] Process* serving(std::uint64_t draw);

  Timeline& timeline_;
  fakes::FakeApiServer& api_;
  Journal& journal_;
  const Scenario& scenario_;
  Rng starts_;  // load times
  Rng troubles_;
  bool faults_on_ = true;
  std::vector<Node> nodes_;
  std::map<std::string, Process> processes_;  // by pod UID
  std::map<std::string, std::string> by_ip_;  // -> UID
  std::map<CallId, std::string> calls_;       // -> UID
  std::vector<PodView> pods_;
  std::uint64_t seen_version_ = 0;
  bool fits_changed_ = true;
  int next_ip_ = 1;
  int next_foreign_ = 1;
  long calls_broken_ = 0;
  CallId last_call_ = 0;
};

}  // namespace windlass::simulation
