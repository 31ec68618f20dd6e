// Field checks of tokenizer.json. What this engine cannot do is an error here, never a silent difference in ids.
#include "worker/model/tokenizer_json.h"

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "planner/base/shown_json.h"
#include "worker/model/json_input.h"
#include "worker/model/pretokenizer.h"

namespace windlass::worker {
namespace {

using nlohmann::json;

const std::string kSpace(kSpaceSymbol);

// Thrown inside this file alone; parse_tokenizer_json turns it into an Error.
struct Complaint {
  std::string text;
};

[[noreturn]] void complain(const std::string& field, const std::string& found, const std::string& allowed) {
  throw Complaint{fmt::format("field '{}': found {}, allowed is {}", field, found, allowed)};
}

const json& child(const json& object, const std::string& where, const char* field, const char* allowed) {
  if (!object.is_object()) complain(where, shown(object), "an object");
  const auto it = object.find(field);
  if (it == object.end()) complain(where.empty() ? field : where + "." + field, "nothing", allowed);
  return *it;
}

std::string text_of(const json& object, const std::string& where, const char* field) {
  const json& value = child(object, where, field, "a string");
  if (!value.is_string()) complain(where + "." + field, shown(value), "a string");
  return value.get<std::string>();
}

std::int32_t id_of(const json& value, const std::string& where) {
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() > (1U << 24U))
    complain(where, shown(value), "a token id from 0 to 16777216");
  return value.get<std::int32_t>();
}

bool flag(const json& object, const char* field, bool fallback) {
  const auto it = object.find(field);
  return it != object.end() && it->is_boolean() ? it->get<bool>() : fallback;
}

void read_model(const json& root, TokenizerSpec& spec) {
  const json& model = child(root, "", "model", "an object");
  if (!model.is_object()) complain("model", shown(model), "an object");
  if (model.contains("type") && model.at("type") != "BPE") complain("model.type", shown(model.at("type")), "\"BPE\"");
  spec.symbols = flag(model, "byte_fallback", false) ? Symbols::kCharacters : Symbols::kBytes;
  for (const char* field : {"dropout", "continuing_subword_prefix", "end_of_word_suffix"}) {
    if (model.contains(field) && !model.at(field).is_null() && model.at(field) != "" && model.at(field) != 0.0) {
      complain(std::string("model.") + field, shown(model.at(field)), "null");
    }
  }
  spec.ignore_merges = flag(model, "ignore_merges", false);
  if (model.contains("unk_token") && !model.at("unk_token").is_null()) spec.unknown = text_of(model, "model", "unk_token");
  spec.fuse_unknown = flag(model, "fuse_unk", false);
  const json& vocab = child(model, "model", "vocab", "an object of token to id");
  if (!vocab.is_object()) complain("model.vocab", shown(vocab), "an object of token to id");
  spec.vocab.reserve(vocab.size());
  for (const auto& [token, id] : vocab.items())
    spec.vocab.emplace_back(token, id_of(id, fmt::format("model.vocab['{}']", token)));
  const json& merges = child(model, "model", "merges", "a list");
  if (!merges.is_array()) complain("model.merges", shown(merges), "a list");
  spec.merges.reserve(merges.size());
  for (std::size_t i = 0; i < merges.size(); ++i) {
    const json& merge = merges[i];
    if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      spec.merges.emplace_back(merge[0].get<std::string>(), merge[1].get<std::string>());
      continue;
    }
    const std::string text = merge.is_string() ? merge.get<std::string>() : "";
    const std::size_t space = text.find(' ');
    if (space == std::string::npos || space == 0 || space + 1 == text.size() ||
        text.find(' ', space + 1) != std::string::npos) {
      complain(fmt::format("model.merges[{}]", i), shown(merge), "\"a b\" or [\"a\", \"b\"]");
    }
    spec.merges.emplace_back(text.substr(0, space), text.substr(space + 1));
  }
}

