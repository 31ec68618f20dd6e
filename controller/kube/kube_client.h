// KubeClient: the Kubernetes API as typed calls on JSON objects, over an HttpTransport.
//
// Stateless except for the credentials and the write gate. Single-threaded; every call except watch() waits for its response.
//
// If the server refuses, the Error has the verb, the object and the server's reason, message and causes; ApiResult::failure()
// has the details. The codes, by HTTP status: 404 kNotFound; 409 kConflict or kAlreadyExists; 410 kGone; 400 and 422
// kInvalidArgument; 401 and 403 kPermissionDenied, except that an exceeded quota is kResourceExhausted and a namespace that is
// being deleted is kFailedPrecondition; 429 and 5xx kUnavailable (with retry_after_s). After a 401 the credentials are
// refreshed and the call is retried once; nothing else is retried here.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "controller/kube/api_result.h"
#include "controller/kube/credentials.h"
#include "controller/kube/http_transport.h"
#include "controller/kube/resource.h"

namespace windlass::kube {

struct KubeClientOptions {
  std::string user_agent = "windlass";
  std::string field_manager = "windlass";   // default of WriteOptions::field_manager
  double timeout_s = 30;                    // per request
  std::function<double()> wall_clock = {};  // Unix seconds, for token expiry; empty: the system's clock
};

struct ListOptions {
  std::string label_selector = {};                 // "windlass.dev/service=chat"
  std::string field_selector = {};                 // "status.phase=Pending"
  std::string resource_version = {};               // empty: the newest, as a quorum read
  int page_size = 500;                             // objects per request; 0: all in one
  std::function<void(nlohmann::json&)> trim = {};  // drops what nobody reads of each object, page by page
};

struct ObjectList {
  std::vector<nlohmann::json> items;  // each with apiVersion and kind
  std::string resource_version;
};

struct WatchOptions {
  std::string label_selector = {};
  std::string field_selector = {};
  std::string resource_version = {};
  bool bookmarks = true;
  double timeout_s = 300;         // timeoutSeconds: the server ends the watch after this
  double connect_timeout_s = 30;  // for the response's head
};

struct WriteOptions {
  std::string subresource = {};    // "status", "scale", "binding", "eviction"; empty: the object itself
  std::string field_manager = {};  // empty: KubeClientOptions::field_manager
  bool strict = true;              // fieldValidation=Strict: unknown fields are errors, not dropped
  bool dry_run = false;
  bool force = false;        // apply() only: take over fields that another manager owns
  bool passes_gate = false;  // only for the Lease itself
  double timeout_s = 0;      // 0: KubeClientOptions::timeout_s
};

enum class PatchType { kMerge, kJson, kStrategic };

struct DeleteOptions {
  std::string uid = {};                             // precondition; empty: none
  std::string resource_version = {};                // precondition; empty: none
  std::optional<std::int64_t> grace_period_s = {};  // empty: the object's default
  std::string propagation = "Background";           // Background | Foreground | Orphan
  bool dry_run = false;
};

class KubeClient {
 public:
  // `transport` and `credentials` outlive the client. `server`: scheme://host:port with an optional path.
  KubeClient(HttpTransport& transport, std::string server, CredentialSource& credentials, KubeClientOptions options = {});

  // While the gate returns false, every mutating request fails here with kFailedPrecondition ("not the leader: ..."), unless
  // its options set passes_gate. An empty function opens the gate. The gate is checked right before each request.
  void set_write_gate(std::function<bool()> may_write) { may_write_ = std::move(may_write); }

  // Called after every request with its verb ("get", "apply", ...), the resource's plural and the HTTP status. The status is 0
  // if there was no response. It is always 0 for a watch, because the call comes before the response.
  using Observer = std::function<void(const std::string& verb, const std::string& resource, int status)>;
  void set_observer(Observer observer) { observer_ = std::move(observer); }

  // `name_space` is empty for cluster-scoped resources. For list() and watch(), empty means all namespaces.
  ApiResult<nlohmann::json> get(const Resource& resource, const std::string& name_space, const std::string& name,
                                double timeout_s = 0);
  ApiResult<ObjectList> list(const Resource& resource, const std::string& name_space, const ListOptions& options = {});

  // Creates the object in its own metadata.namespace. Returns the stored object.
  ApiResult<nlohmann::json> create(const Resource& resource, const nlohmann::json& object, const WriteOptions& options = {});

  // Replaces the object. Its metadata.resourceVersion is a precondition (kConflict if somebody else wrote first).
  ApiResult<nlohmann::json> update(const Resource& resource, const nlohmann::json& object, const WriteOptions& options = {});

  ApiResult<nlohmann::json> patch(const Resource& resource, const std::string& name_space, const std::string& name,
                                  PatchType type, const nlohmann::json& patch, const WriteOptions& options = {});

  // Server-side apply of exactly the fields in `object`; apiVersion and kind are filled in. kConflict names the other managers.
  ApiResult<nlohmann::json> apply(const Resource& resource, const nlohmann::json& object, const WriteOptions& options = {});

  // kNotFound if it is gone already, kConflict if a precondition fails. Returns when the server has accepted the deletion;
  // finalizers and grace periods may keep the object longer.
  ApiResult<void> remove(const Resource& resource, const std::string& name_space, const std::string& name,
                         const DeleteOptions& options = {});

  // Opens a watch. Its bytes are one JSON event per line; Reflector reads them. The caller handles a non-200 status with
  // failure_from_response() and calls credentials_refused() on 401.
  Result<std::unique_ptr<HttpStream>> watch(const Resource& resource, const std::string& name_space,
                                            const WatchOptions& options);
  void credentials_refused() { credentials_.invalidate(); }

  // Gets any path of the server ("/version", "/readyz"). Returns the body as text.
  ApiResult<std::string> raw_get(const std::string& path_and_query, double timeout_s = 0);

  // The URL of a collection or, with a name, of an object. `query` holds URL-encoded "key=value" parts.
  [[nodiscard]] std::string url(const Resource& resource, const std::string& name_space, const std::string& name = "",
                                const std::string& subresource = "", const std::vector<std::string>& query = {}) const;
  [[nodiscard]] std::string watch_url(const Resource& resource, const std::string& name_space,
                                      const WatchOptions& options) const;
  [[nodiscard]] const std::string& server() const { return server_; }

 private:
  struct Call;
  ApiResult<HttpResponse> perform(const Call& call);
  ApiResult<nlohmann::json> perform_for_object(const Call& call);
  Result<HttpRequest> authorised(const Call& call);
  void tell(const std::string& what, int status) const;
  std::vector<std::string> write_query(const WriteOptions& options, bool apply) const;

  HttpTransport& transport_;
  std::string server_;
  CredentialSource& credentials_;
  KubeClientOptions options_;
  std::function<bool()> may_write_;
  Observer observer_;
};

// The Error and details of a refusal. `what` is the attempted action: "create pods windlass/chat-0".
ApiResult<void> failure_from_response(const std::string& what, const HttpResponse& response);
ApiResult<void> failure_from_status(const std::string& what, const nlohmann::json& status, int http_status);

// "pods windlass/chat-0" or "nodes n1": the name of an object in messages.
std::string describe(const Resource& resource, const std::string& name_space, const std::string& name);

}  // namespace windlass::kube
