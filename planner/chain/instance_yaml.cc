// See instance_yaml.h. A MapReader takes each map apart; the first mistake in the order of reading is the one that is told.
#include "planner/chain/instance_yaml.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <unordered_map>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "planner/chain/yaml_tree.h"

namespace windlass::chain {
namespace {

constexpr std::size_t kLongestName = 253;

struct Range {
  double low;
  double high;
};

constexpr Range kPositive{kSmallestNumber, kLargestNumber};
constexpr Range kNotNegative{0, kLargestNumber};
constexpr Range kShare{kSmallestNumber, 1};

// A plain decimal number as JSON writes it; also "+1", ".5" and "5.". None for anything else: NaN, infinities, 0x10, 1_000,
// "007" (7 or 56, depending on the version of YAML), and for what a double cannot hold.
std::optional<double> plain_number(const YamlValue& value) {
  if (value.kind != YamlValue::Kind::kText || value.quoted) return std::nullopt;
  std::string_view text = value.text;
  if (!text.empty() && text[0] == '+') text.remove_prefix(1);
  const auto digit = [](char c) { return '0' <= c && c <= '9'; };
  std::string_view digits = text;
  if (!digits.empty() && digits[0] == '-') digits.remove_prefix(1);
  if (digits.empty() || (!digit(digits[0]) && !(digits[0] == '.' && digits.size() > 1 && digit(digits[1]))))
    return std::nullopt;
  if (digits.size() > 1 && digits[0] == '0' && digit(digits[1])) return std::nullopt;
  if (text.size() != value.text.size() && text[0] == '-') return std::nullopt;  // "+-1"
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(number)) return std::nullopt;
  return number + 0.0;  // -0 becomes 0
}

// Where the reading stopped; the first mistake stays.
struct Mistake {
  int line = 0;
  std::string what;  // empty: none

  void keep(int at, std::string message) {
    if (what.empty()) *this = {at, std::move(message)};
  }
};

class MapReader {
 public:
  MapReader(const YamlValue& value, std::string path, Mistake& mistake)
      : value_(value), path_(std::move(path)), mistake_(mistake) {
    if (value_.kind != YamlValue::Kind::kMap) {
      mistake_.keep(value_.line,
                    fmt::format("{}found {}, allowed is a map", path_.empty() ? "" : path_ + ": ", found_text(value_)));
    }
  }

  // The member's value, or null when the key is not there. A key that is never asked for is a mistake (finish()).
  const YamlValue* find(const char* key) {
    keys_.push_back(key);
    for (const YamlMember& member : value_.members) {
      if (member.key == key) return &member.value;
    }
    return nullptr;
  }

  const YamlValue* require(const char* key, std::string_view allowed) {
    const YamlValue* found = find(key);
    if (found == nullptr) mistake_.keep(value_.line, fmt::format("{}: missing, allowed is {}", path_of(key), allowed));
    return found;
  }

  double number(const char* key, Range range, std::optional<double> otherwise = std::nullopt) {
    const std::string allowed = fmt::format("a number from {} to {}", range.low, range.high);
    const YamlValue* found = otherwise ? find(key) : require(key, allowed);
    if (found == nullptr) return otherwise.value_or(range.high);
    const auto value = plain_number(*found);
    if (value && range.low <= *value && *value <= range.high) return *value;
    refuse(key, *found, allowed);
    return range.high;
  }

  int count(const char* key, int most) {
    const std::string allowed = fmt::format("a whole number from 1 to {}", most);
    const YamlValue* found = require(key, allowed);
    if (found == nullptr) return 1;
    const auto value = plain_number(*found);
    if (value && *value >= 1 && *value <= most && *value == std::floor(*value)) return static_cast<int>(*value);
    refuse(key, *found, allowed);
    return 1;
  }

  void refuse(const char* key, const YamlValue& found, std::string_view allowed) {
    mistake_.keep(found.line, fmt::format("{}: found {}, allowed is {}", path_of(key), found_text(found), allowed));
  }

  // Finds the keys that nobody asked for.
  void finish() {
    for (const YamlMember& member : value_.members) {
      if (std::find(keys_.begin(), keys_.end(), member.key) != keys_.end()) continue;
      mistake_.keep(member.line,
                    fmt::format("{}: unknown field; allowed are {}", path_of(shown_text(member.key)), fmt::join(keys_, ", ")));
      return;
    }
  }

  [[nodiscard]] std::string path_of(const std::string& key) const { return path_.empty() ? key : path_ + "." + key; }