void read_added(const json& root, TokenizerSpec& spec) {
  if (!root.contains("added_tokens") || root.at("added_tokens").is_null()) return;
  const json& list = root.at("added_tokens");
  if (!list.is_array()) complain("added_tokens", shown(list), "a list");
  for (std::size_t i = 0; i < list.size(); ++i) {
    const std::string where = fmt::format("added_tokens[{}]", i);
    AddedToken token;
    token.id = id_of(child(list[i], where, "id", "a token id"), where + ".id");
    token.content = text_of(list[i], where, "content");
    if (token.content.empty()) complain(where + ".content", "an empty string", "some text");
    token.special = flag(list[i], "special", false);
    for (const char* field : {"lstrip", "rstrip", "single_word"}) {
      if (flag(list[i], field, false)) complain(where + "." + field, "true", "false");
    }
    spec.added.push_back(std::move(token));
  }
}

// {"String": text}, as Replace has it in normalizers and decoders.
void check_replace(const json& value, const std::string& where, const std::string& from, const std::string& to) {
  const json& pattern = child(value, where, "pattern", "{\"String\": ...}");
  if (pattern != json{{"String", from}} || text_of(value, where, "content") != to) {
    complain(where, shown(value), fmt::format("\"{}\" by \"{}\"", from, to));
  }
}

void check_spaces(const json& value, const std::string& where, const char* field) {
  if (text_of(value, where, field) != kSpace) complain(where + "." + field, shown(value.at(field)), "\"\u2581\" (U+2581)");
}

SpacePrefix metaspace_prefix(const json& value, const std::string& where) {
  check_spaces(value, where, "replacement");
  // Files from before prepend_scheme have a flag.
  if (!value.contains("prepend_scheme"))
    return flag(value, "add_prefix_space", true) ? SpacePrefix::kAlways : SpacePrefix::kNever;
  const std::string scheme = text_of(value, where, "prepend_scheme");
  if (scheme == "first") return SpacePrefix::kFirst;
  if (scheme == "always") return SpacePrefix::kAlways;
  if (scheme != "never") complain(where + ".prepend_scheme", "\"" + scheme + "\"", "\"first\", \"always\" or \"never\"");
  return SpacePrefix::kNever;
}

void read_sentencepiece_normalizer(const json& value, const std::string& where, const std::string& type, TokenizerSpec& spec) {
  if (type == "Prepend") {
    check_spaces(value, where, "prepend");
    spec.space_prefix = SpacePrefix::kEvery;
  } else if (type == "Replace") {
    check_replace(value, where, " ", kSpace);
  } else {
    complain(where + ".type", "\"" + type + "\"", "null, \"Prepend\", \"Replace\" or \"Sequence\"");
  }
}

void read_decoder(const json& value, const std::string& where, TokenizerSpec& spec) {
  if (value.is_null() || spec.symbols == Symbols::kBytes) return;
  const std::string type = text_of(value, where, "type");
  if (type == "Sequence") {
    const json& list = child(value, where, "decoders", "a list");
    for (std::size_t i = 0; i < list.size(); ++i) read_decoder(list[i], fmt::format("{}.decoders[{}]", where, i), spec);
  } else if (type == "Replace") {
    check_replace(value, where, kSpace, " ");
  } else if (type == "Strip") {
    const json start = value.value("start", json(0));
    if (value.value("content", "") != " " || (start != 0 && start != 1) || value.value("stop", json(0)) != 0) {
      complain(where, shown(value), "one space at the start");
    }
    spec.strip_space = start == 1;
  } else if (type == "Metaspace") {
    spec.strip_space = metaspace_prefix(value, where) != SpacePrefix::kNever;
  } else if (type != "ByteFallback" && type != "Fuse") {
    complain(where + ".type", "\"" + type + "\"",
             "\"Replace\", \"ByteFallback\", \"Fuse\", \"Strip\", \"Metaspace\" or \"Sequence\"");
  }
}

void read_normalizer(const json& value, const std::string& where, TokenizerSpec& spec) {
  if (value.is_null()) return;
  const std::string type = text_of(value, where, "type");
  if (type != "Sequence" && spec.symbols == Symbols::kCharacters)
    return read_sentencepiece_normalizer(value, where, type, spec);
  if (type == "NFC") {
    spec.nfc = true;
  } else if (type == "Sequence") {
    const json& list = child(value, where, "normalizers", "a list");
    for (std::size_t i = 0; i < list.size(); ++i) read_normalizer(list[i], fmt::format("{}.normalizers[{}]", where, i), spec);
  } else {
    complain(where + ".type", "\"" + type + "\"", "null, \"NFC\" or \"Sequence\"");
  }
}

