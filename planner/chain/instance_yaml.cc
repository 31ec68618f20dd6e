// See instance_yaml.h. A YamlReader takes each map apart; the first mistake in the order of reading is the one that is told.
#include "planner/chain/instance_yaml.h"

#include <optional>
#include <unordered_map>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "planner/base/foreign_text.h"
#include "planner/base/yaml_reader.h"

namespace windlass::chain {
namespace {

constexpr std::size_t kLongestName = 253;

constexpr NumberRange kPositive{kSmallestNumber, kLargestNumber};
constexpr NumberRange kNotNegative{0, kLargestNumber};
constexpr NumberRange kShare{kSmallestNumber, 1};

TokenTimes read_token_times(const YamlValue& value, const std::string& path, YamlMistake& mistake) {
  YamlReader reader(value, path, mistake);
  TokenTimes times;
  times.block_overhead_s = reader.number("blockOverheadSeconds", kNotNegative, 0);
  times.block_prefill_s_per_token = reader.number("blockPrefillSecondsPerToken", kPositive);
  times.block_decode_s_per_token = reader.number("blockDecodeSecondsPerToken", kPositive);
  times.communication_first_s = reader.number("communicationFirstSeconds", kNotNegative, 0);
  times.communication_s_per_token = reader.number("communicationSecondsPerToken", kNotNegative, 0);
  reader.finish();
  return times;
}

Server read_server(const YamlValue& value, const std::string& path, double cache_gb, YamlMistake& mistake) {
  YamlReader reader(value, path, mistake);
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
  if (server.memory_gb > cache_gb * kMaxCachesOnAServer) {
    mistake.keep(value.line, fmt::format("{}.memoryGB: found {}, allowed are at most {} times model.cacheSizeGB, which is {}",
                                         path, server.memory_gb, kMaxCachesOnAServer, cache_gb));
  }
  return server;
}

Instance read_instance(const YamlValue& root, YamlMistake& mistake) {
  Instance instance;
  YamlReader reader(root, "", mistake);
  if (const YamlValue* model = reader.require("model", "a map with blocks, blockSizeGB and cacheSizeGB")) {
    YamlReader fields(*model, "model", mistake);
    instance.blocks = static_cast<int>(fields.whole("blocks", 1, kMaxBlocks));
    instance.block_gb = fields.number("blockSizeGB", kPositive);
    instance.cache_gb = fields.number("cacheSizeGB", kPositive);
    fields.finish();
  }
  instance.arrival_rate_per_s = reader.number("arrivalRate", kPositive);
  instance.max_load = reader.number("maxLoad", kShare, instance.max_load);
  const std::string allowed = fmt::format("a list of 1 to {} servers", kMaxServers);
  const YamlValue* servers = reader.require("servers", allowed);
  reader.finish();
  if (servers == nullptr || !mistake.what.empty()) return instance;
  if (servers->kind != YamlValue::Kind::kList || servers->items.empty() || servers->items.size() > kMaxServers) {
    const std::string found =
        servers->kind == YamlValue::Kind::kList ? fmt::format("{}", servers->items.size()) : found_text(*servers);
    mistake.keep(servers->line, fmt::format("servers: found {}, allowed is {}", found, allowed));
    return instance;
  }
  if (static_cast<std::int64_t>(servers->items.size()) * instance.blocks > kMaxCells) {
    mistake.keep(servers->line, fmt::format("servers: found {} for {} blocks, allowed are at most {} servers times blocks",
                                            servers->items.size(), instance.blocks, kMaxCells));
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
  YamlMistake mistake;
  Instance instance = read_instance(root, mistake);
  if (mistake.what.empty()) return instance;
  return mistake.error(source);
}

std::string to_yaml(const Instance& instance) {
  // {} writes the shortest decimal that reads back as the same double.
  std::string text =
      fmt::format("model: {{blocks: {}, blockSizeGB: {}, cacheSizeGB: {}}}\narrivalRate: {}\nmaxLoad: {}\nservers:\n",
                  instance.blocks, instance.block_gb, instance.cache_gb, instance.arrival_rate_per_s, instance.max_load);
  for (const Server& server : instance.servers) {
    text += fmt::format("- {{name: {}, memoryGB: {}, communicationSeconds: {}, blockSeconds: {}, loadGBPerSecond: {}",
                        quoted(server.name), server.memory_gb, server.communication_s, server.block_s, server.load_gb_per_s);
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
