// EventRecorder writes Kubernetes Events (core/v1), which `kubectl describe` shows.
//
// A repeated (object, type, reason, message) within the window raises the count of the existing Event. One object may create
// only a few new Events per minute, so a runaway loop cannot flood the cluster. Best effort: a failure is returned and not
// retried. Single-threaded; memory is bounded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include <nlohmann/json.hpp>

#include "controller/kube/kube_client.h"

namespace windlass::kube {

enum class EventType { kNormal, kWarning };

struct EventOptions {
  std::string component = "windlass-controller";  // reportingComponent and source.component
  std::string instance = {};                      // the process: the pod's name
  double window_s = 600;                          // repeats within this time are counted, not written as new Events
  double repeat_every_s = 30;                     // the count is written at most this often
  double burst = 25;                              // new Events that one object may create in a burst
  double refill_per_s = 1.0 / 60;                 // rate at which further ones are allowed
  std::size_t max_remembered = 4096;
};

class EventRecorder {
 public:
  EventRecorder(KubeClient& client, EventOptions options);

  // `object` is any API object; its apiVersion, kind and metadata are read. `reason` is CamelCase. `wall_s`: Unix seconds.
  // Events of cluster-scoped objects go to namespace "default". Also ok if the limit held the event back (see dropped()).
  Result<void> record(const nlohmann::json& object, EventType type, const std::string& reason, const std::string& message,
                      double wall_s);

  [[nodiscard]] std::uint64_t dropped() const { return dropped_; }

 private:
  struct Known {
    std::string name_space, name;
    std::int64_t count = 0;
    double last_s = 0;     // when it last occurred
    double written_s = 0;  // when the count was last written
  };
  struct Bucket {
    double tokens = 0, at_s = 0;
  };
  void forget_old(double wall_s);

  KubeClient& client_;
  EventOptions options_;
  std::map<std::string, Known> known_;     // by object, type, reason, message
  std::map<std::string, Bucket> buckets_;  // by object
  std::uint64_t dropped_ = 0;
  std::uint64_t sequence_ = 0;
};

// RFC 3339 with seconds ("2026-05-01T10:00:00Z") or microseconds (metav1.MicroTime).
std::string rfc3339(double unix_s);
std::string rfc3339_micro(double unix_s);

}  // namespace windlass::kube
