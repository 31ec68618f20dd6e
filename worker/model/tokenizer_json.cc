// Validates tokenizer.json. An unsupported feature is an error here, never a silent difference in ids.
#include "worker/model/tokenizer_json.h"

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "planner/base/shown_json.h"
#include "worker/model/json_input.h"
#include "worker/model/tokenizer_fields.h"

namespace windlass::worker {
namespace tokenizer_fields {
namespace {

void read_model(const json& root, TokenizerSpec& spec) {
  const json& model = child(root, "", "model", "an object");
  if (!model.is_object()) complain("model", shown(model), "an object");
  if (model.contains("type") && model.at("type") != "BPE") complain("model.type", shown(model.at("type")), "\"BPE\"");
  if (model.contains("dropout") && !model.at("dropout").is_null() && model.at("dropout") != 0.0)
    complain("model.dropout", shown(model.at("dropout")), "null");
  spec.model.byte_fallback = flag(model, "model", "byte_fallback", false);
  spec.model.ignore_merges = flag(model, "model", "ignore_merges", false);
  spec.model.fuse_unknown = flag(model, "model", "fuse_unk", false);
  spec.model.unknown = text_or(model, "model", "unk_token", "");
  spec.model.subword_prefix = text_or(model, "model", "continuing_subword_prefix", "");
  spec.model.word_suffix = text_or(model, "model", "end_of_word_suffix", "");
  const json& vocab = child(model, "model", "vocab", "an object of token to id");
  if (!vocab.is_object()) complain("model.vocab", shown(vocab), "an object of token to id");
  spec.model.vocab.reserve(vocab.size());
  for (const auto& [token, id] : vocab.items())
    spec.model.vocab.emplace_back(token, id_of(id, fmt::format("model.vocab['{}']", token)));
  const json& merges = child(model, "model", "merges", "a list");
  if (!merges.is_array()) complain("model.merges", shown(merges), "a list");
  spec.model.merges.reserve(merges.size());
  for (std::size_t i = 0; i < merges.size(); ++i) {
    const json& merge = merges[i];
    if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      spec.model.merges.emplace_back(merge[0].get<std::string>(), merge[1].get<std::string>());
      continue;
    }
    const std::string text = merge.is_string() ? merge.get<std::string>() : "";
    const std::size_t space = text.find(' ');
    if (space == std::string::npos || space == 0 || space + 1 == text.size() ||
        text.find(' ', space + 1) != std::string::npos) {
      complain(fmt::format("model.merges[{}]", i), shown(merge), "\"a b\" or [\"a\", \"b\"]");
    }
    spec.model.merges.emplace_back(text.substr(0, space), text.substr(space + 1));
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
    if (token.content.empty()) complain(where + ".content", "an empty string", "not empty");
    token.special = flag(list[i], where, "special", false);
    token.normalized = flag(list[i], where, "normalized", false);
    token.lstrip = flag(list[i], where, "lstrip", false);
    token.rstrip = flag(list[i], where, "rstrip", false);
    token.single_word = flag(list[i], where, "single_word", false);
    spec.added.push_back(std::move(token));
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
    complain_of_type(where, type, "\"TemplateProcessing\", \"ByteLevel\" or \"Sequence\"");
  }
}

// For a file without a decoder. The library would put spaces between tokens, which no model wants.
std::vector<DecoderStep> usual_decoder(const TokenizerSpec& spec) {
  std::vector<DecoderStep> steps;
  if (!spec.pretokenizer.empty() && spec.pretokenizer.back().kind == PretokenizerStep::Kind::kByteLevel) {
    steps.push_back({.kind = DecoderStep::Kind::kByteLevel, .where = "decoder"});
  } else if (spec.model.byte_fallback) {
    steps.push_back({.kind = DecoderStep::Kind::kReplace, .where = "decoder", .pattern = {"\u2581", false}, .text = " "});
    steps.push_back({.kind = DecoderStep::Kind::kByteFallback, .where = "decoder"});
  }
  return steps;
}

}  // namespace
}  // namespace tokenizer_fields

Result<TokenizerSpec> parse_tokenizer_json(std::string_view text, const std::string& file) {
  using namespace tokenizer_fields;
  const auto parsed = parse_json(text);
  if (!parsed.ok()) return parsed.error().within(file);
  const json& root = *parsed;
  try {
    TokenizerSpec spec;
    read_model(root, spec);
    read_added(root, spec);
    read_normalizer(root.value("normalizer", json()), "normalizer", spec.normalizer);
    read_pretokenizer(root.value("pre_tokenizer", json()), "pre_tokenizer", spec.pretokenizer);
    read_decoder(root.value("decoder", json()), "decoder", spec.decoder);
    if (root.value("decoder", json()).is_null()) spec.decoder = usual_decoder(spec);
    read_postprocessor(root.value("post_processor", json()), "post_processor", spec);
    return spec;
  } catch (const Complaint& complaint) {
    return Error{ErrorCode::kInvalidArgument, file + ": " + complaint.text};
  } catch (const json::exception& e) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("{}: not a tokenizer.json: {}", file, e.what())};
  }
}

}  // namespace windlass::worker
