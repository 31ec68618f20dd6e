// Byte-level BPE: hand-checked merges, pieces of the two pretokenizers, round trips of any text, and refused files.
#include "worker/model/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "planner/base/rng.h"
#include "tests/effort.h"
#include "tests/unit/worker/model_files.h"
#include "worker/model/chat_template.h"
#include "worker/model/pretokenizer.h"
#include "worker/model/text_pattern.h"

namespace windlass::worker {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The 256 bytes as ids 0 to 255, then the given merges, then a special token.
json tokenizer_json(const std::vector<std::pair<std::string, std::string>>& merges, bool as_lists) {
  json vocab = json::object();
  for (int byte = 0; byte < 256; ++byte) vocab[byte_alphabet()[static_cast<std::size_t>(byte)]] = byte;
  json list = json::array();
  int next = 256;
  for (const auto& [a, b] : merges) {
    if (!vocab.contains(a + b)) vocab[a + b] = next++;
    list.push_back(as_lists ? json{a, b} : json(a + " " + b));
  }
  return {{"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", list}}},
          {"added_tokens", {{{"id", next}, {"content", "<|end|>"}, {"special", true}}}},
          {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}}};
}

Tokenizer make(const json& root) {
  auto tokenizer = Tokenizer::parse(root.dump(), "tokenizer.json");
  EXPECT_TRUE(tokenizer.ok()) << (tokenizer.ok() ? "" : tokenizer.error().message);
  return std::move(tokenizer).value();
}

// The pieces into which a regular expression splits a text; views into the text.
std::vector<std::string_view> pieces_of(const std::string& regex, std::string_view text) {
  const auto pattern = TextPattern::make({regex, true});
  EXPECT_TRUE(pattern.ok());
  std::vector<std::string_view> pieces;
  if (pattern.ok()) pattern->split(text, SplitBehavior::kIsolated, false, pieces);
  return pieces;
}

// A random text: ASCII, Latin, Cyrillic, CJK, emoji, combining marks, all kinds of white space, contractions.
std::string random_text(Rng& rng) {
  static const std::vector<std::string> kPieces = {
      "the ",    "we'll",  "I'M",   " don't", "\n\n",    "\t",     "  ",     "\r\n",   "\u00A0", "\u2003",
      "\u3000",  "\u0085", "12345", "٣٤",     "Ünïcode", "привет", "日本語", "한국어", "😀",      "👩‍👩‍👧",
      "e\u0301", "ﬁ",      "ſ",     "!?",     "...",     "<|end|", "\v",     "\f",     "_x_",    "ß",
      "\u200B",  "Ǆ",      "²",     "½"};
  std::string text;
  for (std::int64_t n = rng.integer(0, 30); n > 0; --n) {
    if (rng.uniform() < 0.6) {
      text += kPieces[static_cast<std::size_t>(rng.integer(0, static_cast<std::int64_t>(kPieces.size()) - 1))];
    } else {
      text += static_cast<char>(rng.integer(32, 126));
    }
  }
  return text;
}

// Given GPT-2's byte alphabet; expects printable bytes to stand for themselves and U+0120 for a space.
TEST(Tokenizer, ByteAlphabetIsGpt2s) {
  EXPECT_EQ(byte_alphabet()['a'], "a");
  EXPECT_EQ(byte_alphabet()[' '], "\u0120");
  EXPECT_EQ(byte_alphabet()['\n'], "\u010A");
  EXPECT_EQ(byte_alphabet()[0xAD], "\u0143");
  EXPECT_EQ(byte_alphabet()[0xE9], "\u00E9");
}

// Given merges "l o", "lo w", "e r", "Ġ low"; expects the lowest rank to merge first, in both notations of merges. Checked by
// hand.
TEST(Tokenizer, MergesByRank) {
  for (const bool as_lists : {false, true}) {
    const Tokenizer tokenizer = make(tokenizer_json({{"l", "o"}, {"lo", "w"}, {"e", "r"}, {"\u0120", "low"}}, as_lists));
    // ids: lo 256, low 257, er 258, Ġlow 259
    EXPECT_THAT(tokenizer.encode("lower low", SpecialText::kParse), ElementsAre(257, 258, 259));
    EXPECT_THAT(tokenizer.encode("slow", SpecialText::kParse), ElementsAre('s', 257));
    EXPECT_THAT(tokenizer.encode("lo er", SpecialText::kParse), ElementsAre(256, ' ', 258));
  }
}

