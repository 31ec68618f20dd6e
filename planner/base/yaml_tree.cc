// YamlValue trees: see yaml_tree.h. Built from yaml-cpp's events and not its nodes, which lose aliases, duplicate keys and
// quotes.
#include "planner/base/yaml_tree.h"

#include <algorithm>
#include <sstream>

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include "planner/base/foreign_text.h"

namespace windlass {
namespace {

constexpr std::size_t kMaxBytes = std::size_t{64} << 20;
constexpr std::size_t kMaxValues = 4'000'000;
constexpr std::size_t kMaxMembers = 64;  // per map: keys are compared one by one
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
    refuse(mark, "must be a value written out (got an alias, *name)");
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
  // A container that has not ended. Its address stays valid meanwhile, because nothing is added next to it.
  struct Open {
    YamlValue* value;
    bool has_key = false;  // for a map: the next value belongs to its last member
  };

  static int line_of(const YAML::Mark& mark) { return std::max(0, mark.line) + 1; }
  [[noreturn]] static void refuse(const YAML::Mark& mark, std::string what) { throw Refusal{line_of(mark), std::move(what)}; }

  bool key_expected() const {
    return !open_.empty() && open_.back().value->kind == YamlValue::Kind::kMap && !open_.back().has_key;
  }

  void check(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor) {
    if (anchor != YAML::NullAnchor) refuse(mark, "must be a value written out (got an anchor, &name)");
    if (!tag.empty() && tag != "?" && tag != "!")
      refuse(mark, fmt::format("must be a value without a tag (got the tag {})", shown_text(tag)));
    if (++values_ > kMaxValues) refuse(mark, fmt::format("holds more than {} values", kMaxValues));
  }

  // Returns where the next value goes.
  YamlValue& place(const YAML::Mark& mark, YamlValue::Kind kind) {
    YamlValue* value = &root_;
    if (!open_.empty()) {
      Open& open = open_.back();
      if (open.value->kind == YamlValue::Kind::kList) {
        value = &open.value->items.emplace_back();
      } else {
        open.has_key = false;
        value = &open.value->members.back().value;
        // An empty value has the mark of whatever comes next, possibly lines later.
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
        refuse(mark, fmt::format("keys must be unique (got {} again, after line {})", shown_text(text), member.line));
    }
    if (members.size() == kMaxMembers) refuse(mark, fmt::format("a map must have at most {} keys (got more)", kMaxMembers));
    YamlMember& member = members.emplace_back();
    member.key = text;
    member.line = line_of(mark);
    open_.back().has_key = true;
  }

  void leaf(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, YamlValue::Kind kind,
            const std::string& text) {
    check(mark, tag, anchor);
    if (key_expected()) {
      if (kind == YamlValue::Kind::kNull) refuse(mark, "a key must be text (got nothing)");
      add_key(mark, text);
      return;
    }
    YamlValue& value = place(mark, kind);
    value.text = text;
    value.quoted = tag == "!";
  }

  void open(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, YamlValue::Kind kind) {
    check(mark, tag, anchor);
    if (key_expected()) refuse(mark, "a key must be text (got a list or map, or one that is not closed)");
    if (open_.size() == kDeepest) refuse(mark, fmt::format("nested deeper than {} levels", kDeepest));
    open_.push_back(Open{&place(mark, kind)});
  }

  YamlValue root_;
  std::vector<Open> open_;
  std::size_t values_ = 0;
};

}  // namespace

const YamlValue* member_of(const YamlValue& value, std::string_view key) {
  for (const YamlMember& member : value.members) {
    if (member.key == key) return &member.value;
  }
  return nullptr;
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
  if (text.size() > kMaxBytes) return refused(1, fmt::format("must be at most {} bytes (got {})", kMaxBytes, text.size()));
  try {
    std::istringstream in{std::string(text)};
    YAML::Parser parser(in);
    TreeBuilder first;
    if (!parser.HandleNextDocument(first)) return refused(1, "must be one YAML document (got no value)");
    TreeBuilder second;
    if (parser.HandleNextDocument(second)) {
      return refused(std::move(second).take().line, "must be one YAML document (got a second one)");
    }
    return std::move(first).take();
  } catch (const Refusal& refusal) {
    return refused(refusal.line, refusal.what);
  } catch (const YAML::Exception& error) {
    return refused(error.mark.line + 1, "not YAML: " + shown_text(error.msg));
  }
}

}  // namespace windlass
