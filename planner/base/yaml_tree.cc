// See yaml_tree.h. Built from yaml-cpp's events rather than its nodes: those forget aliases, duplicate keys and quotes.
#include "planner/base/yaml_tree.h"

#include <algorithm>
#include <sstream>

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

namespace windlass {
namespace {

constexpr std::size_t kMostBytes = std::size_t{64} << 20;
constexpr std::size_t kMostValues = 4'000'000;
constexpr std::size_t kMostMembers = 64;  // of one map: keys are compared one by one
constexpr std::size_t kDeepest = 16;

struct Refusal {
  int line;
  std::string what;
};

class TreeBuilder final : public YAML::EventHandler {
 public:
  YamlValue take() && { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override { leaf(mark, "", anchor, YamlValue::Kind::kNull, ""); }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    refuse(mark, "found an alias (*name), allowed are values written out");
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, const std::string& value) override {
    leaf(mark, tag, anchor, YamlValue::Kind::kText, value);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(mark, tag, anchor, YamlValue::Kind::kList);
  }
  void OnSequenceEnd() override { open_.pop_back(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, YAML::EmitterStyle::value) override {
    open(mark, tag, anchor, YamlValue::Kind::kMap);
  }
  void OnMapEnd() override { open_.pop_back(); }

 private:
  // A container that is not yet at its end. Its own place does not move meanwhile: nothing is added beside it.
  struct Open {
    YamlValue* value;
    bool has_key = false;  // of a map: the next value belongs to its last member
  };

  static int line_of(const YAML::Mark& mark) { return std::max(0, mark.line) + 1; }
  [[noreturn]] static void refuse(const YAML::Mark& mark, std::string what) { throw Refusal{line_of(mark), std::move(what)}; }

  bool key_expected() const {
    return !open_.empty() && open_.back().value->kind == YamlValue::Kind::kMap && !open_.back().has_key;
  }

  void check(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor) {
    if (anchor != YAML::NullAnchor) refuse(mark, "found an anchor (&name), allowed are values written out");
    if (!tag.empty() && tag != "?" && tag != "!")
      refuse(mark, fmt::format("found the tag {}, allowed are values without tags", shown_text(tag)));
    if (++values_ > kMostValues) refuse(mark, fmt::format("holds more than {} values", kMostValues));
  }

  // Where the next value goes.
  YamlValue& place(const YAML::Mark& mark, YamlValue::Kind kind) {
    YamlValue* value = &root_;
    if (!open_.empty()) {
      Open& open = open_.back();
      if (open.value->kind == YamlValue::Kind::kList) {
        value = &open.value->items.emplace_back();
      } else {
        open.has_key = false;
        value = &open.value->members.back().value;
        // The mark of a value that is not there is that of whatever comes next, lines later perhaps.
        if (kind == YamlValue::Kind::kNull) {
          value->kind = kind;
          value->line = open.value->members.back().line;
          return *value;
        }
      }
    }
    value->kind = kind;
    value->line = line_of(mark);
    return *value;
  }

  void add_key(const YAML::Mark& mark, const std::string& text) {
    auto& members = open_.back().value->members;
    for (const YamlMember& member : members) {
      if (member.key == text)
        refuse(mark, fmt::format("found {} a second time, after line {}; allowed is one value for a key", shown_text(text),
                                 member.line));
    }
    if (members.size() == kMostMembers) refuse(mark, fmt::format("found more than {} keys in one map", kMostMembers));
    YamlMember& member = members.emplace_back();
    member.key = text;
    member.line = line_of(mark);
    open_.back().has_key = true;
  }

  void leaf(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, YamlValue::Kind kind,
            const std::string& text) {
    check(mark, tag, anchor);
    if (key_expected()) {
      if (kind == YamlValue::Kind::kNull) refuse(mark, "found nothing as a key, allowed is text");
      add_key(mark, text);
      return;
    }
    YamlValue& value = place(mark, kind);
    value.text = text;
    value.quoted = tag == "!";
  }

  void open(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, YamlValue::Kind kind) {
    check(mark, tag, anchor);
    if (key_expected()) refuse(mark, "found a list or map as a key, or one that is not closed; allowed is text as a key");
    if (open_.size() == kDeepest) refuse(mark, fmt::format("nested deeper than {} levels", kDeepest));
    open_.push_back(Open{&place(mark, kind)});
  }

  YamlValue root_;
  std::vector<Open> open_;
  std::size_t values_ = 0;
};

// The length of the well-formed UTF-8 character at `at`, 0 if there is none.
std::size_t utf8_length(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0u; };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  const std::size_t length = first >= 0xC2 && first < 0xE0   ? 2
                             : first >= 0xE0 && first < 0xF0 ? 3
                             : first >= 0xF0 && first < 0xF5 ? 4
                                                             : 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  const unsigned second = byte(1);
  const bool refused = (first == 0xE0 && second < 0xA0) || (first == 0xED && second >= 0xA0) ||
                       (first == 0xF0 && second < 0x90) || (first == 0xF4 && second >= 0x90);
  return refused ? 0 : length;
}

bool is_control(std::string_view character) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(character[i]); };
  switch (character.size()) {
    case 1: return byte(0) < 0x20 || byte(0) == 0x7F;
    case 2: return byte(0) == 0xC2 && byte(1) < 0xA0;  // U+0080 to U+009F
    case 3:
      return (byte(0) == 0xE2 && byte(1) == 0x80 && (byte(2) == 0xA8 || byte(2) == 0xA9)) ||  // line, paragraph separator
             (byte(0) == 0xE2 && byte(1) == 0x80 && byte(2) >= 0xAA && byte(2) <= 0xAE) ||    // directions
             (byte(0) == 0xEF && byte(1) == 0xBB && byte(2) == 0xBF) ||                       // byte order mark
             (byte(0) == 0xEF && byte(1) == 0xBF && byte(2) >= 0xBE);                         // U+FFFE, U+FFFF
    default: return false;
  }
}

}  // namespace

