// See catalog_yaml.h.
#include "planner/catalog/catalog_yaml.h"

#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "planner/base/foreign_text.h"
#include "planner/base/yaml_json.h"

namespace windlass::planner {
namespace {

constexpr int kAssumedGpusPerNode = 8;  // as in the catalog

}  // namespace

void refuse_name(YamlReader& reader, const char* key, int line, const std::string& name, std::string_view allowed) {
  reader.wrong_at(line, key, fmt::format("must be {} (got '{}')", allowed, shown_text(name)));
}

AcceleratorSpec read_accelerator(YamlReader& reader, const KnownAccelerators& known, bool may_be_measured) {
  constexpr const char* kKey = "accelerator";
  const std::string name = reader.text(kKey, "the name of an AcceleratorClass or of the catalog");
  if (auto spec = known.find(name)) return *std::move(spec);
  const auto* found = reader.find(kKey);
  if (found != nullptr && !may_be_measured) refuse_name(reader, kKey, found->line, name, known.allowed());
  AcceleratorSpec unknown;
  unknown.name = name;
  unknown.gpus_per_node = kAssumedGpusPerNode;
  return unknown;
}

std::optional<ModelShape> read_model_name(YamlReader& reader) {
  const YamlValue* found = reader.find("name");
  if (found == nullptr) return std::nullopt;
  const std::string name = reader.text("name", "a name of the catalog");
  auto shape = model_shape_by_name(name);
  if (shape.ok()) return std::move(shape).value();
  refuse_name(reader, "name", found->line, name, fmt::format("one of {}", fmt::join(model_shape_names(), ", ")));
  return std::nullopt;
}

std::optional<ModelShape> read_inline_config(YamlReader& reader) {
  YamlReader fields = reader.inside("config", *reader.find("config"));
  const YamlValue* given = fields.require("inline", "a map with the fields of a Hugging Face config.json");
  fields.finish();
  if (given == nullptr || !reader.ok()) return std::nullopt;
  auto shape = model_shape_from_config_json(json_of(*given).dump());
  if (shape.ok()) return std::move(shape).value();
  fields.wrong_at(given->line, "inline", shape.error().message);
  return std::nullopt;
}

}  // namespace windlass::planner
