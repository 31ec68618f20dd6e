// Implements the string methods that templates may call, with the semantics of Python's str. Results keep the origin of each
// byte (text.h).
#include <algorithm>
#include <array>
#include <utility>

#include <fmt/core.h>
#include <unicode/locid.h>
#include <unicode/uchar.h>
#include <unicode/unistr.h>

#include "worker/jinja/builtins.h"

namespace windlass::jinja {
namespace {

constexpr std::array<std::string_view, 29> kTextMethods = {
    "capitalize",   "count",   "endswith", "find",       "index",  "isalnum", "isalpha",   "isdigit",
    "islower",      "isspace", "isupper",  "join",       "lower",  "lstrip",  "partition", "removeprefix",
    "removesuffix", "replace", "rfind",    "rpartition", "rsplit", "rstrip",  "split",     "splitlines",
    "startswith",   "strip",   "title",    "upper",      "zfill"};

bool is_space(UChar32 code) { return code >= 0 && (u_isUWhiteSpace(code) || (code >= 0x1c && code <= 0x1f)); }

// Calls each(character) in turn.
template <class Each>
void for_characters(const Text& text, Each each) {
  const auto starts = character_starts(text.bytes());
  for (std::size_t i = 0; i + 1 < starts.size(); ++i) each(text.substr(starts[i], starts[i + 1] - starts[i]));
}

std::vector<Text> characters_of(const Text& text) {
  const auto starts = character_starts(text.bytes());
  std::vector<Text> all;
  all.reserve(starts.size());
  for (std::size_t i = 0; i + 1 < starts.size(); ++i) all.push_back(text.substr(starts[i], starts[i + 1] - starts[i]));
  return all;
}

enum class Case { kUpper, kLower, kTitle };

Text cased(const Text& character, Case wanted) {
  const UChar32 code = code_point(character.bytes());
  if (code < 0) return character;
  icu::UnicodeString text(code);
  switch (wanted) {
    case Case::kUpper: text.toUpper(icu::Locale::getRoot()); break;
    case Case::kLower: text.toLower(icu::Locale::getRoot()); break;
    case Case::kTitle: text.toTitle(nullptr, icu::Locale::getRoot()); break;
  }
  std::string bytes;
  text.toUTF8String(bytes);
  return bytes == character.bytes() ? character : Text::like(character, bytes);
}

Text all_cased(const Text& text, Case wanted) {
  Text out;
  for_characters(text, [&](const Text& character) { out += cased(character, wanted); });
  return out;
}

// Lower-cases letters after a letter and upper-cases the others.
Text titled(const Text& text) {
  Text out;
  bool within = false;
  for_characters(text, [&](const Text& character) {
    out += cased(character, within ? Case::kLower : Case::kTitle);
    const UChar32 code = code_point(character.bytes());
    within = code >= 0 && u_hasBinaryProperty(code, UCHAR_CASED);
  });
  return out;
}

template <class Is>
bool every_character(const Text& text, Is is) {
  bool all = !text.empty();
  for_characters(text, [&](const Text& one) {
    const UChar32 code = code_point(one.bytes());
    all = all && code >= 0 && is(code);
  });
  return all;
}

// True if there are cased letters and all have this case.
template <class Is, class IsOther>
bool only_case(const Text& text, Is is, IsOther is_other) {
  bool any = false, other = false;
  for_characters(text, [&](const Text& one) {
    const UChar32 code = code_point(one.bytes());
    other = other || (code >= 0 && is_other(code));
    any = any || (code >= 0 && is(code));
  });
  return any && !other;
}

bool is_digit_character(UChar32 code) {
  const auto kind = static_cast<UNumericType>(u_getIntPropertyValue(code, UCHAR_NUMERIC_TYPE));
  return kind == U_NT_DECIMAL || kind == U_NT_DIGIT;
}

Value list_of(std::vector<Text> parts, Sequence kind = Sequence::kList) {
  List list;
  list.kind = kind;
  for (Text& part : parts) list.items.emplace_back(std::move(part));
  return list;
}

// Splits at white space, at most `most` times; negative: no limit.
std::vector<Text> split_words(const Text& text, std::int64_t most, bool from_right) {
  const auto starts = character_starts(text.bytes());
  const std::size_t count = starts.size() - 1;
  // The i-th character from the end where we begin.
  const auto space = [&](std::size_t i) {
    const std::size_t at = from_right ? count - 1 - i : i;
    return is_space(code_point(std::string_view(text.bytes()).substr(starts[at], starts[at + 1] - starts[at])));
  };
  const auto part = [&](std::size_t begin, std::size_t end) {
    return from_right ? text.substr(starts[count - end], starts[count - begin] - starts[count - end])
                      : text.substr(starts[begin], starts[end] - starts[begin]);
  };
  std::vector<Text> words;
  for (std::size_t i = 0; i < count;) {
    if (space(i)) {
      ++i;
      continue;
    }
    const bool rest = most >= 0 && static_cast<std::int64_t>(words.size()) == most;
    std::size_t end = rest ? count : i;
    while (end < count && !space(end)) ++end;
    words.push_back(part(i, end));
    i = end;
  }
  if (from_right) std::reverse(words.begin(), words.end());
  return words;
}

std::vector<Text> split_at(const Text& text, const Text& separator, std::int64_t most, bool from_right) {
  if (separator.empty()) throw TemplateError{"split: separator: must not be empty"};
  std::vector<Text> parts;
  if (from_right) {
    std::size_t end = text.size();
    while (most < 0 || static_cast<std::int64_t>(parts.size()) < most) {
      if (end < separator.size()) break;
      const std::size_t found = text.bytes().rfind(separator.bytes(), end - separator.size());
      if (found == std::string::npos) break;
      parts.push_back(text.substr(found + separator.size(), end - found - separator.size()));
      end = found;
    }
    parts.push_back(text.substr(0, end));
    std::reverse(parts.begin(), parts.end());
    return parts;
  }
  std::size_t from = 0;
  while (most < 0 || static_cast<std::int64_t>(parts.size()) < most) {
    const std::size_t found = text.bytes().find(separator.bytes(), from);
    if (found == std::string::npos) break;
    parts.push_back(text.substr(from, found - from));
    from = found + separator.size();
  }
  parts.push_back(text.substr(from));
  return parts;
}

Value split(const Text& self, const Arguments& given, bool from_right) {
  const auto bound = bind("split", given, {"sep", "maxsplit"});
  const std::int64_t most = bound[1] == nullptr ? -1 : as_integer(*bound[1], "split: maxsplit");
  if (bound[0] == nullptr || bound[0]->none()) return list_of(split_words(self, most, from_right));
  return list_of(split_at(self, as_text(*bound[0], "split: sep"), most, from_right));
}

Value partition(const Text& self, const Text& separator, bool from_right) {
  if (separator.empty()) throw TemplateError{"partition: separator: must not be empty"};
  const std::size_t found = from_right ? self.bytes().rfind(separator.bytes()) : self.bytes().find(separator.bytes());
  if (found == std::string::npos)
    return list_of(from_right ? std::vector<Text>{{}, {}, self} : std::vector<Text>{self, {}, {}}, Sequence::kTuple);
  return list_of({self.substr(0, found), self.substr(found, separator.size()), self.substr(found + separator.size())},
                 Sequence::kTuple);
}

// startswith and endswith: one text or a tuple of them.
bool matches(const Text& self, const Value& wanted, bool at_end) {
  const auto one = [&](const Value& value) {
    const std::string& part = as_text(value, at_end ? "endswith" : "startswith").bytes();
    return at_end ? self.bytes().ends_with(part) : self.bytes().starts_with(part);
  };
  if (const List* list = wanted.list()) return std::any_of(list->items.begin(), list->items.end(), one);
  return one(wanted);
}

// The position of `part`, in characters; -1: not found.
std::int64_t place_of(const Text& self, const Text& part, bool last) {
  const std::size_t found = last ? self.bytes().rfind(part.bytes()) : self.bytes().find(part.bytes());
  if (found == std::string::npos) return -1;
  return static_cast<std::int64_t>(character_starts(std::string_view(self.bytes()).substr(0, found)).size()) - 1;
}

std::int64_t count_of(const Text& self, const Text& part) {
  if (part.empty()) return static_cast<std::int64_t>(character_starts(self.bytes()).size());
  std::int64_t count = 0;
  for (std::size_t at = self.bytes().find(part.bytes()); at != std::string::npos;
       at = self.bytes().find(part.bytes(), at + part.size())) {
    ++count;
  }
  return count;
}

Text filled(const Text& self, std::int64_t width) {
  const std::int64_t length = static_cast<std::int64_t>(character_starts(self.bytes()).size()) - 1;
  const bool sign = self.bytes().starts_with('-') || self.bytes().starts_with('+');
  Text out = self.substr(0, sign ? 1 : 0);
  constexpr std::int64_t kMaxZeros = 1 << 20;
  out += Text::of_template(std::string(static_cast<std::size_t>(std::clamp<std::int64_t>(width - length, 0, kMaxZeros)), '0'));
  out += self.substr(sign ? 1 : 0);
  return out;
}

// Methods without arguments.
Value call_bare_method(const Text& self, std::string_view name) {
  if (name == "upper") return upper(self);
  if (name == "lower") return lower(self);
  if (name == "capitalize") return capitalized(self);
  if (name == "title") return titled(self);
  if (name == "isspace") return every_character(self, is_space);
  if (name == "isalpha") return every_character(self, [](UChar32 code) { return u_isalpha(code) != 0; });
  if (name == "isdigit") return every_character(self, is_digit_character);
  if (name == "isalnum") {
    return every_character(self, [](UChar32 code) {
      return u_isalpha(code) != 0 || u_getIntPropertyValue(code, UCHAR_NUMERIC_TYPE) != U_NT_NONE;
    });
  }
  if (name == "islower") {
    return only_case(
        self, [](UChar32 code) { return u_isULowercase(code) != 0; },
        [](UChar32 code) { return u_isUUppercase(code) != 0 || u_istitle(code) != 0; });
  }
  return only_case(
      self, [](UChar32 code) { return u_isUUppercase(code) != 0; },
      [](UChar32 code) { return u_isULowercase(code) != 0 || u_istitle(code) != 0; });
}

}  // namespace

Text upper(const Text& text) { return all_cased(text, Case::kUpper); }
Text lower(const Text& text) { return all_cased(text, Case::kLower); }

Text capitalized(const Text& text) {
  Text out;
  bool first = true;
  for_characters(text, [&](const Text& one) { out += cased(one, std::exchange(first, false) ? Case::kTitle : Case::kLower); });
  return out;
}

Text stripped(const Text& text, const Text* set, bool left, bool right) {
  const auto starts = character_starts(text.bytes());
  std::vector<Text> unwanted = set == nullptr ? std::vector<Text>() : characters_of(*set);
  const auto goes = [&](std::size_t i) {
    const std::string_view one = std::string_view(text.bytes()).substr(starts[i], starts[i + 1] - starts[i]);
    if (set == nullptr) return is_space(code_point(one));
    return std::any_of(unwanted.begin(), unwanted.end(), [&](const Text& other) { return other.bytes() == one; });
  };
  std::size_t begin = 0;
  std::size_t end = starts.size() - 1;
  while (left && begin < end && goes(begin)) ++begin;
  while (right && end > begin && goes(end - 1)) --end;
  return text.substr(starts[begin], starts[end] - starts[begin]);
}

Text replaced(const Text& text, const Text& from, const Text& to, std::int64_t count) {
  Text out;
  if (from.empty()) {  // before every character and at the end
    std::int64_t done = 0;
    for_characters(text, [&](const Text& one) {
      if (count < 0 || done++ < count) out += to;
      out += one;
    });
    if (count < 0 || done < count) out += to;
    return out;
  }
  const std::vector<Text> parts = split_at(text, from, count, false);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) out += to;
    out += parts[i];
  }
  return out;
}