// Given "a b" before "b c"; expects "abc" as ab + c, and in the other order as a + bc. "aaa" merges its leftmost pair.
TEST(Tokenizer, RankDecidesBetweenOverlappingPairs) {
  EXPECT_THAT(make(tokenizer_json({{"a", "b"}, {"b", "c"}}, false)).encode("abc", SpecialText::kParse), ElementsAre(256, 'c'));
  EXPECT_THAT(make(tokenizer_json({{"b", "c"}, {"a", "b"}}, false)).encode("abc", SpecialText::kParse), ElementsAre('a', 256));
  EXPECT_THAT(make(tokenizer_json({{"a", "a"}}, false)).encode("aaaaa", SpecialText::kParse), ElementsAre(256, 256, 'a'));
}

// Given a special token in the text; expects its id if parsed, plain bytes if literal, and nothing when decoded.
TEST(Tokenizer, SpecialTokens) {
  const Tokenizer tokenizer = make(tokenizer_json({}, false));
  EXPECT_THAT(tokenizer.encode("a<|end|>b", SpecialText::kParse), ElementsAre('a', 256, 'b'));
  EXPECT_EQ(tokenizer.encode("a<|end|>b", SpecialText::kLiteral).size(), 9U);
  EXPECT_EQ(tokenizer.decode(std::vector<std::int32_t>{'a', 256, 'b'}), "ab");
  EXPECT_EQ(tokenizer.added_token("<|end|>"), 256);
  EXPECT_EQ(tokenizer.token_bytes(99999), "");
}

// Given OPT's file as transformers writes it, with "</s>" in the vocabulary, among the added tokens and before every text;
// expects that token first, and nothing for it when decoded.
TEST(Tokenizer, OptsTextsBeginWithTheEndToken) {
  json root = tokenizer_json({{"h", "e"}}, true);
  root["model"].update({{"continuing_subword_prefix", ""}, {"end_of_word_suffix", ""}, {"unk_token", nullptr}});
  root["model"]["vocab"]["</s>"] = 300;
  root["added_tokens"] = {{{"id", 300}, {"content", "</s>"}, {"normalized", true}, {"special", true}}};
  root["post_processor"] = {
      {"type", "TemplateProcessing"},
      {"single", {{{"SpecialToken", {{"id", "</s>"}, {"type_id", 0}}}}, {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}}},
      {"special_tokens", {{"</s>", {{"id", "</s>"}, {"ids", {300}}, {"tokens", {"</s>"}}}}}}};
  const Tokenizer tokenizer = make(root);
  EXPECT_THAT(tokenizer.prefix(), ElementsAre(300));
  EXPECT_THAT(tokenizer.encode("he</s>", SpecialText::kParse), ElementsAre(256, 300));
  EXPECT_EQ(tokenizer.decode(std::vector<std::int32_t>{300, 256}), "he");
}

// Given ignore_merges; expects a piece in the vocabulary to be that token, although no merges lead to it.
TEST(Tokenizer, IgnoreMergesTakesWholePieces) {
  json root = tokenizer_json({}, false);
  root["model"]["vocab"]["\u0120hi"] = 300;
  EXPECT_THAT(make(root).encode(" hi", SpecialText::kParse), ElementsAre(' ', 'h', 'i'));
  root["model"]["ignore_merges"] = true;
  EXPECT_THAT(make(root).encode(" hi", SpecialText::kParse), ElementsAre(300));
}

// Given a vocabulary without tokens for "x" and "y"; expects them to be left out before merging, or to become the unknown
// token, each one or, with fuse, once for a run. Same as Hugging Face's tokenizers 0.23.
TEST(Tokenizer, BytesWithoutATokenAreUnknownOrLeftOut) {
  json root = tokenizer_json({{"a", "b"}}, true);
  root["model"]["vocab"].erase("x");
  root["model"]["vocab"].erase("y");
  EXPECT_THAT(make(root).encode("axxb", SpecialText::kParse), ElementsAre(256));
  EXPECT_THAT(make(root).encode("x", SpecialText::kParse), ElementsAre());
  EXPECT_EQ(make(root).least_tokens(1000), 0);
  root["model"]["vocab"]["<unk>"] = 300;
  root["model"]["unk_token"] = "<unk>";
  EXPECT_THAT(make(root).encode("xyab", SpecialText::kParse), ElementsAre(300, 300, 256));
  root["model"]["fuse_unk"] = true;
  EXPECT_THAT(make(root).encode("xyabx", SpecialText::kParse), ElementsAre(300, 256, 300));
}

