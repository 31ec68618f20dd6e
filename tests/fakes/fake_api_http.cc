// The HTTP side of FakeApiServer: parses URLs and returns objects or a Status.
#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "controller/kube/http_text.h"
#include "planner/base/percent.h"
#include "tests/fakes/fake_api_internal.h"
#include "tests/fakes/selectors.h"

namespace windlass::fakes {

using kube::HttpRequest;
using kube::HttpResponse;
using nlohmann::json;

json status_object(const Refusal& refusal) {
  json status{{"kind", "Status"},           {"apiVersion", "v1"},       {"metadata", json::object()}, {"status", "Failure"},
              {"message", refusal.message}, {"reason", refusal.reason}, {"code", refusal.code}};
  for (const auto& [field, message] : refusal.causes) {
    status["details"]["causes"].push_back({{"reason", "FieldValueInvalid"}, {"field", field}, {"message", message}});
  }
  return status;
}

HttpResponse json_response(int status, const json& body) {
  return {status, {{"content-type", "application/json"}}, kube::to_text(body)};
}

HttpResponse refusal_response(const Refusal& refusal) {
  HttpResponse response = json_response(refusal.code, status_object(refusal));
  if (refusal.code == 429 || refusal.code == 503) response.headers["retry-after"] = std::to_string(refusal.retry_after_s);
  return response;
}

namespace {

// A broken escape is kept as it is.
std::string decoded(const std::string& text, bool plus_is_space = false) {
  return percent_decoded(text, plus_is_space).value_or(text);
}

constexpr std::size_t kMaxPages = 64;

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  while (begin <= text.size()) {
    std::size_t end = std::min(text.find(separator, begin), text.size());
    if (end > begin) parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

std::string full_name(const kube::Resource& resource) {
  return resource.group.empty() ? resource.plural : resource.plural + "." + resource.group;
}

HttpResponse not_found(const kube::Resource& resource, const std::string& name) {
  return refusal_response({404, "NotFound", fmt::format("{} \"{}\" not found", full_name(resource), name), {}});
}

HttpResponse bad_request(const std::string& message) { return refusal_response({400, "BadRequest", message, {}}); }

HttpResponse changed_since(const kube::Resource& resource, const std::string& name) {
  return refusal_response(
      {409,
       "Conflict",
       fmt::format("Operation cannot be fulfilled on {} \"{}\": the object has been modified; please apply your "
                   "changes to the latest version and try again",
                   full_name(resource), name),
       {}});
}

HttpResponse invalid(const kube::Resource& resource, const std::string& name, const std::string& field,
                     const std::string& message) {
  std::string kind = resource.group.empty() ? resource.kind : resource.kind + "." + resource.group;
  return refusal_response(
      {422, "Invalid", fmt::format("{} \"{}\" is invalid: {}: {}", kind, name, field, message), {{field, message}}});
}

bool valid_name(const std::string& name) {
  if (name.empty() || name.size() > 253) return false;
  auto plain = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); };
  return plain(name.front()) && plain(name.back()) &&
         std::all_of(name.begin(), name.end(), [&](char c) { return plain(c) || c == '-' || c == '.'; });
}

std::set<std::string> finalizers_of(const json& object) {
  std::set<std::string> out;
  const json& metadata = object.at("metadata");
  if (auto it = metadata.find("finalizers"); it != metadata.end() && it->is_array()) {
    for (const json& name : *it) out.insert(name.get<std::string>());
  }
  return out;
}

// The fields of a pod's spec that may still change after its creation.
json frozen_pod_spec(const json& pod) {
  json spec = pod.value("spec", json::object());
  for (const char* field : {"nodeName", "tolerations", "activeDeadlineSeconds", "terminationGracePeriodSeconds"})
    spec.erase(field);
  for (const char* list : {"containers", "initContainers"}) {
    if (!spec.contains(list)) continue;
    for (json& container : spec[list]) container.erase("image");
  }
  return spec;
}

void with_pod_defaults(json& pod) {
  json& spec = pod["spec"];
  if (!spec.is_object()) spec = json::object();
  if (!spec.contains("terminationGracePeriodSeconds")) spec["terminationGracePeriodSeconds"] = 30;
  if (!spec.contains("restartPolicy")) spec["restartPolicy"] = "Always";
  pod["status"] = {{"phase", "Pending"}};
}

// The fields that server-side apply manages: neither the identity nor anything that only the server writes.
json applied_fields(json object) {
  object.erase("apiVersion");
  object.erase("kind");
  if (auto metadata = object.find("metadata"); metadata != object.end() && metadata->is_object()) {
    for (const char* field :
         {"name", "namespace", "uid", "resourceVersion", "creationTimestamp", "generation", "managedFields"}) {
      metadata->erase(field);
    }
    if (metadata->empty()) object.erase("metadata");
  }
  return object;
}

}  // namespace

