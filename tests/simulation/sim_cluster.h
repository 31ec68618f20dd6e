// SimCluster: nodes, scheduler, kubelets and the workers' processes of a simulated world, acting on the fake API server.
//
// It knows of a pod only what a kubelet would: node, probes, deletion and grace period. Gateways talk to the processes by
// address, as over HTTP: a process takes a call, refuses it (not there, full, stopping), or dies with it. Whatever goes wrong
// here is asked for by the chaos or drawn from the cluster's own streams when a process starts.
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

  // ---- towards the gateways

  [[nodiscard]] CallId next_call() { return ++last_call_; }
  enum class Taken { kYes, kConnect, kFull, kDraining };
  // `broken` is called when the process dies with the call; never after give_back().
  [[nodiscard]] Taken take(const std::string& address, CallId call, std::function<void()> broken);
  // The answer is complete, or the caller left.
  void give_back(CallId call);
  // When a call that should end now may end: later where the process hangs. nullopt: it is gone.
  [[nodiscard]] std::optional<double> free_at(CallId call) const;
  // What GET url answers; an Error where nobody listens.
  [[nodiscard]] Result<kube::HttpResponse> metrics_page(const std::string& url) const;

  // ---- what may be done to it

  void api_is_back();
  void stop_faults();
  bool api_down = false;                 // kubelets and scheduler reach the API server no more
  std::set<std::string> broken_images;   // services whose image cannot be pulled
  std::set<std::string> mute_addresses;  // whose /metrics cannot be read now

  // Somebody of those that serve, by the number drawn; "" where nobody serves. Answers with the pod's name.
  std::string crash_one(std::uint64_t draw, bool out_of_memory);
  std::string hang_one(std::uint64_t draw, double seconds);
  std::string mute_one(std::uint64_t draw, double seconds);
  // A node is gone for so long; `removed`: its object goes too.
  void lose_node(std::size_t index, double seconds, bool removed);
  [[nodiscard]] std::size_t nodes() const { return nodes_.size(); }
  // Somebody else's pod that takes `gpus` of a node for so long, where there is room. False: there is none.
  bool foreign_pod(std::size_t index, int gpus, double seconds);

  // ---- what others look at

  // Told before calls end with their process because the pod's deletion ran out of grace (`pod`: as it stands).
  std::function<void(const nlohmann::json& pod, std::size_t calls)> on_killed_by_deletion;
  [[nodiscard]] int calls_in(const std::string& uid) const;
  [[nodiscard]] long calls_broken() const { return calls_broken_; }

 private:
  enum class Phase { kPulling, kLoading, kServing, kBackingOff, kEnded };
  struct Node {
    std::string name, accelerator;
    int gpus = 0;
    bool up = true;
    int losses = 0;           // told apart, so that an old loss' end does not end a new one
    bool unreported = false;  // it came back while no API server was there to hear so
  };
  struct Process {
    std::string name, uid, ip, node, service;
    Phase phase = Phase::kPulling;
    double until_s = 0;  // the phase's end
    double pull_until_s = 0;
    double slow = 1;
    int crashes_left = 0;
    int restarts = 0;
    std::string last_end;
    int capacity = 1;
    bool stopping = false;
    double kill_at_s = 0;
    double hung_until_s = 0;
    bool changed = true;  // since the API server was last told
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