// Given Digits; expects numbers to be split off their words, by digit or as a whole.
TEST(Tokenizer, DigitsAreCutOut) {
  json root = tokenizer_json({{"1", "2"}, {"a", "1"}, {"2", "b"}}, true);
  root["pre_tokenizer"] = {
      {"type", "Sequence"},
      {"pretokenizers",
       {{{"type", "Digits"}, {"individual_digits", true}}, {{"type", "ByteLevel"}, {"add_prefix_space", false}}}}};
  EXPECT_THAT(make(root).encode("a12b", SpecialText::kParse), ElementsAre('a', '1', '2', 'b'));
  root["pre_tokenizer"]["pretokenizers"][0]["individual_digits"] = false;
  EXPECT_THAT(make(root).encode("a12b", SpecialText::kParse), ElementsAre('a', 256, 'b'));
}

// Given a token marked "normalized" that looks like a tag; expects it where the normalized text matches, unless a user typed
// any of its source. Positions refer to the text before the normalizer.
TEST(Tokenizer, TypedTagsAreTextAfterTheNormalizer) {
  json root = tokenizer_json({}, true);
  root["added_tokens"] = {{{"id", 300}, {"content", "<Tag>"}, {"special", false}, {"normalized", true}}};
  root["normalizer"] = {{"type", "Sequence"}, {"normalizers", {{{"type", "NFKC"}}, {{"type", "Lowercase"}}}}};
  const Tokenizer tokenizer = make(root);
  const std::string text = "\u2460\ufb01<TAG>x<tag>";  // "1fi<tag>x<tag>": 6 bytes become 3
  EXPECT_THAT(tokenizer.encode(text, SpecialText::kParse), ElementsAre('1', 'f', 'i', 300, 'x', 300));
  const auto ids = tokenizer.encode(text, [](std::size_t at) { return at == 10; });  // the first tag's end
  EXPECT_THAT(ids, ElementsAre('1', 'f', 'i', '<', 't', 'a', 'g', '>', 'x', 300));
  EXPECT_EQ(tokenizer.encode(text, [](std::size_t at) { return at == 11; }).size(), 6U);
}

// Given a special token whose text is also in the vocabulary, with merges and ignore_merges that lead to it; expects a user's
// text never to become it.
TEST(Tokenizer, LiteralTextIsNeverASpecialToken) {
  json root = tokenizer_json({{"<", "e"}, {"<e", ">"}}, true);
  root["model"]["ignore_merges"] = true;
  root["added_tokens"] = {{{"id", 257}, {"content", "<e>"}, {"special", true}}};
  root["pre_tokenizer"]["use_regex"] = false;
  const Tokenizer tokenizer = make(root);
  EXPECT_THAT(tokenizer.encode("<e>", SpecialText::kParse), ElementsAre(257));
  EXPECT_THAT(tokenizer.encode("<e>", SpecialText::kLiteral), ElementsAre(256, '>'));
}

