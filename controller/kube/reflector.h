// Reflector keeps a local copy of one resource's objects and updates it by list and watch. The copy leaves out
// metadata.managedFields, and what `trim` drops.
//
// Poll-driven and single-threaded. step(now) does at most one list, which waits for the server, or reads what the watch has
// delivered. It never sleeps; next_step_at() returns the latest time for the next call. An app also calls it when the
// transport's on_activity fires. `now_s` is monotonic seconds with any origin. Failures are retried with jittered exponential
// backoff and show in last_error(). Meanwhile the copy keeps its last state; last_heard_s() says how old that may be.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "controller/kube/kube_client.h"
#include "planner/base/rng.h"

namespace windlass::kube {

struct ReflectorOptions {
  Resource resource = {};
  std::string name_space = {};  // empty: all
  std::string label_selector = {};
  std::string field_selector = {};
  int page_size = 500;
  std::function<void(nlohmann::json&)> trim = {};  // REQUIRES: keeps name, namespace, uid and resourceVersion
  double watch_timeout_min_s = 300;  // a watch lasts a random time between these two, so that watches do not all end together
  double watch_timeout_max_s = 600;
  double watch_grace_s = 30;  // no data for timeout + grace: the connection is half-open
  // After this much silence, reconnect from the last version, which is cheap. A real server sends a bookmark every minute, so
  // only a half-open connection is this quiet. Unset: only watch_grace_s applies, and a half-open connection may go unnoticed
  // for minutes.
  std::optional<double> idle_limit_s = 180;
  double connect_timeout_s = 30;  // for the response head of a watch
  double backoff_min_s = 0.8;
  double backoff_max_s = 30;
  double backoff_reset_s = 120;  // a watch that lived this long resets the backoff
  std::uint64_t seed = 1;        // of jitter and watch lifetimes
};

// Options for all objects of a resource; everything else has its default.
[[nodiscard]] ReflectorOptions options_of(const Resource& resource, std::uint64_t seed);

class Reflector {
 public:
  Reflector(KubeClient& client, ReflectorOptions options);
  ~Reflector();
  Reflector(const Reflector&) = delete;
  Reflector& operator=(const Reflector&) = delete;

  void step(double now_s);

  // Lists again, because the copy may lack events that a late or half-open watch has not delivered. synced() is false until
  // that list completes. Does nothing if a list completed at now_s or later.
  void list_anew(double now_s);

  // Latest time for the next step(); a time in the past means now.
  [[nodiscard]] double next_step_at() const { return next_step_at_; }

  // Whether a list has completed, since list_anew() if that was called. Then objects() is a state that the server had at that
  // time or later.
  [[nodiscard]] bool synced() const { return synced_; }

  // By "namespace/name" ("/name" for cluster-scoped objects). Pointers and references are valid until the next step().
  [[nodiscard]] const std::map<std::string, nlohmann::json>& objects() const { return objects_; }
  [[nodiscard]] const nlohmann::json* find(const std::string& name_space, const std::string& name) const;

  // Increases with every change of objects().
  [[nodiscard]] std::uint64_t generation() const { return generation_; }

  [[nodiscard]] double last_sync_s() const { return last_sync_s_; }  // time of the last completed list; -inf: never
  // time of the server's last message (list, event, bookmark)
  [[nodiscard]] double last_heard_s() const { return last_heard_s_; }
  [[nodiscard]] const std::string& resource_version() const { return resource_version_; }
  [[nodiscard]] bool watching() const { return stream_ != nullptr; }
  [[nodiscard]] const std::optional<Error>& last_error() const { return last_error_; }  // the last failure; reset by success

  // Stores the object from the response to our own write, so that the next decision sees it before the watch delivers it.
  // Ignored if older than the stored state or already deleted. REQUIRES: this reflector's selectors select the object.
  void observe_write(const nlohmann::json& object);

  struct Counters {
    std::uint64_t lists = 0, watches = 0, events = 0, bookmarks = 0, gone = 0, malformed = 0, half_open = 0, failures = 0;
  };
  [[nodiscard]] const Counters& counters() const { return counters_; }

 private:
  void list(double now_s);
  void trim(nlohmann::json& object) const;  // before it is stored
  void open_watch(double now_s);
  void drain(double now_s);
  bool take_line(const std::string& line, double now_s);  // false: the watch was given up
  void refused(double now_s, int status);                 // the watch's status was not 200, and its body has arrived
  void give_up_copy(double now_s, Error error, std::optional<double> retry_after_s = {});  // list again, after a back-off
  void back_off(double now_s, Error error, std::optional<double> retry_after_s = {});
  void close_watch();
  [[nodiscard]] double silence_limit_s() const;  // when the open watch counts as half-open without further data

  KubeClient& client_;
  ReflectorOptions options_;
  Rng random_;

  std::map<std::string, nlohmann::json> objects_;
  std::string resource_version_;
  std::uint64_t generation_ = 0;
  bool synced_ = false;
  bool must_list_ = true;
  double last_sync_s_;
  double last_heard_s_;
  double next_step_at_;
  double backoff_s_ = 0;
  std::optional<Error> last_error_;
  Counters counters_;

  std::unique_ptr<HttpStream> stream_;
  std::string pending_;  // bytes after the last complete line
  double watch_opened_s_ = 0;
  double watch_heard_s_ = 0;  // when bytes last arrived
  double watch_ends_s_ = 0;   // when the server should end it
  bool watch_head_seen_ = false;
  bool watch_brought_something_ = false;
};

// "namespace/name" of an object.
std::string object_key(const nlohmann::json& object);

// Identifies one state of one object: UID and resourceVersion. "" if either is missing; then nothing may be concluded.
std::string version_key(const nlohmann::json& object);

}  // namespace windlass::kube
