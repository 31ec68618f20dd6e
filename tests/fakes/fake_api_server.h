// FakeApiServer: a Kubernetes API server in memory, behind HttpTransport, so that the real client code runs against it.
//
// It speaks the wire protocol (method, URL, body) of the resources it knows: list with paging, watch with bookmarks and
// compacted history (410), create, replace, patch (merge, JSON, strategic by merge keys), server-side apply with field owners,
// status subresources, finalizers, grace periods, preconditions and owner-reference garbage collection. Time is virtual:
// nothing moves but by set_now() and by the calls made. Deterministic for one seed and one order of calls; single-threaded.
//
//   FakeApiServer api({.seed = 7});
//   auto transport = api.connect("controller-a");          // one client's wire, with faults of its own
//   kube::KubeClient client(*transport, api.url(), *credentials);
//   api.seed_object(R"({"apiVersion":"v1","kind":"Node","metadata":{"name":"n1"}})"_json);
//   api.kubelet_set("default", "chat-0", {.phase = "Running", .ready = true, .pod_ip = "127.0.0.5"});
//   transport->faults.cut_watch = 0.05;
//
// Methods without "faults" in their way (seed_object, object, objects, edit, ...) are the test's own hand: they never fail by
// chance and bypass hooks. Streams refer to their server and must be destroyed before it.
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
  double wall_epoch_s = 1767225600;  // Unix seconds at now = 0 (2026-01-01), for creationTimestamp and the like
  double bookmark_every_s = 60;      // a bookmark on each watch that asked for them
  std::size_t history = 1000;        // watch events kept; older versions are Gone
  std::string token = {};            // a bearer token that every request must carry; empty: none
};

// How often (probability per request or per poll) things go wrong on one client's wire. All zero: a perfect network.
struct FaultRates {
  double drop_before = 0;      // the request never arrives: transport error, nothing applied
  double drop_after = 0;       // the request is applied, the answer is lost: transport error
  double error_429 = 0;        // refused with Retry-After, nothing applied
  int retry_after_s = 1;       // of a 429
  double error_500 = 0;        // refused, nothing applied
  double error_503 = 0;        // refused, nothing applied
  double cut_watch = 0;        // per poll of a stream: the connection breaks (Error)
  double end_watch = 0;        // per poll: the server ends the watch cleanly
  double garble_watch = 0;     // per event: the line arrives broken
  double duplicate_event = 0;  // per event: it comes twice
  double late_watch = 0;       // per opened watch: its events come up to late_watch_s after they happened, in their order
  double late_watch_s = 5;
  double half_open_watch = 0;  // per opened watch: from some moment on nothing more arrives and no end is seen
  double refuse_watch = 0;     // per opened watch: transport error
  double stale_list =
      0;  // per list: an older state of the server (its own older resourceVersion), as an API server's cache gives
  double gone_watch = 0;   // per opened watch: 410, whatever the version
  double split_bytes = 0;  // per poll: only a part of the bytes that are ready arrives
  double latency_s = 0;    // virtual: each request calls FakeApiServer::on_elapse with a time uniform in [0, 2 * latency_s]
};

class FakeApiServer;

// One client's wire to the server.
class FakeConnection final : public kube::HttpTransport {
 public:
  FaultRates faults;
  bool partitioned =
      false;  // nothing passes (each try costs its timeout when there is latency); open streams stay silent for good
  std::function<bool(const kube::HttpRequest&)> drop_request;  // true: lost before it arrives

  // Also for other addresses than the API server's: the first whose prefix fits the URL answers (a worker's /metrics, a
  // gateway). Faults' drop_before and latency apply to them as well.
  void route(std::string url_prefix, std::function<Result<kube::HttpResponse>(const kube::HttpRequest&)> handler);
  void unroute(const std::string& url_prefix);

  [[nodiscard]] Result<kube::HttpResponse> send(const kube::HttpRequest& request) override;
  [[nodiscard]] std::vector<Result<kube::HttpResponse>> send_all(const std::vector<kube::HttpRequest>& requests) override;
  [[nodiscard]] Result<std::unique_ptr<kube::HttpStream>> stream(const kube::HttpRequest& request) override;

  struct Sent {
    std::string method, url, body;
    int status = 0;  // 0: a transport error
    double at_s = 0;
  };
  [[nodiscard]] const std::vector<Sent>& log() const { return log_; }  // requests in order, streams too
  void clear_log() { log_.clear(); }
  [[nodiscard]] int open_streams() const;
  // Breaks every open stream now; `half_open`: they fall silent instead.
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

// What a kubelet reports of a pod.
struct PodReport {
  std::string phase = "Running";  // Pending | Running | Succeeded | Failed
  bool ready = false;
  std::string pod_ip = {};  // empty: kept as it is
  std::string node = {};    // empty: kept as it is
  int restarts = 0;
  std::string waiting_reason = {};  // "CrashLoopBackOff", "ImagePullBackOff": containers wait with it
  std::string waiting_message = {};
  std::string last_end_reason = {};   // why the container's previous run ended: "OOMKilled", "Error"; empty: it had none
  std::string reason = {};            // of the whole pod: "Evicted", "NodeLost"
  std::optional<int> exit_code = {};  // of a terminated container (Succeeded, Failed)
  std::string unschedulable = {};     // message of PodScheduled=False/Unschedulable; empty: scheduled once `node` is known
};

// A refusal: what the Status says.
struct Refusal {
  int code = 403;
  std::string reason = "Forbidden";
  std::string message = {};
  std::vector<std::pair<std::string, std::string>> causes = {};  // field, message
  int retry_after_s = 1;                                         // the header of a 429 or 503
};

// The refusal that a ResourceQuota gives ("... is forbidden: exceeded quota: ...").
[[nodiscard]] Refusal exceeded_quota(const std::string& detail);

struct WriteAttempt {
  std::string client;  // the connection's name
  std::string verb;    // create | update | patch | apply | delete
  kube::Resource resource;
  std::string subresource;
  nlohmann::json object;   // as it would be stored; for delete: as it stands
  nlohmann::json before;   // null for a create
  bool versioned = false;  // it named the resourceVersion that it was decided from: as it came through, nobody wrote since
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
  std::function<void(double)> on_elapse;  // latency: default advances now() by that much

