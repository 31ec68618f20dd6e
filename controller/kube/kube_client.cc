// The calls of the Kubernetes API: URLs, bodies, the write gate and the single retry after a 401.
#include "controller/kube/kube_client.h"

#include <utility>

#include <fmt/format.h>

#include "controller/kube/http_text.h"
#include "metrics/host/clock.h"
#include "planner/base/percent.h"

namespace windlass::kube {
namespace {

using nlohmann::json;

std::string metadata_text(const json& object, const char* key) {
  if (!object.is_object()) return "";
  auto metadata = object.find("metadata");
  if (metadata == object.end() || !metadata->is_object()) return "";
  auto it = metadata->find(key);
  return it != metadata->end() && it->is_string() ? it->get<std::string>() : "";
}

// An empty name would address all objects instead of one.
Result<void> check_name(const std::string& verb, const Resource& resource, const std::string& name_space,
                        const std::string& name) {
  std::string what = verb + " " + describe(resource, name_space, name);
  if (name.empty()) return Error{ErrorCode::kInvalidArgument, what + ": the name is empty"};
  if (resource.namespaced && name_space.empty()) return Error{ErrorCode::kInvalidArgument, what + ": the namespace is empty"};
  return {};
}

void add_selectors(std::vector<std::string>& query, const std::string& labels, const std::string& fields) {
  if (!labels.empty()) query.push_back("labelSelector=" + percent_encoded(labels));
  if (!fields.empty()) query.push_back("fieldSelector=" + percent_encoded(fields));
}

json with_type(const Resource& resource, json object) {
  object["apiVersion"] = resource.api_version();
  object["kind"] = resource.kind;
  return object;
}

template <class T>
ApiResult<T> failed(const ApiResult<void>& result) {
  return {result.error(), result.failure()};
}

}  // namespace

struct KubeClient::Call {
  std::string what;  // "create pods windlass/chat-0"
  std::string method = "GET";
  std::string url;
  std::string body;
  std::string content_type = "application/json";
  bool mutating = false;
  bool passes_gate = false;
  double timeout_s = 0;
};

std::string describe(const Resource& resource, const std::string& name_space, const std::string& name) {
  std::string plural = resource.group.empty() ? resource.plural : resource.plural + "." + resource.group;
  if (name_space.empty()) return name.empty() ? plural : plural + " " + name;
  return plural + " " + name_space + "/" + name;
}

KubeClient::KubeClient(HttpTransport& transport, std::string server, CredentialSource& credentials, KubeClientOptions options)
    : transport_(transport), server_(std::move(server)), credentials_(credentials), options_(std::move(options)) {
  while (!server_.empty() && server_.back() == '/') server_.pop_back();
  if (!options_.wall_clock) options_.wall_clock = wall_s;
}

std::string KubeClient::url(const Resource& resource, const std::string& name_space, const std::string& name,
                            const std::string& subresource, const std::vector<std::string>& query) const {
  std::string out = server_ + (resource.group.empty() ? "/api/" : "/apis/" + resource.group + "/") + resource.version;
  if (resource.namespaced && !name_space.empty()) out += "/namespaces/" + percent_encoded(name_space);
  out += "/" + resource.plural;
  if (!name.empty()) out += "/" + percent_encoded(name);
  if (!subresource.empty()) out += "/" + percent_encoded(subresource);
  char separator = '?';
  for (const auto& part : query) {
    out += separator + part;
    separator = '&';
  }
  return out;
}

std::string KubeClient::watch_url(const Resource& resource, const std::string& name_space, const WatchOptions& options) const {
  std::vector<std::string> query{"watch=true"};
  if (options.bookmarks) query.emplace_back("allowWatchBookmarks=true");
  if (!options.resource_version.empty()) query.push_back("resourceVersion=" + percent_encoded(options.resource_version));
  if (options.timeout_s > 0) query.push_back(fmt::format("timeoutSeconds={}", static_cast<long>(options.timeout_s)));
  add_selectors(query, options.label_selector, options.field_selector);
  return url(resource, name_space, "", "", query);
}

Result<HttpRequest> KubeClient::authorised(const Call& call) {
  HttpRequest request;
  request.method = call.method;
  request.url = call.url;
  request.body = call.body;
  request.timeout_s = call.timeout_s > 0 ? call.timeout_s : options_.timeout_s;
  request.headers["Accept"] = "application/json";
  request.headers["User-Agent"] = options_.user_agent;
  if (!call.body.empty()) request.headers["Content-Type"] = call.content_type;
  Result<std::string> token = credentials_.bearer_token(options_.wall_clock());
  if (!token.ok()) return token.error().within(call.what);
  if (!token->empty()) request.headers["Authorization"] = "Bearer " + *token;
  return request;
}

// `what` starts with the verb and the resource: "apply modelservices.windlass.dev default/chat".
void KubeClient::tell(const std::string& what, int status) const {
  if (!observer_) return;
  const std::size_t space = what.find(' ');
  const std::string rest = space == std::string::npos ? "" : what.substr(space + 1);
  observer_(what.substr(0, space), rest.substr(0, rest.find_first_of(" ./")), status);
}

ApiResult<HttpResponse> KubeClient::perform(const Call& call) {
  for (int attempt = 0;; ++attempt) {
    Result<HttpRequest> request = authorised(call);
    if (!request.ok()) return request.error();
    // Checked last, so that nothing slow (a credential plugin) runs between the check and the request.
    if (call.mutating && !call.passes_gate && may_write_ && !may_write_()) {
      return Error{ErrorCode::kFailedPrecondition, call.what + ": not the leader: this process may not write"};
    }
    Result<HttpResponse> response = transport_.send(*request);
    tell(call.what, response.ok() ? response->status : 0);
    if (!response.ok()) return response.error().within(call.what);
    if (response->status == 401) credentials_.invalidate();
    if (response->status == 401 && attempt == 0) continue;
    if (response->status < 200 || response->status >= 300) {
      return failed<HttpResponse>(failure_from_response(call.what, *response));
    }
    return std::move(*response);
  }
}

ApiResult<json> KubeClient::perform_for_object(const Call& call) {
  ApiResult<HttpResponse> response = perform(call);
  if (!response.ok()) return {response.error(), response.failure()};
  json object = json::parse(response->body, nullptr, false);
  if (!object.is_object()) {
    return Error{ErrorCode::kInternal, fmt::format("{}: the server answered {} with something that is not a JSON object",
                                                   call.what, response->status)};
  }
  return object;
}

std::vector<std::string> KubeClient::write_query(const WriteOptions& options, bool apply) const {
  std::vector<std::string> query;
  query.push_back("fieldManager=" +
                  percent_encoded(options.field_manager.empty() ? options_.field_manager : options.field_manager));
  query.emplace_back(options.strict ? "fieldValidation=Strict" : "fieldValidation=Warn");
  if (options.dry_run) query.emplace_back("dryRun=All");
  if (apply) query.emplace_back(options.force ? "force=true" : "force=false");
  return query;
}

ApiResult<json> KubeClient::get(const Resource& resource, const std::string& name_space, const std::string& name,
                                double timeout_s) {
  WINDLASS_RETURN_IF_ERROR(check_name("get", resource, name_space, name));
  Call call;
  call.what = "get " + describe(resource, name_space, name);
  call.url = url(resource, name_space, name);
  call.timeout_s = timeout_s;
  return perform_for_object(call);
}

ApiResult<ObjectList> KubeClient::list(const Resource& resource, const std::string& name_space, const ListOptions& options) {
  Call call;
  call.what = "list " + describe(resource, name_space, "*");
  ObjectList result;
  std::string next;
  int page_size = options.page_size;
  for (;;) {
    std::vector<std::string> query;
    add_selectors(query, options.label_selector, options.field_selector);
    if (page_size > 0) query.push_back(fmt::format("limit={}", page_size));
    if (!next.empty()) {
      query.push_back("continue=" + percent_encoded(next));
    } else if (!options.resource_version.empty()) {
      query.push_back("resourceVersion=" + percent_encoded(options.resource_version));
    }
    call.url = url(resource, name_space, "", "", query);
    ApiResult<json> page = perform_for_object(call);
    if (!page.ok()) {
      if (page.error().code == ErrorCode::kGone && !next.empty()) {
        // The snapshot of the continue token has expired. Fetch everything in one list, because further pages might expire too.
        result = {};
        next.clear();
        page_size = 0;
        continue;
      }
      return {page.error(), page.failure()};
    }
    auto items = page->find("items");
    auto metadata = page->find("metadata");
    if (metadata == page->end() || !metadata->is_object() ||
        (items != page->end() && !items->is_array() && !items->is_null())) {
      return Error{ErrorCode::kInternal, call.what + ": the server's answer is not a list (items and metadata were expected)"};
    }
    if (items != page->end() && items->is_array()) {
      for (auto& item : *items) {
        if (!item.is_object()) return Error{ErrorCode::kInternal, call.what + ": an item of the list is not an object"};
        result.items.push_back(with_type(resource, std::move(item)));
        if (options.trim) options.trim(result.items.back());
      }
    }
    result.resource_version = metadata_text(*page, "resourceVersion");
    next = metadata_text(*page, "continue");
    if (next.empty()) return result;
  }
}

ApiResult<json> KubeClient::create(const Resource& resource, const json& object, const WriteOptions& options) {
  std::string name_space = resource.namespaced ? metadata_text(object, "namespace") : "";
  std::string name = metadata_text(object, "name");
  Call call;
  call.what = "create " + describe(resource, name_space, name.empty() ? metadata_text(object, "generateName") + "*" : name);
  if (!options.subresource.empty()) call.what += " (" + options.subresource + ")";
  if (resource.namespaced && name_space.empty()) {
    return Error{ErrorCode::kInvalidArgument, call.what + ": metadata.namespace is empty"};
  }
  call.method = "POST";
  call.url =
      url(resource, name_space, options.subresource.empty() ? "" : name, options.subresource, write_query(options, false));
  call.body = to_text(options.subresource.empty() ? with_type(resource, object) : object);
  call.mutating = true;
  call.passes_gate = options.passes_gate;
  call.timeout_s = options.timeout_s;
  return perform_for_object(call);
}

ApiResult<json> KubeClient::update(const Resource& resource, const json& object, const WriteOptions& options) {
  std::string name_space = resource.namespaced ? metadata_text(object, "namespace") : "";
  std::string name = metadata_text(object, "name");
  WINDLASS_RETURN_IF_ERROR(check_name("update", resource, name_space, name));
  Call call;
  call.what = "update " + describe(resource, name_space, name);
  if (!options.subresource.empty()) call.what += " (" + options.subresource + ")";
  call.method = "PUT";
  call.url = url(resource, name_space, name, options.subresource, write_query(options, false));
  call.body = to_text(with_type(resource, object));
  call.mutating = true;
  call.passes_gate = options.passes_gate;
  call.timeout_s = options.timeout_s;
  return perform_for_object(call);
}

ApiResult<json> KubeClient::patch(const Resource& resource, const std::string& name_space, const std::string& name,
                                  PatchType type, const json& patch, const WriteOptions& options) {
  WINDLASS_RETURN_IF_ERROR(check_name("patch", resource, name_space, name));
  Call call;
  call.what = "patch " + describe(resource, name_space, name);
  if (!options.subresource.empty()) call.what += " (" + options.subresource + ")";
  call.method = "PATCH";
  call.url = url(resource, name_space, name, options.subresource, write_query(options, false));
  call.body = to_text(patch);
  switch (type) {
    case PatchType::kMerge: call.content_type = "application/merge-patch+json"; break;
    case PatchType::kJson: call.content_type = "application/json-patch+json"; break;
    case PatchType::kStrategic: call.content_type = "application/strategic-merge-patch+json"; break;
  }
  call.mutating = true;
  call.passes_gate = options.passes_gate;
  call.timeout_s = options.timeout_s;
  return perform_for_object(call);
}

ApiResult<json> KubeClient::apply(const Resource& resource, const json& object, const WriteOptions& options) {
  std::string name_space = resource.namespaced ? metadata_text(object, "namespace") : "";
  std::string name = metadata_text(object, "name");
  WINDLASS_RETURN_IF_ERROR(check_name("apply", resource, name_space, name));
  Call call;
  call.what = "apply " + describe(resource, name_space, name);
  if (!options.subresource.empty()) call.what += " (" + options.subresource + ")";
  call.method = "PATCH";
  call.url = url(resource, name_space, name, options.subresource, write_query(options, true));
  call.body = to_text(with_type(resource, object));
  call.content_type = "application/apply-patch+yaml";  // JSON is YAML
  call.mutating = true;
  call.passes_gate = options.passes_gate;
  call.timeout_s = options.timeout_s;
  return perform_for_object(call);
}

ApiResult<void> KubeClient::remove(const Resource& resource, const std::string& name_space, const std::string& name,
                                   const DeleteOptions& options) {
  if (auto named = check_name("delete", resource, name_space, name); !named.ok()) return named.error();
  json body{{"apiVersion", "v1"}, {"kind", "DeleteOptions"}, {"propagationPolicy", options.propagation}};
  if (!options.uid.empty()) body["preconditions"]["uid"] = options.uid;
  if (!options.resource_version.empty()) body["preconditions"]["resourceVersion"] = options.resource_version;
  if (options.grace_period_s) body["gracePeriodSeconds"] = *options.grace_period_s;
  if (options.dry_run) body["dryRun"] = json::array({"All"});
  Call call;
  call.what = "delete " + describe(resource, name_space, name);
  call.method = "DELETE";
  call.url = url(resource, name_space, name);
  call.body = to_text(body);
  call.mutating = true;
  ApiResult<HttpResponse> response = perform(call);
  if (!response.ok()) return {response.error(), response.failure()};
  return {};
}

Result<std::unique_ptr<HttpStream>> KubeClient::watch(const Resource& resource, const std::string& name_space,
                                                      const WatchOptions& options) {
  Call call;
  call.what = "watch " + describe(resource, name_space, "*");
  call.url = watch_url(resource, name_space, options);
  call.timeout_s = options.connect_timeout_s;
  WINDLASS_ASSIGN_OR_RETURN(HttpRequest request, authorised(call));
  Result<std::unique_ptr<HttpStream>> stream = transport_.stream(request);
  tell(call.what, 0);
  if (!stream.ok()) return stream.error().within(call.what);
  return stream;
}

ApiResult<std::string> KubeClient::raw_get(const std::string& path_and_query, double timeout_s) {
  Call call;
  call.what = "get " + path_and_query;
  call.url = server_ + path_and_query;
  call.timeout_s = timeout_s;
  ApiResult<HttpResponse> response = perform(call);
  if (!response.ok()) return {response.error(), response.failure()};
  return std::move(response->body);
}

}  // namespace windlass::kube
