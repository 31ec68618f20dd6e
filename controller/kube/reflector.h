// Reflector: a local copy of the objects of one resource, kept up to date by list and watch, without metadata.managedFields.
//
// Poll-driven and single-threaded: step(now) does at most one list (which waits for the server) or drains what the watch has
// brought, and never sleeps; next_step_at() says when it wants to be called again at the latest (an app also calls it when the
// transport's on_activity fires). `now_s` is monotonic seconds, any origin. Trouble is retried with jittered exponential
// backoff and shows in last_error(); the copy meanwhile keeps its last state, and last_heard_s() says how old that may be.
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
  double watch_timeout_min_s = 300;  // a watch lasts a random time in between, so that many do not end together
  double watch_timeout_max_s = 600;
  double watch_grace_s = 30;  // heard nothing for timeout + grace: the connection is half-open
  // Heard nothing for this long: reconnect from the last version, which is cheap. A real server sends a bookmark a minute, so
  // that only a half-open connection is as quiet. Unset: watch_grace_s alone counts, and one may go unnoticed for minutes.
  std::optional<double> idle_limit_s = 180;
  double connect_timeout_s = 30;  // for the response's head of a watch
  double backoff_min_s = 0.8;
  double backoff_max_s = 30;
  double backoff_reset_s = 120;  // a watch that lived this long has earned a fresh backoff
  std::uint64_t seed = 1;        // of jitter and of watch lifetimes
};

// What a reflector of all objects of a resource needs to know; the rest stands at its default.
[[nodiscard]] ReflectorOptions options_of(const Resource& resource, std::uint64_t seed);

class Reflector {
 public:
  Reflector(KubeClient& client, ReflectorOptions options);
  ~Reflector();
  Reflector(const Reflector&) = delete;
  Reflector& operator=(const Reflector&) = delete;

  void step(double now_s);

  // What is held may lack what a late or half-open watch has not told: from here on synced() is false until a list has
  // completed. One that completed at this very moment will do.
  void list_anew(double now_s);

  // When step() should run at the latest; the past means at once.
  [[nodiscard]] double next_step_at() const { return next_step_at_; }

  // A list has completed, since list_anew() if that was called: objects() is a state that the server really had, then or later.
  [[nodiscard]] bool synced() const { return synced_; }

  // By "namespace/name" ("/name" for cluster-scoped ones). Pointers and references hold until the next step().
  [[nodiscard]] const std::map<std::string, nlohmann::json>& objects() const { return objects_; }
  [[nodiscard]] const nlohmann::json* find(const std::string& name_space, const std::string& name) const;

  // Grows with every change of objects().
  [[nodiscard]] std::uint64_t generation() const { return generation_; }

  [[nodiscard]] double last_sync_s() const { return last_sync_s_; }    // when the last list completed; -inf: never
  [[nodiscard]] double last_heard_s() const { return last_heard_s_; }  // when the server last spoke (list, event, bookmark)
  [[nodiscard]] const std::string& resource_version() const { return resource_version_; }
  [[nodiscard]] bool watching() const { return stream_ != nullptr; }
  [[nodiscard]] const std::optional<Error>& last_error() const { return last_error_; }  // of the last failure; reset by success

  // The object as our own write's answer has it, so that the next decision sees it before the watch does. Older than what is
  // held (or already deleted by the watch): ignored. Only objects that this reflector's selectors select may be given.
  void observe_write(const nlohmann::json& object);

  struct Counters {
    std::uint64_t lists = 0, watches = 0, events = 0, bookmarks = 0, gone = 0, malformed = 0, half_open = 0, failures = 0;
  };
  [[nodiscard]] const Counters& counters() const { return counters_; }

 private:
  void list(double now_s);
  void open_watch(double now_s);
  void drain(double now_s);
  bool take_line(const std::string& line, double now_s);  // false: the watch was given up
  void refused(double now_s, int status);                 // the watch's head was not 200 and its body has come
  void give_up_copy(double now_s, Error error, std::optional<double> retry_after_s = {});  // list again, after a while
  void back_off(double now_s, Error error, std::optional<double> retry_after_s = {});
  void close_watch();
  [[nodiscard]] double silence_limit_s() const;  // when the open watch counts as half-open unless something is heard

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
  std::string pending_;  // bytes after the last whole line
  double watch_opened_s_ = 0;
  double watch_heard_s_ = 0;  // when bytes last came
  double watch_ends_s_ = 0;   // when the server should end it
  bool watch_head_seen_ = false;
  bool watch_brought_something_ = false;
};

// "namespace/name" of an object.
std::string object_key(const nlohmann::json& object);

// Which state of which object this is: UID and resourceVersion. "" where it does not say, and nothing may be concluded then.
std::string version_key(const nlohmann::json& object);

}  // namespace windlass::kube