 private:
  const YamlValue& value_;
  std::string path_;
  Mistake& mistake_;
  std::vector<std::string> keys_;
};

TokenTimes read_token_times(const YamlValue& value, const std::string& path, Mistake& mistake) {
  MapReader reader(value, path, mistake);
  TokenTimes times;
  times.block_overhead_s = reader.number("blockOverheadSeconds", kNotNegative, 0);
  times.block_prefill_s_per_token = reader.number("blockPrefillSecondsPerToken", kPositive);
  times.block_decode_s_per_token = reader.number("blockDecodeSecondsPerToken", kPositive);
  times.communication_first_s = reader.number("communicationFirstSeconds", kNotNegative, 0);
  times.communication_s_per_token = reader.number("communicationSecondsPerToken", kNotNegative, 0);
  reader.finish();
  return times;
}

Server read_server(const YamlValue& value, const std::string& path, double cache_gb, Mistake& mistake) {
  MapReader reader(value, path, mistake);
  Server server;
  const std::string allowed = fmt::format("text of 1 to {} bytes without control characters", kLongestName);
  if (const YamlValue* name = reader.require("name", allowed)) {
    const bool good = name->kind == YamlValue::Kind::kText && !name->text.empty() && name->text.size() <= kLongestName &&
                      is_printable(name->text);
    if (!good) reader.refuse("name", *name, allowed);
    server.name = name->text;
  }
  server.memory_gb = reader.number("memoryGB", kPositive);
  server.communication_s = reader.number("communicationSeconds", kNotNegative);
  server.block_s = reader.number("blockSeconds", kPositive);
  server.load_gb_per_s = reader.number("loadGBPerSecond", kPositive, 1);
  if (const YamlValue* times = reader.find("tokenTimes")) {
    server.token_times = read_token_times(*times, reader.path_of("tokenTimes"), mistake);
  }
  reader.finish();
  if (server.memory_gb > cache_gb * kMostCachesOnAServer) {
    mistake.keep(value.line, fmt::format("{}.memoryGB: found {}, allowed are at most {} times model.cacheSizeGB, which is {}",
                                         path, server.memory_gb, kMostCachesOnAServer, cache_gb));
  }
  return server;
}

Instance read_instance(const YamlValue& root, Mistake& mistake) {
  Instance instance;
  MapReader reader(root, "", mistake);
  if (const YamlValue* model = reader.require("model", "a map with blocks, blockSizeGB and cacheSizeGB")) {
    MapReader fields(*model, "model", mistake);
    instance.blocks = fields.count("blocks", kMostBlocks);
    instance.block_gb = fields.number("blockSizeGB", kPositive);
    instance.cache_gb = fields.number("cacheSizeGB", kPositive);
    fields.finish();
  }
  instance.arrival_rate_per_s = reader.number("arrivalRate", kPositive);
  instance.max_load = reader.number("maxLoad", kShare, instance.max_load);
  const std::string allowed = fmt::format("a list of 1 to {} servers", kMostServers);
  const YamlValue* servers = reader.require("servers", allowed);
  reader.finish();
  if (servers == nullptr || !mistake.what.empty()) return instance;
  if (servers->kind != YamlValue::Kind::kList || servers->items.empty() || servers->items.size() > kMostServers) {
    const std::string found =
        servers->kind == YamlValue::Kind::kList ? fmt::format("{}", servers->items.size()) : found_text(*servers);
    mistake.keep(servers->line, fmt::format("servers: found {}, allowed is {}", found, allowed));
    return instance;
  }
  std::unordered_map<std::string, std::size_t> seen;
  instance.servers.reserve(servers->items.size());
  for (std::size_t i = 0; i < servers->items.size() && mistake.what.empty(); ++i) {
    const YamlValue& item = servers->items[i];
    instance.servers.push_back(read_server(item, fmt::format("servers[{}]", i), instance.cache_gb, mistake));
    const auto [first, is_new] = seen.emplace(instance.servers.back().name, i);
    if (!is_new) {
      mistake.keep(item.line,
                   fmt::format("servers[{}].name: found '{}', which servers[{}] has already; allowed are names that differ", i,
                               shown_text(first->first), first->second));
    }
  }
  return instance;
}

// A JSON string is a quoted YAML one.
std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

Result<Instance> instance_from_yaml(std::string_view text, const std::string& source) {
  WINDLASS_ASSIGN_OR_RETURN(const YamlValue root, parse_yaml_tree(text, source));
  Mistake mistake;
  Instance instance = read_instance(root, mistake);
  if (mistake.what.empty()) return instance;
  return Error{ErrorCode::kInvalidArgument, fmt::format("{}:{}: {}", source, mistake.line, mistake.what)};
}

std::string to_yaml(const Instance& instance) {
  // {} writes the shortest decimal that reads back as the same double.
  std::string text =
      fmt::format("model: {{blocks: {}, blockSizeGB: {}, cacheSizeGB: {}}}\narrivalRate: {}\nmaxLoad: {}\nservers:\n",
                  instance.blocks, instance.block_gb, instance.cache_gb, instance.arrival_rate_per_s, instance.max_load);
  for (const Server& server : instance.servers) {
    text += fmt::format("- {{name: {}, memoryGB: {}, communicationSeconds: {}, blockSeconds: {}, loadGBPerSecond: {}",
                        quoted(server.name), server.memory_gb, server.communication_s, server.block_s,
                        server.load_gb_per_s);
    if (server.token_times) {
      const TokenTimes& times = *server.token_times;
      text += fmt::format(
          ",\n   tokenTimes: {{blockOverheadSeconds: {}, blockPrefillSecondsPerToken: {}, blockDecodeSecondsPerToken: {},\n"
          "                communicationFirstSeconds: {}, communicationSecondsPerToken: {}}}",
          times.block_overhead_s, times.block_prefill_s_per_token, times.block_decode_s_per_token, times.communication_first_s,
          times.communication_s_per_token);
    }
    text += "}\n";
  }
  return text;
}

}  // namespace windlass::chain