bool FakeApiServer::Route::selects(const json& object) const {
  if (!name_space.empty() && text_in(object, "metadata", "namespace") != name_space) return false;
  return labels_match(object, get("labelSelector")) && fields_match(object, get("fieldSelector"));
}

std::optional<FakeApiServer::Route> FakeApiServer::parse(const std::string& url) const {
  std::string rest = url.substr(this->url().size());
  Route route;
  std::size_t question = rest.find('?');
  if (question != std::string::npos) {
    for (const std::string& part : split(rest.substr(question + 1), '&')) {
      std::size_t equals = std::min(part.find('='), part.size());
      std::string value = equals < part.size() ? part.substr(equals + 1) : "";
      route.query[decoded(part.substr(0, equals), true)] = decoded(value, true);
    }
    rest.resize(question);
  }
  std::vector<std::string> parts = split(rest, '/');
  for (std::string& part : parts) part = decoded(part);
  kube::Resource wanted;
  std::size_t at = 0;
  if (parts.size() >= 3 && parts[0] == "api") {
    wanted.version = parts[1];
    at = 2;
  } else if (parts.size() >= 4 && parts[0] == "apis") {
    wanted.group = parts[1];
    wanted.version = parts[2];
    at = 3;
  } else {
    return std::nullopt;
  }
  // "namespaces/x/pods" is pods in x; "namespaces/x" is the namespace itself.
  if (parts[at] == "namespaces" && parts.size() > at + 2 && parts[at + 2] != "status" && parts[at + 2] != "finalize") {
    route.name_space = parts[at + 1];
    at += 2;
  }
  wanted.plural = parts[at];
  route.kind = kind_at(wanted);
  if (route.kind == nullptr || route.kind->resource.version != wanted.version) return std::nullopt;
  if (!route.kind->resource.namespaced && !route.name_space.empty()) return std::nullopt;
  if (parts.size() > at + 1) route.name = parts[at + 1];
  if (parts.size() > at + 2) route.subresource = parts[at + 2];
  if (parts.size() > at + 3) return std::nullopt;
  if (!route.name.empty() && route.kind->resource.namespaced && route.name_space.empty()) return std::nullopt;
  return route;
}

HttpResponse FakeApiServer::handle(const std::string& client, const HttpRequest& request, bool stale) {
  if (!options_.token.empty()) {
    auto it = request.headers.find("Authorization");
    if (it == request.headers.end() || it->second != "Bearer " + options_.token) {
      return refusal_response({401, "Unauthorized", "Unauthorized", {}});
    }
  }
  std::string path = request.url.substr(url().size());
  if (path == "/readyz" || path == "/healthz" || path == "/livez") return {200, {{"content-type", "text/plain"}}, "ok"};
  if (path == "/version") return json_response(200, {{"major", "1"}, {"minor", "34"}, {"gitVersion", "v1.34.0-fake"}});
  std::optional<Route> route = parse(request.url);
  if (!route) return refusal_response({404, "NotFound", "the server could not find the requested resource", {}});
  if (!route->subresource.empty() && request.method != "POST" && !(route->subresource == "status" && route->kind->has_status)) {
    return refusal_response({404, "NotFound", "the server could not find the requested resource", {}});
  }
  if (request.method == "GET") {
    if (route->name.empty()) return handle_list(*route, stale);
    const Stored* stored = find(route->kind->resource, {route->name_space, route->name});
    return stored == nullptr ? not_found(route->kind->resource, route->name) : json_response(200, *stored->object);
  }
  Write write{client, *route, &request, json()};
  if (!request.body.empty()) {
    write.body = json::parse(request.body, nullptr, false);
    if (write.body.is_discarded()) return bad_request("the body is not JSON");
    const char* holder = request.method == "DELETE" ? "preconditions" : "metadata";
    write.versioned = !text_in(write.body, holder, "resourceVersion").empty();
  }
  if (request.method == "POST" && route->subresource == "binding") return handle_binding(write);
  if (request.method == "POST" && route->name.empty()) return handle_create(write);
  if (request.method == "PUT" && !route->name.empty()) return handle_update(write);
  if (request.method == "PATCH" && !route->name.empty()) return handle_patch(write);
  if (request.method == "DELETE" && !route->name.empty()) return handle_delete(write);
  return refusal_response({405, "MethodNotAllowed", "the server does not allow this method on the requested resource", {}});
}

