// Internals shared by the source files of FakeApiServer. Tests must not include this.
#pragma once

#include <map>
#include <string>

#include <nlohmann/json.hpp>

#include "controller/kube/http_transport.h"
#include "controller/kube/resource.h"
#include "tests/fakes/fake_api_server.h"

namespace windlass::fakes {

struct FakeApiServer::Route {
  const Kind* kind = nullptr;
  std::string name_space, name, subresource;
  std::map<std::string, std::string> query;

  [[nodiscard]] std::string get(const std::string& key) const {
    auto it = query.find(key);
    return it == query.end() ? "" : it->second;
  }
  [[nodiscard]] bool selects(const nlohmann::json& object) const;
};

struct FakeApiServer::Page {
  std::vector<Shared> items;
  std::size_t at = 0;
  std::uint64_t version = 0;
};

struct FakeApiServer::Write {
  std::string client;
  Route route;
  const kube::HttpRequest* request = nullptr;
  nlohmann::json body;
  bool versioned = false;  // it names the resourceVersion that it expects

  [[nodiscard]] Key key() const { return {route.name_space, route.name}; }
  [[nodiscard]] bool dry_run() const { return route.get("dryRun") == "All"; }
  [[nodiscard]] std::string manager(const char* operation) const {
    return route.get("fieldManager") + "|" + operation + "|" + route.subresource;
  }
};

std::string place_of(const kube::Resource& resource);
std::string text_in(const nlohmann::json& object, const char* outer, const char* key);
bool has_finalizers(const nlohmann::json& object);
bool being_deleted(const nlohmann::json& object);

nlohmann::json status_object(const Refusal& refusal);
kube::HttpResponse json_response(int status, const nlohmann::json& body);
kube::HttpResponse refusal_response(const Refusal& refusal);

}  // namespace windlass::fakes
