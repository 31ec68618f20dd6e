// Reads and writes INSTANCE files: see instance_yaml.h. Fields are described by tables (planner/base/yaml_table.h).
#include "planner/chain/instance_yaml.h"

#include <string>
#include <unordered_map>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "planner/base/foreign_text.h"
#include "planner/base/yaml_table.h"

namespace windlass::chain {
namespace {

using yaml::hook, yaml::list, yaml::map, yaml::number, yaml::section, yaml::text, yaml::whole;

constexpr NumberRange kPositive{kSmallestNumber, kLargestNumber};
constexpr NumberRange kNotNegative{0, kLargestNumber};
constexpr NumberRange kShare{kSmallestNumber, 1};

struct Reading {
  Instance& instance;
  std::unordered_map<std::string, std::size_t> servers = {};  // by name
};

void check_server(YamlReader& reader, const Server& server, Reading& reading) {
  const double cache_gb = reading.instance.cache_gb;
  if (server.memory_gb > cache_gb * kMaxCachesOnAServer) {
    reader.wrong("memoryGB", fmt::format("must be at most {} times model.cacheSizeGB, {} (got {})", kMaxCachesOnAServer,
                                         cache_gb, server.memory_gb));
  }
  const auto [first, is_new] = reading.servers.emplace(server.name, reading.servers.size());
  if (is_new) return;
  reader.wrong("name",
               fmt::format("must be unique (got '{}', the name of servers[{}])", shown_text(first->first), first->second));
}

auto server_fields() {
  using T = TokenTimes;
  return map(text("name", &Server::name, "text of 1 to 253 bytes without control characters", 253).required(),
             number("memoryGB", &Server::memory_gb, kPositive).required(),
             number("communicationSeconds", &Server::communication_s, kNotNegative).required(),
             number("blockSeconds", &Server::block_s, kPositive).required(),
             number("loadGBPerSecond", &Server::load_gb_per_s, kPositive),
             section("tokenTimes", &Server::token_times,
                     map(number("blockOverheadSeconds", &T::block_overhead_s, kNotNegative),
                         number("blockPrefillSecondsPerToken", &T::block_prefill_s_per_token, kPositive).required(),
                         number("blockDecodeSecondsPerToken", &T::block_decode_s_per_token, kPositive).required(),
                         number("communicationFirstSeconds", &T::communication_first_s, kNotNegative),
                         number("communicationSecondsPerToken", &T::communication_s_per_token, kNotNegative))))
      .checked_by(check_server);
}

void check_cells(YamlReader& reader, const Instance& instance) {
  const YamlValue* servers = reader.find("servers");
  if (servers == nullptr || static_cast<std::int64_t>(servers->items.size()) * instance.blocks <= kMaxCells) return;
  reader.wrong_at(servers->line, "servers",
                  fmt::format("must be at most {} servers times blocks (got {} for {} blocks)", kMaxCells,
                              servers->items.size(), instance.blocks));
}

auto instance_fields() {
  using I = Instance;
  return map(section("model", map(whole("blocks", &I::blocks, 1, kMaxBlocks).required(),
                                  number("blockSizeGB", &I::block_gb, kPositive).required(),
                                  number("cacheSizeGB", &I::cache_gb, kPositive).required()))
                 .required("a map with blocks, blockSizeGB and cacheSizeGB"),
             number("arrivalRate", &I::arrival_rate_per_s, kPositive).required(), number("maxLoad", &I::max_load, kShare),
             hook(check_cells), list("servers", &I::servers, kMaxServers, "servers", server_fields()).required());
}

// A JSON string is a valid quoted YAML string.
std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

Result<Instance> instance_from_yaml(std::string_view text, const std::string& source) {
  WINDLASS_ASSIGN_OR_RETURN(const YamlValue root, parse_yaml_tree(text, source));
  YamlMistake mistake;
  YamlReader reader(root, "", mistake);
  Instance instance;
  Reading reading{instance};
  instance_fields().read_all(reader, instance, reading);
  if (mistake.what.empty()) return instance;
  return mistake.error(source);
}

std::string to_yaml(const Instance& instance) {
  // {} prints the shortest decimal that reads back as the same double.
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
