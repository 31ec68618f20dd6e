// Parses and evaluates selectors term by term.
#include "tests/fakes/selectors.h"

#include <algorithm>
#include <optional>
#include <vector>

#include <nlohmann/json.hpp>

namespace windlass::fakes {
namespace {

using nlohmann::json;

std::string trimmed(const std::string& text) {
  std::size_t begin = text.find_first_not_of(' ');
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(' ') - begin + 1);
}

// Splits at commas outside parentheses.
std::vector<std::string> terms_of(const std::string& selector) {
  std::vector<std::string> terms;
  std::string term;
  int depth = 0;
  for (char c : selector) {
    if (c == '(') ++depth;
    if (c == ')') --depth;
    if (c == ',' && depth == 0) {
      terms.push_back(trimmed(term));
      term.clear();
    } else {
      term += c;
    }
  }
  terms.push_back(trimmed(term));
  std::erase(terms, "");
  return terms;
}

std::optional<std::string> label(const json& object, const std::string& key) {
  auto metadata = object.find("metadata");
  if (metadata == object.end()) return std::nullopt;
  auto labels = metadata->find("labels");
  if (labels == metadata->end() || !labels->is_object()) return std::nullopt;
  auto it = labels->find(key);
  return it != labels->end() && it->is_string() ? std::optional(it->get<std::string>()) : std::nullopt;
}

bool in_set(const std::string& set, const std::string& value) {
  std::size_t open = set.find('(');
  std::size_t close = set.rfind(')');
  if (open == std::string::npos || close == std::string::npos) return false;
  std::vector<std::string> values = terms_of(set.substr(open + 1, close - open - 1));
  return std::find(values.begin(), values.end(), value) != values.end();
}

bool label_term_matches(const json& object, const std::string& term) {
  if (std::size_t at = term.find(" notin "); at != std::string::npos) {
    auto value = label(object, trimmed(term.substr(0, at)));
    return !value || !in_set(term.substr(at), *value);
  }
  if (std::size_t at = term.find(" in "); at != std::string::npos) {
    auto value = label(object, trimmed(term.substr(0, at)));
    return value && in_set(term.substr(at), *value);
  }
  if (std::size_t at = term.find("!="); at != std::string::npos) {
    return label(object, trimmed(term.substr(0, at))) != trimmed(term.substr(at + 2));
  }
  if (std::size_t at = term.find('='); at != std::string::npos) {
    std::size_t width = term.compare(at, 2, "==") == 0 ? 2 : 1;
    return label(object, trimmed(term.substr(0, at))) == trimmed(term.substr(at + width));
  }
  if (term.front() == '!') return !label(object, trimmed(term.substr(1)));
  return label(object, term).has_value();
}

std::string field(const json& object, const std::string& path) {
  const json* at = &object;
  for (std::size_t begin = 0; begin <= path.size();) {
    std::size_t end = std::min(path.find('.', begin), path.size());
    if (!at->is_object()) return "";
    auto it = at->find(path.substr(begin, end - begin));
    if (it == at->end()) return "";
    at = &*it;
    begin = end + 1;
  }
  return at->is_string() ? at->get<std::string>() : at->dump();
}

}  // namespace

bool labels_match(const json& object, const std::string& selector) {
  std::vector<std::string> terms = terms_of(selector);
  return std::all_of(terms.begin(), terms.end(), [&](const auto& term) { return label_term_matches(object, term); });
}

bool fields_match(const json& object, const std::string& selector) {
  for (const std::string& term : terms_of(selector)) {
    std::size_t at = term.find('=');
    if (at == std::string::npos) continue;
    bool negated = at > 0 && term[at - 1] == '!';
    std::size_t width = term.compare(at, 2, "==") == 0 ? 2 : 1;
    bool equal = field(object, term.substr(0, negated ? at - 1 : at)) == term.substr(at + width);
    if (equal == negated) return false;
  }
  return true;
}

}  // namespace windlass::fakes
