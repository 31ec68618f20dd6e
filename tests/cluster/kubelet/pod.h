// Pod: one pod on the test kubelet's node, from Pending to gone.
//
// A state machine that the kubelet ticks on its one thread. It starts the containers as processes, reaps and restarts them with
// back-off, and takes probe results. On deletion it sends SIGTERM, waits for the grace period and kills. status() is the status
// to report to the API server; due_probes() lists the HTTP probes to send. It does no I/O except for processes and the pod's
// own folder.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tests/cluster/harness/process.h"
#include "tests/cluster/kubelet/container.h"

namespace windlass::testing {

struct PodOptions {
  std::string folder;  // this pod's folder on this machine
  std::string ip;
  std::string host_ip;
  std::map<std::string, std::string> program_by_image;
  double crash_backoff_s = 1;
  double crash_backoff_max_s = 10;
  double startup_probe_period_s =
      0.2;  // upper bound, so that tests do not wait two seconds for a container that has just started
  // Fetches the objects that volumes and variables refer to: kind is "ConfigMap", "PersistentVolumeClaim" or
  // "PersistentVolume".
  std::function<Result<nlohmann::json>(const std::string& kind, const std::string& name)> fetch;
};

class Pod {
 public:
  Pod(nlohmann::json object, PodOptions options);

  // Takes the newest version from the API server.
  void update(nlohmann::json object) { object_ = std::move(object); }
  // The object is gone from the API server (forced deletion); the processes still end.
  void forget() { forgotten_ = true; }

  // `now_s` is monotonic; `wall` is the same moment as RFC 3339.
  void tick(double now_s, const std::string& wall);

  struct ProbeCall {
    std::size_t container;
    int kind;  // index into Container::probes
    std::string url;
    double timeout_s;
  };
  [[nodiscard]] std::vector<ProbeCall> due_probes(double now_s) const;
  void take_probe(const ProbeCall& call, bool success, double now_s);

  // `wall`: the current time, for conditions that have just changed.
  [[nodiscard]] nlohmann::json status(const std::string& wall);
  // Deletion was requested and every process has ended.
  [[nodiscard]] bool ended() const { return ending_ && all_ended(); }
  [[nodiscard]] bool forgotten() const { return forgotten_; }

  [[nodiscard]] const nlohmann::json& object() const { return object_; }
  [[nodiscard]] const std::string& uid() const { return uid_; }
  [[nodiscard]] const std::string& ip() const { return options_.ip; }
  [[nodiscard]] std::string name_space() const { return object_["metadata"].value("namespace", ""); }
  [[nodiscard]] std::string name() const { return object_["metadata"].value("name", ""); }

 private:
  enum class State { kWaiting, kRunning, kTerminated };
  enum ProbeKind { kStartup = 0, kReadiness = 1, kLiveness = 2 };

  struct ProbeState {
    std::optional<Probe> probe;
    double next_at_s = 0;
    int successes = 0;
    int failures = 0;
  };

  struct Container {
    nlohmann::json spec;
    bool init = false;
    State state = State::kWaiting;
    std::string reason = "ContainerCreating";
    std::string message;
    std::unique_ptr<Process> process;
    int restarts = 0;
    int exit_status = 0;
    bool started = false;
    bool ready = false;
    std::string started_at;
    std::string finished_at;
    double next_start_s = 0;
    double backoff_s = 0;
    double kill_at_s = 0;  // after a failed liveness probe: when to send SIGKILL
    nlohmann::json last_state;
    ProbeState probes[3];
  };

  struct Condition {
    bool holds = false;
    std::string since;  // RFC 3339; the controller measures a worker's start time by it
  };

  [[nodiscard]] nlohmann::json condition(const char* type, bool holds, const char* reason, const std::string& wall);
  void start(Container& container, double now_s, const std::string& wall);
  void reap(Container& container, double now_s, const std::string& wall);
  void end(double now_s);
  Result<ContainerSurroundings> surroundings();
  Result<std::string> volume_folder(const nlohmann::json& volume);
  [[nodiscard]] bool all_ended() const;
  [[nodiscard]] double grace_s() const;
  [[nodiscard]] std::string phase() const;
  [[nodiscard]] bool initialised() const;
  [[nodiscard]] static nlohmann::json container_status(const Container& container);
  [[nodiscard]] bool restarts_after(int exit_status) const;

  nlohmann::json object_;
  PodOptions options_;
  std::string uid_;
  std::string started_at_;
  std::vector<Container> containers_;            // the init containers first
  std::map<std::string, Condition> conditions_;  // by type
  bool forgotten_ = false;
  bool ending_ = false;
  double kill_at_s_ = 0;
};

}  // namespace windlass::testing
