// Parses the steps of a tokenizer.json that have a "type": normalizers, pre-tokenizers and decoders. An unsupported type or
// value is an error here, never a silent difference in ids.
#include <algorithm>
#include <unordered_map>

#include "worker/model/tokenizer_fields.h"
#include "worker/model/tokenizer_json.h"

namespace windlass::worker::tokenizer_fields {
namespace {

// Each step can multiply a text's length. Models have at most ten steps, each inserting one or two characters; a file with more
// than this is made to exhaust memory.
constexpr std::size_t kMaxSteps = 32;
constexpr std::size_t kMaxByteLevels = 4;
constexpr std::size_t kMaxContent = 64;  // bytes

template <class Step>
void check_count(const std::vector<Step>& steps, const std::string& where) {
  if (steps.size() > kMaxSteps) complain(where, "more", fmt::format("at most {} steps in all", kMaxSteps));
}

std::string content_of(const json& value, const std::string& where, const char* field) {
  std::string text = text_of(value, where, field);
  if (text.size() > kMaxContent)
    complain(where + "." + field, fmt::format("{}", text.size()), fmt::format("at most {} bytes", kMaxContent));
  return text;
}

constexpr const char* kWhiteSpace = "\\s";
// Words as in Rust's regular expressions, and runs of neither words nor white space.
constexpr const char* kWordOrNot =
    "[\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{200C}\\x{200D}]+|[^\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{200C}\\x{200D}\\s]+";
constexpr const char* kPunctuation = "[\\p{P}$+<=>\\^`|~]";

PatternSpec pattern_of(const json& value, const std::string& where) {
  const json& pattern = child(value, where, "pattern", "{\"String\": ...} or {\"Regex\": ...}");
  const bool regex = pattern.is_object() && pattern.contains("Regex");
  return {text_of(pattern, where + ".pattern", regex ? "Regex" : "String"), regex};
}

SplitBehavior behavior_of(const json& value, const std::string& where, const char* fallback) {
  const std::string name = text_or(value, where, "behavior", fallback);
  static const std::unordered_map<std::string, SplitBehavior> kNames = {
      {"Removed", SplitBehavior::kRemoved},
      {"Isolated", SplitBehavior::kIsolated},
      {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
      {"MergedWithNext", SplitBehavior::kMergedWithNext},
      {"Contiguous", SplitBehavior::kContiguous}};
  const auto found = kNames.find(name);
  if (found == kNames.end()) {
    complain(where + ".behavior", "\"" + name + "\"",
             "\"Removed\", \"Isolated\", \"MergedWithPrevious\", \"MergedWithNext\" or \"Contiguous\"");
  }
  return found->second;
}

std::string character_of(const json& value, const std::string& where, const char* field) {
  std::string text = text_of(value, where, field);
  if (text.empty() || character_bytes(text) != text.size())
    complain(where + "." + field, shown(value.at(field)), "one character");
  return text;
}

PrependScheme prepend_scheme_of(const json& value, const std::string& where) {
  // Files from before prepend_scheme have a flag.
  if (!value.contains("prepend_scheme"))
    return flag(value, where, "add_prefix_space", true) ? PrependScheme::kAlways : PrependScheme::kNever;
  const std::string scheme = text_of(value, where, "prepend_scheme");
  if (scheme == "first") return PrependScheme::kFirst;
  if (scheme == "always") return PrependScheme::kAlways;
  if (scheme != "never") complain(where + ".prepend_scheme", "\"" + scheme + "\"", "\"first\", \"always\" or \"never\"");
  return PrependScheme::kNever;
}

PretokenizerStep splits(PatternSpec pattern, SplitBehavior behavior, bool invert = false) {
  PretokenizerStep step;
  step.pattern = std::move(pattern);
  step.behavior = behavior;
  step.invert = invert;
  return step;
}

PretokenizerStep pretokenizer_step(const json& value, const std::string& where, const std::string& type) {
  if (type == "ByteLevel") {
    PretokenizerStep step = splits({std::string(kGpt2Pattern), true}, SplitBehavior::kIsolated);
    step.kind = PretokenizerStep::Kind::kByteLevel;
    step.prefix_space = flag(value, where, "add_prefix_space", true);
    step.cuts = flag(value, where, "use_regex", true);
    return step;
  }
  if (type == "Metaspace") {
    const std::string symbol = character_of(value, where, "replacement");
    PretokenizerStep step = splits({symbol, false}, SplitBehavior::kMergedWithNext);
    step.kind = PretokenizerStep::Kind::kMetaspace;
    step.symbol = symbol;
    step.prepend = prepend_scheme_of(value, where);
    step.cuts = flag(value, where, "split", true);
    return step;
  }
  if (type == "Split") {
    return splits(pattern_of(value, where), behavior_of(value, where, "Isolated"), flag(value, where, "invert", false));
  }
  if (type == "Digits") {
    const bool each = flag(value, where, "individual_digits", false);
    return splits({"\\p{N}", true}, each ? SplitBehavior::kIsolated : SplitBehavior::kContiguous);
  }
  if (type == "Punctuation") return splits({kPunctuation, true}, behavior_of(value, where, "Isolated"));
  if (type == "Whitespace") return splits({kWordOrNot, true}, SplitBehavior::kRemoved, true);
  if (type == "WhitespaceSplit") return splits({kWhiteSpace, true}, SplitBehavior::kRemoved);
  if (type == "CharDelimiterSplit") return splits({character_of(value, where, "delimiter"), false}, SplitBehavior::kRemoved);
  complain_of_type(
      where, type,
      "\"ByteLevel\", \"CharDelimiterSplit\", \"Digits\", \"Metaspace\", \"Punctuation\", \"Sequence\", \"Split\", "
      "\"Whitespace\" or \"WhitespaceSplit\"");
}

std::size_t count_of(const json& value, const std::string& where, const char* field) {
  const json& count = child(value, where, field, "a number");
  if (!count.is_number_unsigned() || count.get<std::uint64_t>() > 1000)
    complain(where + "." + field, shown(count), "a number from 0 to 1000");
  return count.get<std::size_t>();
}

// `fused`: an earlier step has joined the tokens to one text, but the engine sends tokens as they come and only sees a part at
// a time.
DecoderStep decoder_step(const json& value, const std::string& where, const std::string& type, bool fused) {
  using Kind = DecoderStep::Kind;
  DecoderStep step;
  step.where = where;
  if (type == "Replace") {
    step.kind = Kind::kReplace;
    step.pattern = pattern_of(value, where);
    step.text = content_of(value, where, "content");
    const bool character = !step.pattern.regex && character_bytes(step.pattern.text + " ") == step.pattern.text.size();
    if (fused && !character) complain(where + ".pattern", shown(value.at("pattern")), "one character after tokens are fused");
    return step;
  }
  if (type == "Strip") {
    step.kind = fused ? Kind::kStripText : Kind::kStrip;
    step.text = character_of(value, where, "content");
    step.start = count_of(value, where, "start");
    step.stop = count_of(value, where, "stop");
    if (fused && step.stop > 0) complain(where + ".stop", shown(value.at("stop")), "0 after tokens are fused");
    return step;
  }
  if (fused) complain_of_type(where, type, "\"Replace\" or \"Strip\" after tokens are fused");
  if (type == "ByteLevel") {
    step.kind = Kind::kByteLevel;
  } else if (type == "ByteFallback") {
    step.kind = Kind::kByteFallback;
  } else if (type == "Metaspace") {
    step.kind = Kind::kMetaspace;
    step.pattern.text = character_of(value, where, "replacement");
    step.first_space = prepend_scheme_of(value, where) != PrependScheme::kNever;
  } else if (type == "BPEDecoder") {
    step.kind = Kind::kWordSuffix;
    step.pattern.text = text_or(value, where, "suffix", "</w>");
  } else {
    complain_of_type(
        where, type,
        "\"BPEDecoder\", \"ByteFallback\", \"ByteLevel\", \"Fuse\", \"Metaspace\", \"Replace\", \"Sequence\" or \"Strip\"");
  }
  return step;
}

void read_decoders(const json& value, const std::string& where, std::vector<DecoderStep>& steps, bool& fused) {
  const std::string type = text_of(value, where, "type");
  if (type == "Sequence") {
    const json& list = list_of(value, where, "decoders");
    for (std::size_t i = 0; i < list.size(); ++i)
      read_decoders(list[i], fmt::format("{}.decoders[{}]", where, i), steps, fused);
  } else if (type == "Fuse") {
    fused = true;
  } else {
    steps.push_back(decoder_step(value, where, type, fused));
    check_count(steps, where);
    fused = fused || type == "ByteLevel";
  }
}

}  // namespace

void read_normalizer(const json& value, const std::string& where, std::vector<NormalizerStep>& steps) {
  using Kind = NormalizerStep::Kind;
  if (value.is_null()) return;
  const std::string type = text_of(value, where, "type");
  if (type == "Sequence") {
    const json& list = list_of(value, where, "normalizers");
    for (std::size_t i = 0; i < list.size(); ++i) read_normalizer(list[i], fmt::format("{}.normalizers[{}]", where, i), steps);
    return;
  }
  static const std::unordered_map<std::string, Kind> kNames = {{"NFC", Kind::kNfc},
                                                               {"NFD", Kind::kNfd},
                                                               {"NFKC", Kind::kNfkc},
                                                               {"NFKD", Kind::kNfkd},
                                                               {"Lowercase", Kind::kLowercase},
                                                               {"StripAccents", Kind::kStripAccents},
                                                               {"Strip", Kind::kStrip},
                                                               {"Prepend", Kind::kPrepend},
                                                               {"Replace", Kind::kReplace}};
  const auto found = kNames.find(type);
  if (found == kNames.end()) {
    complain_of_type(where, type,
                     "null, \"Lowercase\", \"NFC\", \"NFD\", \"NFKC\", \"NFKD\", \"Prepend\", \"Replace\", \"Sequence\", "
                     "\"Strip\" or \"StripAccents\"");
  }
  NormalizerStep step;
  step.kind = found->second;
  step.where = where;
  if (step.kind == Kind::kStrip) {
    step.left = flag(value, where, "strip_left", true);
    step.right = flag(value, where, "strip_right", true);
  } else if (step.kind == Kind::kPrepend) {
    step.text = content_of(value, where, "prepend");
  } else if (step.kind == Kind::kReplace) {
    step.pattern = pattern_of(value, where);
    step.text = content_of(value, where, "content");
  }
  steps.push_back(std::move(step));
  check_count(steps, where);
}

void read_pretokenizer(const json& value, const std::string& where, std::vector<PretokenizerStep>& steps) {
  if (value.is_null()) return;
  const std::string type = text_of(value, where, "type");
  if (type == "Sequence") {
    const json& list = list_of(value, where, "pretokenizers");
    for (std::size_t i = 0; i < list.size(); ++i)
      read_pretokenizer(list[i], fmt::format("{}.pretokenizers[{}]", where, i), steps);
    return;
  }
  steps.push_back(pretokenizer_step(value, where, type));
  steps.back().where = where;
  check_count(steps, where);
  const auto byte_levels = std::count_if(
      steps.begin(), steps.end(), [](const PretokenizerStep& step) { return step.kind == PretokenizerStep::Kind::kByteLevel; });
  if (static_cast<std::size_t>(byte_levels) > kMaxByteLevels)
    complain(where, "more", fmt::format("at most {} \"ByteLevel\" steps", kMaxByteLevels));
}

void read_decoder(const json& value, const std::string& where, std::vector<DecoderStep>& steps) {
  bool fused = false;
  if (!value.is_null()) read_decoders(value, where, steps, fused);
}

}  // namespace windlass::worker::tokenizer_fields
