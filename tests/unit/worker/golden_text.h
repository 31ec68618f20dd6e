// The seeded strings of the tokenizers' golden tests, identical to those of tests/golden/tokenizers/make_tokenizers.py and
// make_parts.py.
#pragma once

#include <cstdint>
#include <iterator>
#include <string>

#include <fmt/core.h>
#include <unicode/unistr.h>

#include "worker/model/tokenizer.h"

namespace windlass::worker::testing {

// First and last code point of the range from which a piece of a string is drawn.
inline constexpr std::uint32_t kRanges[][2] = {
    {0x20, 0x7E},     {0x61, 0x7A},       {0x61, 0x7A},     {0x61, 0x7A},     {0x41, 0x5A},     {0x30, 0x39},
    {0xA0, 0x17F},    {0x370, 0x3FF},     {0x400, 0x45F},   {0x5D0, 0x5EA},   {0x620, 0x66F},   {0x905, 0x96F},
    {0xE01, 0xE5B},   {0x300, 0x34E},     {0x1100, 0x1112}, {0x1161, 0x1175}, {0xAC00, 0xD7A3}, {0x4E00, 0x9FA5},
    {0x3041, 0x30FE}, {0x1F300, 0x1F64F}, {0x2000, 0x206F}, {0x660, 0x669},   {0xE000, 0xE0FF}, {0x1D400, 0x1D433},
    {0xB0, 0xBF},     {0x2150, 0x218B}};
inline constexpr const char* kWords[] = {
    " ",      " ",      "  ",      "   ",    "\n",           "\n\n",
    "\r\n",   "\t",     "\u00a0",  "\u2003", "\u3000",       "\u0085",
    "\v",     "\f",     "\u200b",  "\u2581", "\u2581\u2581", " the",
    "The ",   " don't", "I'LL",    "we've",  "'s",           "'S",
    "\u017f", "\ufb01", "e\u0301", "\u01c4", "\ud55c\uae00", "\U0001f469\u200d\U0001f469\u200d\U0001f467",
    "<s>",    "</s>",   "<|end|>", "<|en",   "<0x41>",       "12345",
    "3.14",   "...",    "!?",      "_x_"};

inline std::uint64_t splitmix(std::uint64_t& state) {
  state += 0x9E3779B97F4A7C15U;
  std::uint64_t z = state;
  z = (z ^ (z >> 30U)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27U)) * 0x94D049BB133111EBU;
  return z ^ (z >> 31U);
}

inline void append_utf8(std::string& out, std::uint32_t code) {
  const auto tail = [&](unsigned shift) { out += static_cast<char>(0x80U | ((code >> shift) & 0x3FU)); };
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += static_cast<char>(0xC0U | (code >> 6U));
    tail(0);
  } else if (code < 0x10000) {
    out += static_cast<char>(0xE0U | (code >> 12U));
    tail(6);
    tail(0);
  } else {
    out += static_cast<char>(0xF0U | (code >> 18U));
    tail(12);
    tail(6);
    tail(0);
  }
}

inline std::string text_at(std::uint64_t index) {
  std::uint64_t state = index;
  std::string out;
  for (std::uint64_t pieces = splitmix(state) % 20; pieces > 0; --pieces) {
    if (splitmix(state) % 3 == 0) {
      out += kWords[splitmix(state) % std::size(kWords)];
      continue;
    }
    const auto& [low, high] = kRanges[splitmix(state) % std::size(kRanges)];
    for (std::uint64_t count = 1 + splitmix(state) % 6; count > 0; --count) {
      append_utf8(out, low + static_cast<std::uint32_t>(splitmix(state) % (high - low + 1)));
    }
  }
  return out;
}

inline std::uint64_t fnv(std::uint64_t state, std::int32_t number) {
  for (unsigned shift = 0; shift < 32; shift += 8) {
    state = (state ^ ((static_cast<std::uint32_t>(number) >> shift) & 0xFFU)) * 0x100000001B3U;
  }
  return state;
}

// Added by make_parts.py: source text, digits of many scripts, marks, and white space next to tokens.
inline constexpr const char* kMoreWords[] = {"def f(x):\n    return x",
                                             "for (int i = 0; i < n; ++i) {",
                                             "};\n",
                                             "\t\t",
                                             "x_1 += 2",
                                             "<div class=\"a\">",
                                             "// see",
                                             "SELECT * FROM t",
                                             "0x1F",
                                             "1,234.50",
                                             "\u0967\u0968\u0969",
                                             "\u0661\u0662",
                                             "\u2460",
                                             "\u00bd",
                                             "\u0645\u0631\u062d\u0628\u0627",
                                             "\u4f60\u597d\uff0c",
                                             "\uff21\uff22",
                                             "\u1e9e",
                                             "\u0130I",
                                             "\u03a3\u0391\u03a3",
                                             "e\u0301\u0323",
                                             "\u00c5",
                                             "\ufb01n",
                                             "\u2126",
                                             "\U0001f600",
                                             "\U0001f1eb\U0001f1f7",
                                             "\u2764\ufe0f",
                                             "a",
                                             "b",
                                             "ab",
                                             "abc",
                                             "aab",
                                             "A",
                                             "AB",
                                             "<m>",
                                             " <m> ",
                                             "  <m>\n",
                                             "<L>",
                                             "<r>  ",
                                             "[W]",
                                             "x[W]",
                                             "[W]y",
                                             "<n>",
                                             "<N>",
                                             "##b",
                                             "</w>",
                                             "--",
                                             "-",
                                             "\u00ab",
                                             "\u2026",
                                             "$5",
                                             "+",
                                             "a-b",
                                             "\x04",
                                             "\x7f",
                                             "\r",
                                             "https://example.org/a?b=c&d=1",
                                             "don't",
                                             "\"q\"",
                                             "(x)",
                                             "'"};

inline std::string part_text_at(std::uint64_t index) {
  std::string out;
  std::uint64_t state = index ^ 0x5EEDU;
  for (std::uint64_t pieces = splitmix(state) % 16; pieces > 0; --pieces) {
    out += kMoreWords[splitmix(state) % std::size(kMoreWords)];
    if (splitmix(state) % 2 == 0) out += ' ';
  }
  return index % 2 == 0 ? out : text_at(index) + out;
}

struct GoldenHashes {
  std::string ids;
  std::string texts;
};
// Hashes of the ids of part_text_at(first) to part_text_at(end - 1), and of the texts they decode to, with U+FFFD for invalid
// UTF-8, as in the reference.
inline GoldenHashes hashes_of(const Tokenizer& tokenizer, std::size_t first, std::size_t end) {
  std::uint64_t ids_state = 0xCBF29CE484222325U, text_state = ids_state;
  for (std::size_t i = first; i < end; ++i) {
    const auto ids = tokenizer.encode(part_text_at(i), SpecialText::kParse);
    for (const std::int32_t id : ids) ids_state = fnv(ids_state, id);
    ids_state = fnv(ids_state, -1);
    std::string shown;
    icu::UnicodeString::fromUTF8(tokenizer.decode(ids)).toUTF8String(shown);
    for (const char c : shown) text_state = (text_state ^ static_cast<unsigned char>(c)) * 0x100000001B3U;
    text_state = fnv(text_state, -1);
  }
  return {fmt::format("{:016x}", ids_state), fmt::format("{:016x}", text_state)};
}

}  // namespace windlass::worker::testing
