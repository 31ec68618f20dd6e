// YamlReader: takes a map of a YAML text apart by its keys; numbers and choices checked, unknown keys refused.
//
//   YamlMistake mistake;
//   YamlReader reader(root, "", mistake);
//   model.blocks = reader.whole("blocks", 1, 1000);
//   reader.finish();
//   if (!mistake.what.empty()) return mistake.error(source);
//
// The first mistake in the order of reading is the one that is told: "SOURCE:LINE: PATH: found ..., allowed is ...". After a
// mistake readers go on with values that are in range, and the caller throws what it read away. Borrows the tree. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "planner/base/result.h"
#include "planner/base/yaml_tree.h"

namespace windlass {

// Where the reading stopped; the first mistake stays.
struct YamlMistake {
  int line = 0;
  std::string what;             // empty: none
  bool pass_over_keys = false;  // unknown keys are no mistake

  void keep(int at, std::string message) {
    if (what.empty()) *this = {at, std::move(message), pass_over_keys};
  }
  // REQUIRES: there is one.
  [[nodiscard]] Error error(const std::string& source) const;
};

struct NumberRange {
  double low;
  double high;
};

// A plain decimal number as JSON writes it; also "+1", ".5" and "5.". None for anything else: NaN, infinities, 0x10, 1_000,
// "007" (7 or 56, depending on the version of YAML), and for what a double cannot hold.
[[nodiscard]] std::optional<double> plain_number(const YamlValue& value);

class YamlReader {
 public:
  // `path` stands before the keys in messages: "servers[2]". `notes` receives what note() says; null: nobody.
  YamlReader(const YamlValue& value, std::string path, YamlMistake& mistake, std::vector<std::string>* notes = nullptr);
  // Of the member `key`, and of item `i` of the list `key`, with the same mistake and notes.
  [[nodiscard]] YamlReader inside(const char* key, const YamlValue& value) const;
  [[nodiscard]] YamlReader item(const char* key, const YamlValue& list, std::size_t i) const;

  // The member's value, or null when the key is not there. A key that is never asked for is a mistake (finish()).
  const YamlValue* find(const char* key);
  // The same, but a key that is not there is a mistake.
  const YamlValue* require(const char* key, std::string_view allowed);

  // Within the range. A key that is not there is a mistake, unless there is an `otherwise`.
  double number(const char* key, NumberRange range);
  std::int64_t whole(const char* key, std::int64_t low, std::int64_t high,
                     std::optional<std::int64_t> otherwise = std::nullopt);
  // Printable text of 1 to `max_bytes` bytes.
  static constexpr std::size_t kMaxTextBytes = 4096;
  std::string text(const char* key, std::string_view what, std::size_t max_bytes = kMaxTextBytes);
  // One of these words, as their index.
  std::size_t choice(const char* key, std::span<const char* const> allowed,
                     std::optional<std::size_t> otherwise = std::nullopt);
  // true or false; false where the key is not there.
  bool flag(const char* key);
  // A time with its unit, "500ms", in seconds, within the range.
  double duration_s(const char* key, NumberRange range_s);
  // A list of `fewest` to `most` of these, "maps with name and gpus"; null where it is missing or refused.
  const YamlValue* list(const char* key, std::size_t fewest, std::size_t most, std::string_view of, bool required);

  void refuse(const char* key, const YamlValue& found, std::string_view allowed);
  // Refuse a key if it is there; the second says what it belongs to.
  void refuse(const char* key, std::string_view allowed);
  void belongs(const char* key, std::string_view to);
  // What is wrong with this map, with a key in its line, or with a key in another one: "found ..., allowed is ...".
  void wrong(const std::string& what) { mistake_.keep(value_.line, path_.empty() ? what : path_ + ": " + what); }
  void wrong(const char* key, const std::string& what) { wrong_at(value_.line, key, what); }
  void wrong_at(int line, const std::string& key, const std::string& what) { mistake_.keep(line, path_of(key) + ": " + what); }
  [[nodiscard]] bool ok() const { return mistake_.what.empty(); }

  // Notes the value that is taken for a key that is not there.
  void note(const char* key, std::string_view value);

  // Finds the keys that nobody asked for.
  void finish();

  [[nodiscard]] std::string path_of(const std::string& key) const { return path_.empty() ? key : path_ + "." + key; }
  [[nodiscard]] int line() const { return value_.line; }
  [[nodiscard]] const std::vector<YamlMember>& members() const { return value_.members; }

 private:
  const YamlValue& value_;
  std::string path_;
  YamlMistake& mistake_;
  std::vector<std::string>* notes_;
  std::vector<std::string> keys_;
};

// "90s", "500ms", "5us", "1.5h", "20ns", "2m": a plain number and its unit. None for anything else.
[[nodiscard]] std::optional<double> duration_seconds(std::string_view text);

// The shortest such text of about these seconds: 0.5 -> "500ms", 120 -> "120s".
[[nodiscard]] std::string duration_text(double seconds);

}  // namespace windlass
