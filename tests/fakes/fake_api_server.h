// FakeApiServer: a Kubernetes API server in memory, behind HttpTransport, so that the real client code runs against it.
//
// It speaks the wire protocol (method, URL, body) of the resources it knows: list with paging, watch with bookmarks and
// compacted history (410), create, replace, patch (merge, JSON, strategic by merge keys), server-side apply with field owners,
// status subresources, finalizers, grace periods, preconditions and owner-reference garbage collection. Time is virtual: it
// advances only through set_now() and simulated latency. Deterministic for one seed and one order of calls; single-threaded.
//
//   FakeApiServer api({.seed = 7});
//   auto transport = api.connect("controller-a");          // one client's connection, with its own faults
//   kube::KubeClient client(*transport, api.url(), *credentials);
//   api.seed_object(R"({"apiVersion":"v1","kind":"Node","metadata":{"name":"n1"}})"_json);
//   api.kubelet_set("default", "chat-0", {.phase = "Running", .ready = true, .pod_ip = "127.0.0.5"});
//   transport->faults.cut_watch = 0.05;
//
// A test changes the state directly with seed_object, object, objects, edit and the like: these never fail at random and skip
// the hooks. Streams refer to their server and must be destroyed before it.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "controller/kube/http_transport.h"
#include "controller/kube/resource.h"
#include "planner/base/rng.h"
#include "tests/fakes/field_owners.h"

namespace windlass::fakes {

struct FakeApiOptions {
  std::uint64_t seed = 1;
  double wall_epoch_s = 1767225600;  // Unix seconds at now = 0 (2026-01-01), for creationTimestamp and similar fields
  double bookmark_every_s = 60;      // interval of bookmarks on each watch that asked for them
  std::size_t history = 1000;        // watch events kept; older versions are Gone
  std::string token = {};            // bearer token that every request must carry; empty: none
};

// Probabilities (per request or per poll) of faults on one client's connection. All zero: a perfect network.
struct FaultRates {
  double drop_before = 0;      // the request never arrives: transport error, nothing applied
  double drop_after = 0;       // the request is applied, the response is lost: transport error
  double error_429 = 0;        // refused with Retry-After, nothing applied
  int retry_after_s = 1;       // of a 429 response
  double error_500 = 0;        // refused, nothing applied
  double error_503 = 0;        // refused, nothing applied
  double cut_watch = 0;        // per poll of a stream: the connection breaks (Error)
  double end_watch = 0;        // per poll: the server ends the watch cleanly
  double garble_watch = 0;     // per event: the line arrives corrupted
  double duplicate_event = 0;  // per event: it arrives twice
  double late_watch = 0;       // per opened watch: its events arrive up to late_watch_s late, in order
  double late_watch_s = 5;
  double half_open_watch = 0;  // per opened watch: at some point events stop, but the stream never ends
  double refuse_watch = 0;     // per opened watch: transport error
  double stale_list = 0;       // per list: returns an older state (with its own resourceVersion), as an API server's cache may
  double gone_watch = 0;       // per opened watch: 410, whatever the version
  double split_bytes = 0;      // per poll: only some of the available bytes arrive
  double latency_s = 0;        // virtual: each request calls FakeApiServer::on_elapse with a time uniform in [0, 2 * latency_s]
};

class FakeApiServer;

// One client's connection to the server.
class FakeConnection final : public kube::HttpTransport {
 public:
  FaultRates faults;
  bool partitioned =
      false;  // nothing gets through (with latency, each try costs its timeout); open streams stay silent forever
  std::function<bool(const kube::HttpRequest&)> drop_request;  // true: lost before it arrives

  // Routes other addresses than the API server's (a worker's /metrics, a gateway). The first prefix that matches the URL
  // answers. The faults drop_before and latency apply here as well.
  void route(std::string url_prefix, std::function<Result<kube::HttpResponse>(const kube::HttpRequest&)> handler);
  void unroute(const std::string& url_prefix);

  [[nodiscard]] Result<kube::HttpResponse> send(const kube::HttpRequest& request) override;
  [[nodiscard]] Result<std::unique_ptr<kube::HttpStream>> stream(const kube::HttpRequest& request) override;

  struct Sent {
    std::string method, url, body;
    int status = 0;  // 0: a transport error
    double at_s = 0;
  };
  [[nodiscard]] const std::vector<Sent>& log() const { return log_; }  // requests in order, including streams
  void clear_log() { log_.clear(); }
  [[nodiscard]] int open_streams() const;
  // Breaks every open stream now. With `half_open` they fall silent instead.
  void cut_streams(bool half_open = false);

