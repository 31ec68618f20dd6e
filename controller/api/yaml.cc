// Converts yaml-cpp's nodes to JSON, typed like goyaml v2's resolver, which kubectl and the API server use.
//
// Depth and size are limited: a small text with aliases can describe a huge document.
#include "controller/api/yaml.h"

#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <regex>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <yaml-cpp/yaml.h>

namespace windlass::api {
namespace {

using nlohmann::json;

constexpr int kMaxDepth = 200;
constexpr int kMaxValues = 100'000;

struct Refusal {
  int line;
  std::string what;
};

bool any_of(const std::string& text, std::initializer_list<const char*> words) {
  for (const char* word : words) {
    if (text == word) return true;
  }
  return false;
}

// A double without a fraction becomes an integer: kubectl sends 95.0 as 95.
json number(double value) {
  if (std::trunc(value) == value && std::fabs(value) < 0x1p63) return static_cast<std::int64_t>(value);
  return value;
}

// Go's ParseInt(text, 0, 64): a sign, then 0x, 0o, 0b, or a leading 0 for octal.
bool integer(std::string text, json* out) {
  bool negative = false;
  if (!text.empty() && (text[0] == '+' || text[0] == '-')) {
    negative = text[0] == '-';
    text.erase(0, 1);
  }
  int base = 10;
  if (text.size() > 2 && text[0] == '0') {
    const char kind = static_cast<char>(std::tolower(static_cast<unsigned char>(text[1])));
    base = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 10;
    if (base != 10) text.erase(0, 2);
  }
  if (base == 10 && text.size() > 1 && text[0] == '0') base = 8;
  if (text.empty() || !std::isxdigit(static_cast<unsigned char>(text[0]))) return false;
  errno = 0;
  char* end = nullptr;
  const unsigned long long value = std::strtoull(text.c_str(), &end, base);
  if (*end != '\0' || errno != 0) return false;
  constexpr auto kLargest = static_cast<unsigned long long>(std::numeric_limits<std::int64_t>::max());
  if (negative) {
    if (value > kLargest + 1) return false;
    *out = static_cast<std::int64_t>(~value + 1);
  } else if (value > kLargest) {
    *out = static_cast<std::uint64_t>(value);
  } else {
    *out = static_cast<std::int64_t>(value);
  }
  return true;
}

json plain_scalar(const std::string& text, int line) {
  if (any_of(text, {"", "~", "null", "Null", "NULL"})) return nullptr;
  if (any_of(text, {"y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"})) return true;
  if (any_of(text, {"n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"})) return false;
  if (any_of(text, {".nan", ".NaN", ".NAN", ".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF", "-.inf", "-.Inf", "-.INF"})) {
    throw Refusal{line, fmt::format("must be a number that JSON can hold (got {}); quote it if text is meant", text)};
  }
  const char first = text[0];
  if (first != '+' && first != '-' && first != '.' && !std::isdigit(static_cast<unsigned char>(first))) return text;
  std::string digits;
  for (const char c : text) {
    if (c != '_' || first == '.') digits += c;
  }
  json value;
  if (first != '.' && integer(digits, &value)) return value;
  static const std::regex kFloat(R"(^[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$)");
  if (digits.size() < 64 && std::regex_match(digits, kFloat)) {
    const double parsed = std::strtod(digits.c_str(), nullptr);
    if (!std::isfinite(parsed)) throw Refusal{line, fmt::format("must be a number that JSON can hold (got {})", text)};
    return number(parsed);
  }
  return text;
}

class Converter {
 public:
  explicit Converter(std::map<std::string, int>* line_of) : line_of_(line_of) {}

  json convert(const YAML::Node& node, const std::string& path, int depth) {
    const int line = line_of_node(node);
    if (depth > kMaxDepth) throw Refusal{line, fmt::format("must be nested at most {} levels deep", kMaxDepth)};
    if (++values_ > kMaxValues) throw Refusal{line, fmt::format("must hold at most {} values", kMaxValues)};
    line_of_->emplace(path, line);
    switch (node.Type()) {
      case YAML::NodeType::Undefined:
      case YAML::NodeType::Null: return nullptr;
      case YAML::NodeType::Scalar: return scalar(node, line);
      case YAML::NodeType::Sequence: {
        json list = json::array();
        for (std::size_t i = 0; i < node.size(); ++i) {
          list.push_back(convert(node[i], fmt::format("{}[{}]", path, i), depth + 1));
        }
        return list;
      }
      case YAML::NodeType::Map: return map(node, path, depth);
    }
    return nullptr;
  }

 private:
  static int line_of_node(const YAML::Node& node) { return std::max(0, node.Mark().line) + 1; }

  static json scalar(const YAML::Node& node, int line) {
    const std::string& tag = node.Tag();
    const std::string& text = node.Scalar();
    if (tag == "!" || tag == "tag:yaml.org,2002:str") return text;  // quoted, or tagged as a string
    if (tag == "?" || tag.empty()) return plain_scalar(text, line);
    json value = plain_scalar(text, line);
    if (tag == "tag:yaml.org,2002:int" && value.is_number_integer()) return value;
    if (tag == "tag:yaml.org,2002:float" && value.is_number()) return value;
    if (tag == "tag:yaml.org,2002:bool" && value.is_boolean()) return value;
    if (tag == "tag:yaml.org,2002:null" && value.is_null()) return value;
    throw Refusal{
        line,
        fmt::format("must be tagged !!str, !!int, !!float, !!bool or !!null, according to its type (got \"{}\" tagged {})",
                    text, tag)};
  }