HttpResponse FakeApiServer::handle_list(const Route& route, bool stale) {
  std::shared_ptr<Page> page;
  if (std::string token = route.get("continue"); !token.empty()) {
    auto it = pages_.find(token);
    if (it == pages_.end() || it->second->version < compacted_) {
      return refusal_response(
          {410, "Expired", "The provided continue parameter is too old to display a consistent list result.", {}});
    }
    page = it->second;
    pages_.erase(it);
  } else {
    std::uint64_t version = version_;
    if (stale)
      version = std::max(compacted_,
                         version_ - std::min<std::uint64_t>(version_, static_cast<std::uint64_t>(random_.integer(0, 20))));
    page = std::make_shared<Page>();
    page->version = version;
    for (auto& [key, object] : state_at(*route.kind, version)) {
      if (route.selects(*object)) page->items.push_back(object);
    }
  }
  std::size_t limit = route.get("limit").empty() ? 0 : static_cast<std::size_t>(std::stoul(route.get("limit")));
  std::size_t end = limit == 0 ? page->items.size() : std::min(page->items.size(), page->at + limit);
  json list{{"apiVersion", route.kind->resource.api_version()},
            {"kind", route.kind->resource.kind + "List"},
            {"metadata", {{"resourceVersion", std::to_string(page->version)}}},
            {"items", json::array()}};
  for (std::size_t i = page->at; i < end; ++i) {
    json item = *page->items[i];
    item.erase("apiVersion");  // the API server leaves them out of a list's items
    item.erase("kind");
    list["items"].push_back(std::move(item));
  }
  if (end < page->items.size()) {
    page->at = end;
    std::string token = fmt::format("page-{}", ++page_tokens_);
    list["metadata"]["continue"] = token;
    list["metadata"]["remainingItemCount"] = page->items.size() - end;
    while (pages_.size() >= kMaxPages) pages_.erase(pages_.begin());
    pages_[token] = page;
  }
  return json_response(200, list);
}

std::optional<HttpResponse> FakeApiServer::refused(Write& write, const std::string& verb, const json& next) {
  if (!admit) return std::nullopt;
  const Stored* stored = find(write.route.kind->resource, write.key());
  const json nothing;
  const json& before = stored == nullptr ? nothing : *stored->object;
  const WriteAttempt attempt{write.client, verb,           write.route.kind->resource, write.route.subresource, next,
                             before,       write.versioned};
  std::optional<Refusal> refusal = admit(attempt);
  if (!refusal) return std::nullopt;
  if (refusal->code == 403) {
    refusal->message =
        fmt::format("{} \"{}\" is forbidden: {}", full_name(write.route.kind->resource), write.route.name, refusal->message);
  }
  return refusal_response(*refusal);
}

void FakeApiServer::applied(Write& write, const std::string& verb, const json& next, const json& before) {
  ++writes_;
  if (!on_write) return;
  on_write({write.client, verb, write.route.kind->resource, write.route.subresource, next, before, write.versioned});
}