 private:
  friend class FakeApiServer;
  friend class FakeStream;
  FakeConnection(FakeApiServer& server, std::string name, std::uint64_t seed);

 public:
  ~FakeConnection() override;
  FakeConnection(const FakeConnection&) = delete;
  FakeConnection& operator=(const FakeConnection&) = delete;

 private:
  bool chance(double probability);
  Result<kube::HttpResponse> exchange(const kube::HttpRequest& request);
  void note(const kube::HttpRequest& request, int status);

  FakeApiServer& server_;
  std::string name_;
  Rng random_;
  std::vector<std::pair<std::string, std::function<Result<kube::HttpResponse>(const kube::HttpRequest&)>>> routes_;
  std::vector<Sent> log_;
  std::set<class FakeStream*> streams_;
};

// A pod's state as reported by its kubelet.
struct PodReport {
  std::string phase = "Running";  // Pending | Running | Succeeded | Failed
  bool ready = false;
  std::string pod_ip = {};  // empty: unchanged
  std::string node = {};    // empty: unchanged
  int restarts = 0;
  std::string waiting_reason = {};  // why containers wait: "CrashLoopBackOff", "ImagePullBackOff"
  std::string waiting_message = {};
  std::string last_end_reason = {};   // why the container's previous run ended: "OOMKilled", "Error"; empty: no previous run
  std::string reason = {};            // of the whole pod: "Evicted", "NodeLost"
  std::optional<int> exit_code = {};  // of a terminated container (Succeeded, Failed)
  std::string unschedulable = {};     // message of PodScheduled=False/Unschedulable; empty: scheduled once `node` is known
};

// An error that the server returns as a Status.
struct Refusal {
  int code = 403;
  std::string reason = "Forbidden";
  std::string message = {};
  std::vector<std::pair<std::string, std::string>> causes = {};  // (field, message)
  int retry_after_s = 1;                                         // the header of a 429 or 503
};

// The error that a ResourceQuota causes ("... is forbidden: exceeded quota: ...").
[[nodiscard]] Refusal exceeded_quota(const std::string& detail);

struct WriteAttempt {
  std::string client;  // the connection's name
  std::string verb;    // create | update | patch | apply | delete
  kube::Resource resource;
  std::string subresource;
  nlohmann::json object;   // as it would be stored; for a delete: as it is stored now
  nlohmann::json before;   // null for a create
  bool versioned = false;  // it named the resourceVersion it was based on: if it succeeded, nobody else wrote in between
};

class FakeApiServer {
 public:
  explicit FakeApiServer(FakeApiOptions options = {});
  ~FakeApiServer();
  FakeApiServer(const FakeApiServer&) = delete;
  FakeApiServer& operator=(const FakeApiServer&) = delete;

  [[nodiscard]] std::string url() const { return "http://api.fake:6443"; }
  [[nodiscard]] std::unique_ptr<FakeConnection> connect(std::string name);

  // --- time
  [[nodiscard]] double now() const { return now_; }
  void set_now(double now_s);
  [[nodiscard]] double wall_now() const { return options_.wall_epoch_s + now_; }
  std::function<void(double)> on_elapse;  // called for latency; by default advances now() by that many seconds

  // --- the state, changed directly by the test
  // Every resource of controller/kube/resource.h is known from the start. `has_status`: status is a subresource.
  void add_resource(const kube::Resource& resource, bool has_status);
  // Creates or replaces the object with this apiVersion, kind and name; keeps a given status. Returns the stored object.
  nlohmann::json seed_object(nlohmann::json object);
  [[nodiscard]] std::optional<nlohmann::json> object(const kube::Resource& resource, const std::string& name_space,
                                                     const std::string& name) const;
  [[nodiscard]] std::vector<nlohmann::json> objects(const kube::Resource& resource, const std::string& name_space = "",
                                                    const std::string& label_selector = "") const;
  [[nodiscard]] std::vector<nlohmann::json> pods(const std::string& name_space = "",
                                                 const std::string& label_selector = "") const {
    return objects(kube::resources::kPods, name_space, label_selector);
  }
  // Calls back with each object in place, ordered by (namespace, name). The callback must not change the objects.
  void visit(const kube::Resource& resource, const std::function<void(const nlohmann::json&)>& see) const;
  // The stored object, valid until the next change; nullptr if it does not exist.
  [[nodiscard]] const nlohmann::json* peek(const kube::Resource& resource, const std::string& name_space,
                                           const std::string& name) const;
  // Changes any field in place, status included; false if the object does not exist.
  bool edit(const kube::Resource& resource, const std::string& name_space, const std::string& name,
            const std::function<void(nlohmann::json&)>& change);
  // Deletes as `kubectl delete` does: finalizers and the grace period apply unless `force`. False if the object does not exist.
  bool delete_object(const kube::Resource& resource, const std::string& name_space, const std::string& name,
                     bool force = false);
  [[nodiscard]] std::uint64_t version() const { return version_; }  // the newest resourceVersion
  [[nodiscard]] std::size_t writes() const { return writes_; }      // changes made through connections

