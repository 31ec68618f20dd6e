// Reads what YAML files of every command say about a model and about accelerators: names, or the fields of a config.json.
// Errors are kept by the reader. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "planner/base/yaml_reader.h"
#include "planner/catalog/known_accelerators.h"
#include "planner/catalog/model_shape.h"

namespace windlass::planner {

// Rejects a name that must be `allowed`.
void refuse_name(YamlReader& reader, const char* key, int line, const std::string& name, std::string_view allowed);

// The data sheet of the accelerator that the key `accelerator` names. `may_be_measured`: an unknown name gives a sheet with
// nothing but the name, because a latency file may have measured it.
[[nodiscard]] AcceleratorSpec read_accelerator(YamlReader& reader, const KnownAccelerators& known,
                                               bool may_be_measured = false);

// Whether more is known of the accelerator than its name.
[[nodiscard]] inline bool has_data_sheet(const AcceleratorSpec& spec) { return !spec.peak_flops.empty(); }

// The shape of the model that the key `name` names. Nullopt: the key is missing, or its value was refused.
[[nodiscard]] std::optional<ModelShape> read_model_name(YamlReader& reader);

// The shape of the model whose config.json the key `config` has as {inline: its fields}, as in a ModelService. Nullopt:
// refused. REQUIRES: the key is there, and its value is a map.
[[nodiscard]] std::optional<ModelShape> read_inline_config(YamlReader& reader);

}  // namespace windlass::planner