// Given steps that each multiply a text's length by 64; expects them to stop while it is small. Given a token that takes white
// space and a text of only such tokens; expects linear time.
TEST(Tokenizer, MaliciousStepsStaySmall) {
  json root = tokenizer_json({}, true);
  const json grow = {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", std::string(64, 'a')}};
  root["normalizer"] = {{"type", "Sequence"}, {"normalizers", std::vector<json>(32, grow)}};
  EXPECT_LE(make(root).encode(std::string(1000, 'a'), SpecialText::kParse).size(), 64U * 64U * 1000U);
  root = tokenizer_json({}, true);
  root["added_tokens"] = {{{"id", 300}, {"content", " "}, {"rstrip", true}, {"lstrip", true}}};
  EXPECT_EQ(make(root).encode(std::string(1U << 20U, ' '), SpecialText::kParse).size(), 1U << 20U);
}

// Given invalid UTF-8; expects every step to pass it through.
TEST(Tokenizer, BytesThatAreNoUtf8GoThroughEveryStep) {
  json root = tokenizer_json({}, true);
  const json split = {{"type", "Split"}, {"pattern", {{"Regex", "\\w+"}}}, {"behavior", "MergedWithNext"}, {"invert", true}};
  root["pre_tokenizer"] = {{"type", "Sequence"},
                           {"pretokenizers", {split, {{"type", "Digits"}}, {{"type", "Punctuation"}}, root["pre_tokenizer"]}}};
  const std::string text = "a\xFF\xC3 b1\xE6\x97!\x80";
  EXPECT_EQ(make(root).decode(make(root).encode(text, SpecialText::kParse)), text);
  for (const char* form : {"NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Strip"}) {
    root["normalizer"] = {{"type", form}};
    EXPECT_EQ(make(root).decode(make(root).encode(text, SpecialText::kParse)), text) << form;
  }
}

// Given GPT-2's and Llama 3's expressions; expects the splits of their tokenizers.
TEST(Pretokenizer, CutsLikeGpt2AndLlama3) {
  const std::string gpt2(kGpt2Pattern), llama3(kLlama3Pattern);
  EXPECT_THAT(pieces_of(gpt2, "Hello  world's 12345!\n\n x"),
              ElementsAre("Hello", " ", " world", "'s", " 12345", "!", "\n\n", " x"));
  EXPECT_THAT(pieces_of(llama3, "Hello  world'S 12345!\n\n x"),
              ElementsAre("Hello", " ", " world", "'S", " ", "123", "45", "!\n\n", " x"));
  EXPECT_THAT(pieces_of(llama3, "日本語 é\u0085"), ElementsAre("日本語", " é", "\u0085"));
}

// Given thousands of seeded texts in many scripts, and as many strings of random bytes; expects decode(encode(x)) == x, with
// both expressions, whether special tokens are parsed or not.
TEST(Tokenizer, RoundTripsAnyText) {
  Rng rng(11, "round trip");
  json root = json::parse(make_tokenizer_json([] {
    ModelShape shape;
    shape.vocab = 700;
    return shape;
  }()));
  const Tokenizer llama3 = make(root);
  root["pre_tokenizer"] = {{"type", "ByteLevel"}, {"add_prefix_space", false}};
  const Tokenizer gpt2 = make(root);
  for (int i = 0; i < effort(300, 3000); ++i) {
    std::string text = random_text(rng);
    if (i % 3 == 0) {
      for (std::int64_t n = rng.integer(1, 20); n > 0; --n) text += static_cast<char>(rng.integer(0, 255));
    }
    for (const Tokenizer* tokenizer : {&llama3, &gpt2}) {
      ASSERT_EQ(tokenizer->decode(tokenizer->encode(text, SpecialText::kLiteral)), text) << "text " << i;
    }
  }
}

// Given one endless word; expects encoding to be fast: the work grows as n log n, not n^2.
TEST(Tokenizer, EndlessWordIsFast) {
  const Tokenizer tokenizer = make(tokenizer_json({{"a", "a"}, {"aa", "aa"}, {"aaaa", "aaaa"}}, false));
  const std::string text(400000, 'a');
  const auto ids = tokenizer.encode(text, SpecialText::kParse);
  EXPECT_EQ(ids.size(), 50000U);
  EXPECT_EQ(tokenizer.decode(ids), text);
}

// Given an expression with endless backtracking and a text made for it; expects the text to be split anyway, without loss.
// Megabytes of the worst case for real models' expressions are split normally.
TEST(Pretokenizer, MaliciousExpressionEnds) {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += std::string(24, 'a') + "c";
  std::string joined;
  for (const std::string_view piece : pieces_of("(a+)+$|b", text)) joined += piece;
  EXPECT_EQ(joined, text);
  for (const std::string_view pattern : {kGpt2Pattern, kLlama3Pattern}) {
    std::string mixed;
    for (int i = 0; i < 100000; ++i) mixed += "word 12 \xC3\xA9t\xC3\xA9 !?\n  ";
    const auto pieces = pieces_of(std::string(pattern), mixed);
    EXPECT_EQ(pieces.size() % 100000, 0U) << pieces.size();  // each line is split alike, to the end
    EXPECT_GT(pieces.size(), 300000U);
    for (const char each : {' ', '7', 'x', '!'}) {
      const std::string same(2U << 20U, each);
      const bool threes = each == '7' && pattern == kLlama3Pattern;
      EXPECT_EQ(pieces_of(std::string(pattern), same).size(), threes ? (same.size() + 2) / 3 : 1U) << each;
    }
  }
}

// Given files with unsupported features; expects an error with the file, the field, the rule and the value.
TEST(Tokenizer, RefusesUnsupportedFeatures) {
  const auto error_of = [](const json& root) {
    const auto tokenizer = Tokenizer::parse(root.dump(), "m/tokenizer.json");
    EXPECT_FALSE(tokenizer.ok());
    return tokenizer.ok() ? "" : tokenizer.error().message;
  };
  json root = tokenizer_json({}, false);
  root["model"]["type"] = "Unigram";
  EXPECT_THAT(error_of(root), HasSubstr("m/tokenizer.json: field 'model.type': must be \"BPE\" (got \"Unigram\")"));
  root = tokenizer_json({}, false);
  root["model"]["unk_token"] = "<nope>";
  EXPECT_THAT(error_of(root), HasSubstr("model.unk_token: must be a token of model.vocab (got '<nope>')"));
  root = tokenizer_json({}, false);
  root["model"]["merges"] = {"a"};
  EXPECT_THAT(error_of(root), HasSubstr("'model.merges[0]': must be "));
  root["model"]["merges"] = {"a b"};
  EXPECT_THAT(error_of(root), HasSubstr("model.merges[0]: must have parts and a result in model.vocab (got 'a' + 'b')"));
  root = tokenizer_json({}, false);
  root["normalizer"] = {{"type", "Precompiled"}, {"precompiled_charsmap", ""}};
  EXPECT_THAT(error_of(root), HasSubstr("m/tokenizer.json: field 'normalizer.type': must be null"));
  root = tokenizer_json({}, false);
  root["pre_tokenizer"] = {{"type", "Split"}, {"pattern", {{"Regex", "("}}}, {"behavior", "Isolated"}};
  EXPECT_THAT(error_of(root), HasSubstr("regular expression '('"));
  root = tokenizer_json({}, false);
  root["added_tokens"][0]["lstrip"] = 1;
  EXPECT_THAT(error_of(root), HasSubstr("'added_tokens[0].lstrip': must be true or false (got 1)"));
  root = tokenizer_json({}, false);
  root["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", {{{"type", "UnicodeScripts"}}}}};
  EXPECT_THAT(error_of(root), HasSubstr("'pre_tokenizer.pretokenizers[0].type': must be "));
  root["pre_tokenizer"] = {{"type", "Split"}, {"pattern", {{"String", "a"}}}, {"behavior", "Apart"}};
  EXPECT_THAT(error_of(root), HasSubstr("'pre_tokenizer.behavior': must be \"Removed\""));
  root["pre_tokenizer"] = {{"type", "Metaspace"}, {"replacement", "__"}};
  EXPECT_THAT(error_of(root), HasSubstr("'pre_tokenizer.replacement': must be one character (got \"__\")"));
  root["pre_tokenizer"] = {{"type", "Metaspace"}, {"replacement", "\u2581"}, {"prepend_scheme", "last"}};
  EXPECT_THAT(error_of(root), HasSubstr("'pre_tokenizer.prepend_scheme': must be "));
  root["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", std::vector<json>(5, {{"type", "ByteLevel"}})}};
  EXPECT_THAT(error_of(root), HasSubstr("'pre_tokenizer.pretokenizers[4]': must be at most 4 \"ByteLevel\" steps (got more)"));
  root["pre_tokenizer"] = nullptr;
  const json upper = {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", std::string(65, 'a')}};
  root["normalizer"] = upper;
  EXPECT_THAT(error_of(root), HasSubstr("'normalizer.content': must be at most 64 bytes (got 65)"));
  root["normalizer"] = {{"type", "Sequence"}, {"normalizers", std::vector<json>(33, {{"type", "NFC"}})}};
  EXPECT_THAT(error_of(root), HasSubstr("'normalizer.normalizers[32]': must be at most 32 steps in all (got more)"));
  root["normalizer"] = nullptr;
  const json strip = {{"type", "Strip"}, {"content", " "}, {"start", 0}, {"stop", 1}};
  root["decoder"] = {{"type", "Sequence"}, {"decoders", {{{"type", "Fuse"}}, strip}}};
  EXPECT_THAT(error_of(root), HasSubstr("'decoder.decoders[1].stop': must be 0 after tokens are fused (got 1)"));
  root["decoder"] = {{"type", "WordPiece"}};
  EXPECT_THAT(error_of(root), HasSubstr("'decoder.type': must be "));
  EXPECT_THAT(Tokenizer::parse("[]", "m/tokenizer.json").error().message, HasSubstr("m/tokenizer.json"));
}

// Given a tokenizer without control tokens; expects a chat as plain lines.
TEST(ChatTemplate, OfPlainLines) {
  const Tokenizer tokenizer = make(tokenizer_json({}, false));
  const auto ids = ChatTemplate::of_tokens(tokenizer).render({{"system", "be brief"}, {"user", "hi"}}, {}, 0);
  ASSERT_TRUE(ids.ok()) << ids.error().message;
  EXPECT_EQ(tokenizer.decode(*ids), "system: be brief\nuser: hi\nassistant:");
}

}  // namespace
}  // namespace windlass::worker
