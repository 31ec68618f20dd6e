// Loads tests/golden/bad_objects.yaml, a table of invalid Kubernetes objects; its header explains the format. Used by
// tests/unit/controller/api and tests/cluster.
#pragma once

#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "controller/api/yaml.h"

namespace windlass::fakes {

struct ExpectedError {
  std::string path;
  std::string error_class;  // the cause's reason, or "UnknownField"
  std::string message;      // a CEL rule's message; empty if the exact text does not matter
};

struct BadObject {
  std::string name;
  nlohmann::json object;  // the base object with its patch applied
  std::vector<ExpectedError> errors;
};

struct BadObjectTable {
  std::vector<nlohmann::json> good;  // the base objects
  std::vector<BadObject> cases;
};

inline std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// `source_dir`: source_path(). Throws if the table is invalid; a test cannot continue without it.
inline BadObjectTable load_bad_objects(const std::string& source_dir) {
  const std::string path = source_dir + "/tests/golden/bad_objects.yaml";
  const auto table = api::yaml_to_json(read_text(path), path);
  if (!table.ok()) throw std::runtime_error(table.error().message);
  BadObjectTable out;
  for (const auto& [kind, base] : table->at("bases").items()) out.good.push_back(base);
  for (const auto& item : table->at("cases")) {
    BadObject bad;
    bad.name = item.at("name").get<std::string>();
    bad.object = table->at("bases").at(item.at("base").get<std::string>());
    bad.object.merge_patch(item.at("patch"));
    for (const auto& error : item.at("errors")) {
      bad.errors.push_back(
          {error.at("path").get<std::string>(), error.at("class").get<std::string>(), error.value("message", "")});
    }
    out.cases.push_back(std::move(bad));
  }
  return out;
}

}  // namespace windlass::fakes