std::vector<Text> lines_of(const Text& text, bool with_ends) {
  static constexpr std::array<UChar32, 9> kEnds = {'\n', '\v', '\f', 0x1c, 0x1d, 0x1e, 0x85, 0x2028, 0x2029};
  std::vector<Text> lines;
  const auto starts = character_starts(text.bytes());
  std::size_t begin = 0;
  for (std::size_t i = 0; i + 1 < starts.size(); ++i) {
    const UChar32 code = code_point(std::string_view(text.bytes()).substr(starts[i], starts[i + 1] - starts[i]));
    if (code != '\r' && std::find(kEnds.begin(), kEnds.end(), code) == kEnds.end()) continue;
    const std::size_t end = starts[i];
    if (code == '\r' && i + 2 < starts.size() && text.bytes()[starts[i + 1]] == '\n') ++i;
    lines.push_back(text.substr(begin, (with_ends ? starts[i + 1] : end) - begin));
    begin = starts[i + 1];
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

bool has_text_method(std::string_view name) {
  return std::find(kTextMethods.begin(), kTextMethods.end(), name) != kTextMethods.end();
}

Value call_text_method(const Text& self, std::string_view name, const Arguments& given) {
  const auto wanted = [&](std::string_view parameter) -> const Value& {
    const Value* value = bind(name, given, {parameter})[0];
    if (value == nullptr) throw TemplateError{fmt::format("{}: must have {}", name, parameter)};
    return *value;
  };
  const auto wanted_text = [&](std::string_view parameter) -> const Text& { return as_text(wanted(parameter), name); };
  if (name == "strip" || name == "lstrip" || name == "rstrip") {
    const Value* set = bind(name, given, {"chars"})[0];
    const Text* characters = set == nullptr || set->none() ? nullptr : &as_text(*set, name);
    return stripped(self, characters, name != "rstrip", name != "lstrip");
  }
  if (name == "split" || name == "rsplit") return split(self, given, name == "rsplit");
  if (name == "startswith" || name == "endswith") return matches(self, wanted("prefix"), name == "endswith");
  if (name == "find" || name == "rfind") return place_of(self, wanted_text("sub"), name == "rfind");
  if (name == "index") {
    const std::int64_t place = place_of(self, wanted_text("sub"), false);
    if (place < 0) throw TemplateError{"index: the string does not contain it"};
    return place;
  }
  if (name == "count") return count_of(self, wanted_text("sub"));
  if (name == "partition" || name == "rpartition") return partition(self, wanted_text("sep"), name == "rpartition");
  if (name == "removeprefix") {
    const Text& part = wanted_text("prefix");
    return self.bytes().starts_with(part.bytes()) ? self.substr(part.size()) : self;
  }
  if (name == "removesuffix") {
    const Text& part = wanted_text("suffix");
    return self.bytes().ends_with(part.bytes()) ? self.substr(0, self.size() - part.size()) : self;
  }
  if (name == "replace") {
    const auto bound = bind(name, given, {"old", "new", "count"});
    if (bound[0] == nullptr || bound[1] == nullptr) throw TemplateError{"replace: must have two arguments"};
    const std::int64_t count = bound[2] == nullptr ? -1 : as_integer(*bound[2], "replace: count");
    return replaced(self, as_text(*bound[0], name), as_text(*bound[1], name), count);
  }
  if (name == "join") {
    Text out;
    bool first = true;
    for (const Value& item : items_of(wanted("iterable"))) {
      if (!std::exchange(first, false)) out += self;
      out += as_text(item, "join: an item");
    }
    return out;
  }
  if (name == "splitlines") {
    const Value* ends = bind(name, given, {"keepends"})[0];
    return list_of(lines_of(self, ends != nullptr && truth(*ends)));
  }
  if (name == "zfill") return filled(self, as_integer(wanted("width"), "zfill"));
  static_cast<void>(bind(name, given, {}));
  return call_bare_method(self, name);
}

}  // namespace windlass::jinja