HttpResponse FakeApiServer::insert(Write& write, json object, std::optional<FieldOwners> owners) {
  const Kind& kind = *write.route.kind;
  const std::string& name = write.route.name;
  if (!valid_name(name)) {
    return invalid(kind.resource, name, "metadata.name",
                   fmt::format("Invalid value: \"{}\": a lowercase RFC 1123 subdomain is needed", name));
  }
  json& metadata = object["metadata"];
  if (!metadata.is_object()) metadata = json::object();
  metadata["name"] = name;
  if (kind.resource.namespaced) metadata["namespace"] = write.route.name_space;
  for (const char* field : {"uid", "creationTimestamp", "generation", "deletionTimestamp", "deletionGracePeriodSeconds",
                            "managedFields", "resourceVersion", "generateName"}) {
    metadata.erase(field);
  }
  if (kind.has_status) object.erase("status");
  if (kind.resource.kind == "Pod") with_pod_defaults(object);
  object["apiVersion"] = kind.resource.api_version();
  object["kind"] = kind.resource.kind;
  if (auto response = refused(write, owners ? "apply" : "create", object)) return *response;
  if (write.dry_run()) return json_response(201, object);
  Shared stored = store(kind, write.key(), object);
  FieldOwners& held = objects_[place_of(kind.resource)][write.key()].owners;
  if (owners) {
    held = std::move(*owners);
  } else {
    take_ownership(held, json::object(), applied_fields(object), write.manager("Update"));
  }
  applied(write, owners ? "apply" : "create", *stored);
  return json_response(201, *stored);
}

HttpResponse FakeApiServer::handle_create(Write& write) {
  const Kind& kind = *write.route.kind;
  json& object = write.body;
  if (!object.is_object()) return bad_request("the body is not an object");
  if (kind_of(object) != &kind) {
    return bad_request(fmt::format("the object's type ({}, {}) does not match the URL's ({}, {})",
                                   object.value("apiVersion", ""), object.value("kind", ""), kind.resource.api_version(),
                                   kind.resource.kind));
  }
  std::string name_space = text_in(object, "metadata", "namespace");
  if (!name_space.empty() && name_space != write.route.name_space) {
    return bad_request("the namespace of the provided object does not match the namespace sent on the request");
  }
  if (!text_in(object, "metadata", "resourceVersion").empty()) {
    return bad_request("resourceVersion should not be set on objects to be created");
  }
  write.route.name = text_in(object, "metadata", "name");
  if (std::string prefix = text_in(object, "metadata", "generateName"); write.route.name.empty() && !prefix.empty()) {
    static constexpr char kLetters[] = "bcdfghjklmnpqrstvwxz2456789";
    for (int i = 0; i < 5; ++i) prefix += kLetters[random_.integer(0, static_cast<std::int64_t>(sizeof(kLetters)) - 2)];
    write.route.name = prefix;
  }
  if (find(kind.resource, write.key()) != nullptr) {
    return refusal_response(
        {409, "AlreadyExists", fmt::format("{} \"{}\" already exists", full_name(kind.resource), write.route.name), {}});
  }
  return insert(write, std::move(object), std::nullopt);
}

HttpResponse FakeApiServer::handle_binding(Write& write) {
  const Stored* stored = find(write.route.kind->resource, write.key());
  if (stored == nullptr) return not_found(write.route.kind->resource, write.route.name);
  if (!text_in(*stored->object, "spec", "nodeName").empty()) {
    return refusal_response({409, "Conflict", fmt::format("pod {} is already assigned to a node", write.route.name), {}});
  }
  PodReport report;
  report.phase = "Pending";
  report.node = text_in(write.body, "target", "name");
  kubelet_set(write.route.name_space, write.route.name, report);
  return json_response(201, {{"kind", "Status"}, {"apiVersion", "v1"}, {"status", "Success"}, {"code", 201}});
}

