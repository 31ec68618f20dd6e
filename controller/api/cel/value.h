// A CEL value: JSON, or a CEL type (the result of type(x)).
//
// Values share the JSON they came from, so that `self` is never copied. Plain data; usable on any thread.
#pragma once

#include <memory>
#include <string>

#include <nlohmann/json.hpp>

namespace windlass::api::cel {

class Value {
 public:
  Value() : Value(nlohmann::json(nullptr)) {}
  explicit Value(nlohmann::json owned) : json_(std::make_shared<const nlohmann::json>(std::move(owned))) {}
  // `part` belongs to `whole`. If `whole` is empty, `part` must outlive the value.
  Value(const std::shared_ptr<const nlohmann::json>& whole, const nlohmann::json& part) : json_(whole, &part) {}

  static Value of_type(std::string name) {
    Value value{nlohmann::json(std::move(name))};
    value.is_type_ = true;
    return value;
  }

  [[nodiscard]] bool is_type() const { return is_type_; }
  [[nodiscard]] const nlohmann::json& json() const { return *json_; }
  [[nodiscard]] Value part(const nlohmann::json& inner) const { return Value(json_, inner); }

  // "int", "double", "string", "bool", "list", "map", "null_type", "type"
  [[nodiscard]] std::string type_name() const;

 private:
  std::shared_ptr<const nlohmann::json> json_;
  bool is_type_ = false;
};

}  // namespace windlass::api::cel