  // --- as the kubelet
  bool kubelet_set(const std::string& name_space, const std::string& name, const PodReport& report);
  // Confirms that a terminating pod has ended; the object goes once no finalizer holds it. False if there is no such pod or it
  // is not terminating.
  bool kubelet_finish_deletion(const std::string& name_space, const std::string& name);
  // Pods with a deletionTimestamp whose end the kubelet has not confirmed.
  [[nodiscard]] std::vector<nlohmann::json> terminating_pods() const;
  // Binds pods without a node to `node`, if the test's predicate says that they fit. Returns the number bound.
  int schedule_pending(const std::string& node, const std::function<bool(const nlohmann::json&)>& fits = {});

  // --- as the controller manager
  // One pass of the garbage collector: deletes dependents whose owners are gone. Returns the number of deletions started.
  int collect_garbage();

  // --- hooks and history
  std::function<std::optional<Refusal>(const WriteAttempt&)>
      admit;                                          // called before each write through a connection: quotas, validation
  std::function<void(const WriteAttempt&)> on_write;  // called after each write through a connection
  void compact();                                     // drops the history: every watch from an older version gets 410
  struct Change {
    std::uint64_t version = 0;
    std::string type;  // ADDED | MODIFIED | DELETED
    kube::Resource resource;
    std::string name_space, name;
    std::shared_ptr<const nlohmann::json> object, before;
    double at_s = 0;
  };

 private:
  friend class FakeConnection;
  friend class FakeStream;
  struct Kind {
    kube::Resource resource;
    bool has_status = false;
    bool has_generation = false;
  };
  using Key = std::pair<std::string, std::string>;  // namespace, name
  using Shared = std::shared_ptr<const nlohmann::json>;
  struct Stored {
    Shared object;
    FieldOwners owners;  // for server-side apply
  };
  struct Route;  // a parsed URL
  struct Page;   // the rest of a paged list
  struct Write;  // one mutating request in progress

  std::optional<Route> parse(const std::string& url) const;
  kube::HttpResponse handle(const std::string& client, const kube::HttpRequest& request, bool stale);
  kube::HttpResponse handle_list(const Route& route, bool stale);
  kube::HttpResponse handle_create(Write& write);
  kube::HttpResponse handle_binding(Write& write);
  kube::HttpResponse handle_update(Write& write);
  kube::HttpResponse handle_patch(Write& write);
  kube::HttpResponse handle_apply(Write& write);
  kube::HttpResponse handle_delete(Write& write);
  // Checks the rules for changing an existing object, then stores it.
  kube::HttpResponse replace(Write& write, nlohmann::json next, std::optional<FieldOwners> owners);
  kube::HttpResponse insert(Write& write, nlohmann::json object, std::optional<FieldOwners> owners);
  std::optional<kube::HttpResponse> refused(Write& write, const std::string& verb, const nlohmann::json& next);
  void applied(Write& write, const std::string& verb, const nlohmann::json& next, const nlohmann::json& before = {});

  // Stores `next` and sets its identity, version and generation.
  Shared store(const Kind& kind, const Key& key, nlohmann::json next);
  void erase(const Kind& kind, const Key& key);
  void begin_deletion(const Kind& kind, const Key& key, std::optional<std::int64_t> grace_s, const std::string& propagation);
  void finish_if_free(const Kind& kind, const Key& key);
  void remember(Change change);
  [[nodiscard]] const Kind* kind_of(const nlohmann::json& object) const;
  [[nodiscard]] const Kind* kind_at(const kube::Resource& resource) const;
  [[nodiscard]] const Stored* find(const kube::Resource& resource, const Key& key) const;
  [[nodiscard]] std::map<Key, Shared> state_at(const Kind& kind, std::uint64_t version) const;

  FakeApiOptions options_;
  Rng random_;
  double now_ = 0;
  std::uint64_t version_ = 1;
  std::uint64_t uids_ = 0;
  std::size_t writes_ = 0;
  std::uint64_t compacted_ = 0;  // versions up to this one are dropped
  std::vector<Kind> kinds_;
  std::map<std::string, std::map<Key, Stored>> objects_;  // by "group/plural"
  std::deque<Change> history_;
  std::map<std::string, std::shared_ptr<Page>> pages_;
  std::uint64_t page_tokens_ = 0;
};

}  // namespace windlass::fakes