  std::string key_text(const YAML::Node& key) {
    if (!key.IsScalar() && !key.IsNull()) throw Refusal{line_of_node(key), "must have text as keys (got a list or map)"};
    const json value = key.IsNull() ? json(nullptr) : scalar(key, line_of_node(key));
    if (value.is_string()) return value.get<std::string>();
    return value.dump();  // as kubectl does: 1 -> "1", true -> "true"
  }

  json map(const YAML::Node& node, const std::string& path, int depth) {
    json object = json::object();
    std::vector<json> merged;
    for (const auto& entry : node) {
      const bool plain = entry.first.IsScalar() && entry.first.Tag() == "?";
      if (plain && entry.first.Scalar() == "<<") {
        add_merge(entry.second, path, depth, &merged);
        continue;
      }
      const std::string key = key_text(entry.first);
      const int line = line_of_node(entry.first);
      const std::string child = path.empty() ? key : fmt::format("{}.{}", path, key);
      if (object.contains(key)) throw Refusal{line, fmt::format("key \"{}\" is already set in this map", key)};
      json value = convert(entry.second, child, depth + 1);
      (*line_of_)[child] = line;
      object.emplace(key, std::move(value));
    }
    for (const json& source : merged) {  // the map's own keys win
      for (const auto& [key, value] : source.items()) object.emplace(key, value);
    }
    return object;
  }

  void add_merge(const YAML::Node& source, const std::string& path, int depth, std::vector<json>* merged) {
    if (source.IsSequence()) {
      for (std::size_t i = 0; i < source.size(); ++i) add_merge(source[i], path, depth + 1, merged);
      return;
    }
    if (!source.IsMap() || depth > kMaxDepth) throw Refusal{line_of_node(source), "<<: must be a map or a list of maps"};
    merged->push_back(convert(source, path, depth + 1));
  }

  std::map<std::string, int>* line_of_;
  int values_ = 0;
};

bool needs_quotes(const std::string& text) {
  static const std::regex kPlain(R"(^[A-Za-z_/][A-Za-z0-9_./()-]*( [A-Za-z0-9_./()-]+)*$)");
  if (text.size() > 1000 || !std::regex_match(text, kPlain)) return true;
  return !plain_scalar(text, 0).is_string();
}

// Whether the lines can be written as a literal block ("|"): printable ASCII, no line empty or indented, a newline at the end.
bool is_block(const std::string& text) {
  if (text.empty() || text.back() != '\n') return false;
  bool begins = true;
  for (const char c : text) {
    if (begins ? c <= ' ' : c < ' ' && c != '\n') return false;
    if (c > '~') return false;
    begins = c == '\n';
  }
  return true;
}

void print(const json& value, int indent, bool in_list, std::string* out) {
  const std::string pad(static_cast<std::size_t>(indent), ' ');
  if (value.is_object() && !value.empty()) {
    bool first = true;
    for (const auto& [key, child] : value.items()) {
      if (!(first && in_list)) *out += pad;
      first = false;
      *out += needs_quotes(key) ? json(key).dump() : key;
      *out += ":";
      const bool nested = child.is_structured() && !child.empty();
      *out += nested ? "\n" : " ";
      print(child, child.is_array() ? indent : indent + 2, false, out);
    }
  } else if (value.is_array() && !value.empty()) {
    for (const json& child : value) {
      if (!(in_list && &child == &value.front())) *out += pad;
      *out += "- ";
      print(child, indent + 2, true, out);
    }
  } else if (value.is_string() && indent > 0 && is_block(value.get_ref<const std::string&>())) {
    *out += "|\n";
    const std::string& text = value.get_ref<const std::string&>();
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = text.find('\n', begin) + 1;
      *out += pad + text.substr(begin, end - begin);
      begin = end;
    }
  } else {
    const bool plain_text = value.is_string() && !needs_quotes(value.get_ref<const std::string&>());
    *out += plain_text ? value.get<std::string>() : value.dump();
    *out += "\n";
  }
}

}  // namespace

Result<std::vector<YamlDocument>> parse_yaml(std::string_view text, const std::string& source_name) {
  const auto refuse = [&](int line, const std::string& what) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("{}:{}: {}", source_name, std::max(1, line), what)};
  };
  try {
    std::vector<YamlDocument> documents;
    for (const YAML::Node& node : YAML::LoadAll(std::string(text))) {
      if (!node.IsDefined() || node.IsNull()) continue;
      YamlDocument document;
      Converter converter(&document.line_of);
      const json value = converter.convert(node, "", 0);
      document.line = std::max(0, node.Mark().line) + 1;
      document.json = value.dump();
      documents.push_back(std::move(document));
    }
    return documents;
  } catch (const Refusal& refusal) {
    return refuse(refusal.line, refusal.what);
  } catch (const YAML::Exception& error) {
    return refuse(error.mark.line + 1, "not YAML: " + error.msg);
  } catch (const json::exception&) {
    return refuse(1, "not UTF-8 text");
  }
}

Result<json> yaml_to_json(std::string_view text, const std::string& source_name) {
  WINDLASS_ASSIGN_OR_RETURN(const std::vector<YamlDocument> documents, parse_yaml(text, source_name));
  if (documents.size() != 1) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{}: must hold 1 YAML document (got {})", source_name, documents.size())};
  }
  return json::parse(documents.front().json, nullptr, false);
}

std::string to_yaml(const json& value) {
  std::string out;
  print(value, 0, false, &out);
  return out;
}

}  // namespace windlass::api