bool is_printable(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = utf8_length(text, at);
    if (length == 0 || is_control(text.substr(at, length))) return false;
    at += length;
  }
  return true;
}

std::string shown_text(std::string_view text) {
  constexpr std::size_t kLongest = 60;
  std::string shown;
  for (std::size_t at = 0; at < text.size();) {
    if (shown.size() >= kLongest) return shown + "...";
    const std::size_t length = utf8_length(text, at);
    const bool good = length > 0 && !is_control(text.substr(at, length));
    shown += good ? text.substr(at, length) : "?";
    at += std::max<std::size_t>(1, length);
  }
  return shown;
}

std::string found_text(const YamlValue& value) {
  switch (value.kind) {
    case YamlValue::Kind::kNull: return "nothing";
    case YamlValue::Kind::kText: return fmt::format("{}'{}'", value.quoted ? "the text " : "", shown_text(value.text));
    case YamlValue::Kind::kList: return "a list";
    case YamlValue::Kind::kMap: return "a map";
  }
  return "";
}

Result<YamlValue> parse_yaml_tree(std::string_view text, const std::string& source) {
  const auto refused = [&](int line, const std::string& what) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("{}:{}: {}", source, std::max(1, line), what)};
  };
  if (text.size() > kMostBytes) return refused(1, fmt::format("found {} bytes, allowed are {}", text.size(), kMostBytes));
  try {
    std::istringstream in{std::string(text)};
    YAML::Parser parser(in);
    TreeBuilder first;
    if (!parser.HandleNextDocument(first)) return refused(1, "found no value, allowed is one YAML document");
    TreeBuilder second;
    if (parser.HandleNextDocument(second)) {
      return refused(std::move(second).take().line, "found a second YAML document, allowed is one");
    }
    return std::move(first).take();
  } catch (const Refusal& refusal) {
    return refused(refusal.line, refusal.what);
  } catch (const YAML::Exception& error) {
    return refused(error.mark.line + 1, "not YAML: " + shown_text(error.msg));
  }
}

}  // namespace windlass