HttpResponse FakeApiServer::replace(Write& write, json next, std::optional<FieldOwners> owners) {
  const Kind& kind = *write.route.kind;
  const Stored* stored = find(kind.resource, write.key());
  const Shared held = stored->object;  // as it was, also once the new one is stored
  const json& before = *held;
  std::string version = text_in(next, "metadata", "resourceVersion");
  if (!version.empty() && version != text_in(before, "metadata", "resourceVersion"))
    return changed_since(kind.resource, write.route.name);
  std::string uid = text_in(next, "metadata", "uid");
  if (!uid.empty() && uid != text_in(before, "metadata", "uid")) {
    // A patch that changes the uid is refused as one of an immutable field; a replacement names another object.
    if (write.request->method == "PATCH" && !owners) {
      return invalid(kind.resource, write.route.name, "metadata.uid", "Invalid value: \"" + uid + "\": field is immutable");
    }
    return refusal_response({409,
                             "Conflict",
                             fmt::format("Precondition failed: UID in precondition: {}, UID in object meta: {}", uid,
                                         text_in(before, "metadata", "uid")),
                             {}});
  }
  if (text_in(next, "metadata", "name") != write.route.name)
    return bad_request("the name of the object does not match the name on the URL");
  if (write.route.subresource == "status") {
    json status = next.contains("status") ? next["status"] : json();
    next = before;
    if (status.is_null()) {
      next.erase("status");
    } else {
      next["status"] = std::move(status);
    }
  } else {
    if (kind.has_status) {
      if (before.contains("status")) {
        next["status"] = before["status"];
      } else {
        next.erase("status");
      }
    }
    // What the server alone writes.
    for (const char* field : {"deletionTimestamp", "deletionGracePeriodSeconds", "generation"}) {
      if (before["metadata"].contains(field)) {
        next["metadata"][field] = before["metadata"][field];
      } else {
        next["metadata"].erase(field);
      }
    }
    if (being_deleted(before)) {
      std::set<std::string> had = finalizers_of(before);
      for (const std::string& name : finalizers_of(next)) {
        if (had.count(name) == 0) {
          return invalid(
              kind.resource, write.route.name, "metadata.finalizers",
              "Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{\"" +
                  name + "\"}");
        }
      }
    }
    if (kind.resource.kind == "Pod" && frozen_pod_spec(before) != frozen_pod_spec(next)) {
      return invalid(
          kind.resource, write.route.name, "spec",
          "Forbidden: pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
          "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations)");
    }
  }
  std::string verb = owners ? "apply" : write.request->method == "PUT" ? "update" : "patch";
  if (auto response = refused(write, verb, next)) return *response;
  if (write.dry_run()) return json_response(200, next);
  Shared now = store(kind, write.key(), std::move(next));
  FieldOwners& fields = objects_[place_of(kind.resource)][write.key()].owners;
  if (owners) {
    fields = std::move(*owners);
  } else {
    take_ownership(fields, applied_fields(before), applied_fields(*now), write.manager("Update"));
  }
  applied(write, verb, *now, before);
  finish_if_free(kind, write.key());
  return json_response(200, *now);
}

HttpResponse FakeApiServer::handle_update(Write& write) {
  const Kind& kind = *write.route.kind;
  if (!write.body.is_object()) return bad_request("the body is not an object");
  if (find(kind.resource, write.key()) == nullptr) return not_found(kind.resource, write.route.name);
  bool custom = kind.resource.group.find('.') != std::string::npos && !kind.resource.group.ends_with("k8s.io");
  if (custom && text_in(write.body, "metadata", "resourceVersion").empty()) {
    return invalid(kind.resource, write.route.name, "metadata.resourceVersion",
                   "Invalid value: 0: must be specified for an update");
  }
  return replace(write, std::move(write.body), std::nullopt);
}