void read_pretokenizer(const json& value, const std::string& where, TokenizerSpec& spec) {
  if (value.is_null()) return;
  const std::string type = text_of(value, where, "type");
  if (type == "Sequence") {
    const json& list = child(value, where, "pretokenizers", "a list");
    for (std::size_t i = 0; i < list.size(); ++i)
      read_pretokenizer(list[i], fmt::format("{}.pretokenizers[{}]", where, i), spec);
  } else if (spec.symbols == Symbols::kCharacters) {
    if (type != "Metaspace")
      complain(where + ".type", "\"" + type + "\"", "null, \"Metaspace\" or \"Sequence\" with byte_fallback");
    spec.space_prefix = metaspace_prefix(value, where);
    spec.split_words = flag(value, "split", true);
  } else if (type == "ByteLevel") {
    if (flag(value, "add_prefix_space", true)) spec.add_prefix_space = true;
    if (flag(value, "use_regex", true)) spec.patterns.emplace_back(kGpt2Pattern);
  } else if (type == "Split") {
    const json& pattern = child(value, where, "pattern", "{\"Regex\": ...}");
    const std::string regex = text_of(pattern, where + ".pattern", "Regex");
    const std::string behavior = text_of(value, where, "behavior");
    if (behavior != "Isolated") complain(where + ".behavior", "\"" + behavior + "\"", "\"Isolated\"");
    if (flag(value, "invert", false)) complain(where + ".invert", "true", "false");
    spec.patterns.push_back(regex);
  } else if (type == "Digits") {
    spec.patterns.emplace_back(flag(value, "individual_digits", false) ? "\\p{N}" : "\\p{N}+");
  } else {
    complain(where + ".type", "\"" + type + "\"", "\"ByteLevel\", \"Digits\", \"Split\" or \"Sequence\"");
  }
}

void read_postprocessor(const json& value, const std::string& where, TokenizerSpec& spec) {
  if (value.is_null()) return;
  const std::string type = text_of(value, where, "type");
  if (type == "Sequence") {
    const json& list = child(value, where, "processors", "a list");
    for (std::size_t i = 0; i < list.size(); ++i) read_postprocessor(list[i], fmt::format("{}.processors[{}]", where, i), spec);
  } else if (type == "TemplateProcessing") {
    bool text_seen = false;
    for (const json& item : child(value, where, "single", "a list")) {
      if (item.contains("Sequence")) {
        text_seen = true;
      } else if (item.contains("SpecialToken")) {
        const std::string name = text_of(item.at("SpecialToken"), where + ".single.SpecialToken", "id");
        if (text_seen)
          complain(where + ".single", "special token '" + name + "' after the text", "special tokens before the text");
        const json& token =
            child(child(value, where, "special_tokens", "an object"), where + ".special_tokens", name.c_str(), "an object");
        for (const json& id : child(token, where + ".special_tokens." + name, "ids", "a list")) {
          spec.prefix.push_back(id_of(id, where + ".special_tokens." + name + ".ids"));
        }
      }
    }
  } else if (type != "ByteLevel") {  // ByteLevel as a post-processor only trims offsets
    complain(where + ".type", "\"" + type + "\"", "\"TemplateProcessing\", \"ByteLevel\" or \"Sequence\"");
  }
}

}  // namespace

Result<TokenizerSpec> parse_tokenizer_json(std::string_view text, const std::string& file) {
  const auto parsed = parse_json(text);
  if (!parsed.ok()) return parsed.error().within(file);
  const json& root = *parsed;
  try {
    TokenizerSpec spec;
    read_model(root, spec);
    read_added(root, spec);
    read_normalizer(root.value("normalizer", json()), "normalizer", spec);
    read_pretokenizer(root.value("pre_tokenizer", json()), "pre_tokenizer", spec);
    read_decoder(root.value("decoder", json()), "decoder", spec);
    read_postprocessor(root.value("post_processor", json()), "post_processor", spec);
    if (spec.add_prefix_space) complain("pre_tokenizer.add_prefix_space", "true", "false");
    return spec;
  } catch (const Complaint& complaint) {
    return Error{ErrorCode::kInvalidArgument, file + ": " + complaint.text};
  } catch (const json::exception& e) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("{}: not a tokenizer.json: {}", file, e.what())};
  }
}

}  // namespace windlass::worker
