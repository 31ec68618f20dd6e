// A fake API server with a client, and objects to store in it: the base of most tests in this folder.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <nlohmann/json.hpp>

#include "controller/kube/kube_client.h"
#include "tests/fakes/fake_api_server.h"

namespace windlass::kube {

struct World {
  explicit World(fakes::FakeApiOptions options = {}) : api(std::move(options)), wire(api.connect("test")) {}

  fakes::FakeApiServer api;
  std::unique_ptr<fakes::FakeConnection> wire;
  std::unique_ptr<CredentialSource> credentials = no_credentials();
  KubeClient client{*wire, api.url(), *credentials};
};

inline nlohmann::json config_map(const std::string& name, const std::string& value = "x") {
  return {{"apiVersion", "v1"},
          {"kind", "ConfigMap"},
          {"metadata", {{"namespace", "default"}, {"name", name}}},
          {"data", {{"key", value}}}};
}

inline nlohmann::json pod(const std::string& name) {
  return {{"apiVersion", "v1"},
          {"kind", "Pod"},
          {"metadata", {{"namespace", "default"}, {"name", name}, {"labels", {{"app", "windlass"}}}}},
          {"spec", {{"containers", nlohmann::json::array({{{"name", "worker"}, {"image", "w:1"}}})}}}};
}

inline nlohmann::json model_service(const std::string& name) {
  return {{"apiVersion", "windlass.dev/v1alpha1"},
          {"kind", "ModelService"},
          {"metadata", {{"namespace", "default"}, {"name", name}}},
          {"spec", {{"model", {{"servedName", name}}}}}};
}

inline std::string version_of(const nlohmann::json& object) {
  return object.at("metadata").at("resourceVersion").get<std::string>();
}

}  // namespace windlass::kube