  // --- the world, by the test's own hand
  // Known from the start: every resource of controller/kube/resource.h. `has_status`: status is a subresource.
  void add_resource(const kube::Resource& resource, bool has_status);
  // Creates or replaces, found by apiVersion and kind; a status given is kept. Answers with what is stored.
  nlohmann::json seed_object(nlohmann::json object);
  [[nodiscard]] std::optional<nlohmann::json> object(const kube::Resource& resource, const std::string& name_space,
                                                     const std::string& name) const;
  [[nodiscard]] std::vector<nlohmann::json> objects(const kube::Resource& resource, const std::string& name_space = "",
                                                    const std::string& label_selector = "") const;
  [[nodiscard]] std::vector<nlohmann::json> pods(const std::string& name_space = "",
                                                 const std::string& label_selector = "") const {
    return objects(kube::resources::kPods, name_space, label_selector);
  }
  // Shows each object in place, in the order of (namespace, name). The objects must not be changed meanwhile.
  void visit(const kube::Resource& resource, const std::function<void(const nlohmann::json&)>& see) const;
  // The object where it stands, until the next change; nullptr: there is none.
  [[nodiscard]] const nlohmann::json* peek(const kube::Resource& resource, const std::string& name_space,
                                           const std::string& name) const;
  // Changes anything in place, status included; false: there is no such object.
  bool edit(const kube::Resource& resource, const std::string& name_space, const std::string& name,
            const std::function<void(nlohmann::json&)>& change);
  // Deletes as `kubectl delete` would (finalizers and grace hold); `force`: at once. false: there is no such object.
  bool delete_object(const kube::Resource& resource, const std::string& name_space, const std::string& name,
                     bool force = false);
  [[nodiscard]] std::uint64_t version() const { return version_; }  // the newest resourceVersion
  [[nodiscard]] std::size_t writes() const { return writes_; }      // changes made through connections

  // --- as the kubelet
  bool kubelet_set(const std::string& name_space, const std::string& name, const PodReport& report);
  // Confirms that a pod which is being deleted has ended; it goes once no finalizer holds it. false: none such, or not
  // deleting.
  bool kubelet_finish_deletion(const std::string& name_space, const std::string& name);
  // Pods with a deletionTimestamp whose end the kubelet has not confirmed.
  [[nodiscard]] std::vector<nlohmann::json> terminating_pods() const;
  // Binds pods without a node to `node` (of which the test says that they fit); answers how many.
  int schedule_pending(const std::string& node, const std::function<bool(const nlohmann::json&)>& fits = {});

  // --- as the controller manager
  // One pass of the garbage collector: deletes dependents whose owners are gone. Answers with the number of deletions begun.
  int collect_garbage();

  // --- hooks and history
  std::function<std::optional<Refusal>(const WriteAttempt&)>
      admit;                                          // asked before each write by a connection: quotas, validation
  std::function<void(const WriteAttempt&)> on_write;  // told of each write by a connection that was applied
  void compact();                                     // forgets all history: every watch from an older version gets 410
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
  struct Page;   // what is left of a paged list
  struct Write;  // one mutating request on its way

  std::optional<Route> parse(const std::string& url) const;
  kube::HttpResponse handle(const std::string& client, const kube::HttpRequest& request, bool stale);
  kube::HttpResponse handle_list(const Route& route, bool stale);
  kube::HttpResponse handle_create(Write& write);
  kube::HttpResponse handle_binding(Write& write);
  kube::HttpResponse handle_update(Write& write);
  kube::HttpResponse handle_patch(Write& write);
  kube::HttpResponse handle_apply(Write& write);
  kube::HttpResponse handle_delete(Write& write);
  // The rules that every change of an existing object obeys; then stores it.
  kube::HttpResponse replace(Write& write, nlohmann::json next, std::optional<FieldOwners> owners);
  kube::HttpResponse insert(Write& write, nlohmann::json object, std::optional<FieldOwners> owners);
  std::optional<kube::HttpResponse> refused(Write& write, const std::string& verb, const nlohmann::json& next);
  void applied(Write& write, const std::string& verb, const nlohmann::json& next, const nlohmann::json& before = {});

  // Stores `next`, with identity, version and generation as the rules have them.
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
  std::uint64_t compacted_ = 0;  // versions up to here are forgotten
  std::vector<Kind> kinds_;
  std::map<std::string, std::map<Key, Stored>> objects_;  // by "group/plural"
  std::deque<Change> history_;
  std::map<std::string, std::shared_ptr<Page>> pages_;
  std::uint64_t page_tokens_ = 0;
};

}  // namespace windlass::fakes