HttpResponse FakeApiServer::handle_apply(Write& write) {
  const Kind& kind = *write.route.kind;
  if (!write.body.is_object() || kind_of(write.body) != &kind)
    return bad_request("apply: apiVersion and kind must be those of the URL");
  if (write.route.get("fieldManager").empty()) return bad_request("fieldManager is required for apply patch");
  json fields = applied_fields(write.body);
  if (write.route.subresource == "status") {
    fields = fields.contains("status") ? json{{"status", fields["status"]}} : json::object();
  } else if (kind.has_status) {
    fields.erase("status");
  }
  const Stored* stored = find(kind.resource, write.key());
  if (stored == nullptr) {
    if (!write.route.subresource.empty()) return not_found(kind.resource, write.route.name);
    ApplyOutcome outcome = apply_fields(json::object(), {}, fields, write.manager("Apply"), false);
    return insert(write, std::move(outcome.object), std::move(outcome.owners));
  }
  bool force = write.route.get("force") == "true";
  ApplyOutcome outcome = apply_fields(*stored->object, stored->owners, fields, write.manager("Apply"), force);
  if (!outcome.conflicts.empty()) {
    json status = status_object(
        {409,
         "Conflict",
         fmt::format("Apply failed with {} conflict{}", outcome.conflicts.size(), outcome.conflicts.size() == 1 ? "" : "s"),
         {}});
    for (const FieldConflict& conflict : outcome.conflicts) {
      std::string manager = conflict.manager.substr(0, conflict.manager.find('|'));
      status["details"]["causes"].push_back(
          {{"reason", "FieldManagerConflict"}, {"field", conflict.field}, {"message", "conflict with \"" + manager + "\""}});
    }
    return json_response(409, status);
  }
  json next = std::move(outcome.object);
  if (std::string version = text_in(write.body, "metadata", "resourceVersion"); !version.empty()) {
    next["metadata"]["resourceVersion"] = version;
  }
  if (std::string uid = text_in(write.body, "metadata", "uid"); !uid.empty()) next["metadata"]["uid"] = uid;
  return replace(write, std::move(next), std::move(outcome.owners));
}

HttpResponse FakeApiServer::handle_patch(Write& write) {
  const Kind& kind = *write.route.kind;
  auto type = write.request->headers.find("Content-Type");
  std::string content = type == write.request->headers.end() ? "" : type->second;
  if (content == "application/apply-patch+yaml") return handle_apply(write);
  const Stored* stored = find(kind.resource, write.key());
  if (stored == nullptr) return not_found(kind.resource, write.route.name);
  json next = *stored->object;
  if (content == "application/merge-patch+json") {
    next.merge_patch(write.body);
  } else if (content == "application/strategic-merge-patch+json") {
    if (!kind.resource.group.empty() && !kind.resource.group.ends_with("k8s.io") &&
        kind.resource.group.find('.') != std::string::npos) {
      return refusal_response({415, "UnsupportedMediaType", "the body of the request was in an unknown format", {}});
    }
    next = strategic_merge(std::move(next), write.body);
  } else if (content == "application/json-patch+json") {
    try {
      next = next.patch(write.body);
    } catch (const json::exception& error) {
      return refusal_response(
          {422, "Invalid", std::string("the server rejected our request due to an error in our request: ") + error.what(), {}});
    }
  } else {
    return refusal_response({415, "UnsupportedMediaType", "the body of the request was in an unknown format: " + content, {}});
  }
  return replace(write, std::move(next), std::nullopt);
}

HttpResponse FakeApiServer::handle_delete(Write& write) {
  const Kind& kind = *write.route.kind;
  const Stored* stored = find(kind.resource, write.key());
  if (stored == nullptr) return not_found(kind.resource, write.route.name);
  const Shared held = stored->object;
  const json& before = *held;
  std::optional<std::int64_t> grace;
  std::string propagation = "Background";
  if (write.body.is_object()) {
    for (const char* field : {"uid", "resourceVersion"}) {
      std::string wanted = text_in(write.body, "preconditions", field);
      std::string found = text_in(before, "metadata", field);
      if (wanted.empty() || wanted == found) continue;
      return refusal_response(
          {409,
           "Conflict",
           fmt::format("Precondition failed: {} in precondition: {}, {} in object meta: {}", field, wanted, field, found),
           {}});
    }
    if (write.body.contains("gracePeriodSeconds")) grace = write.body["gracePeriodSeconds"].get<std::int64_t>();
    propagation = write.body.value("propagationPolicy", "Background");
  }
  if (auto response = refused(write, "delete", before)) return *response;
  if (write.dry_run()) return json_response(200, before);
  begin_deletion(kind, write.key(), grace, propagation);
  applied(write, "delete", before, before);
  const Stored* left = find(kind.resource, write.key());
  if (left != nullptr) return json_response(200, *left->object);
  return json_response(200, {{"kind", "Status"}, {"apiVersion", "v1"}, {"status", "Success"}});
}

}  // namespace windlass::fakes
