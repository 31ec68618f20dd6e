// Reads and writes INSTANCE files: see instance_yaml.h. Fields are described by tables (planner/base/yaml_table.h).
#include "planner/chain/instance_yaml.h"

#include <optional>
#include <string>
#include <unordered_map>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "planner/base/foreign_text.h"
#include "planner/base/yaml_table.h"
#include "planner/catalog/catalog_yaml.h"
#include "planner/perf/linear_model.h"

namespace windlass::chain {
namespace {

using yaml::hook, yaml::list, yaml::map, yaml::number, yaml::section, yaml::text, yaml::whole;

constexpr NumberRange kPositive{kSmallestNumber, kLargestNumber};
constexpr NumberRange kNotNegative{0, kLargestNumber};
constexpr NumberRange kShare{kSmallestNumber, 1};

struct Lengths {
  double input_tokens = 0, output_tokens = 0;
};

struct Reading {
  Instance& instance;
  const planner::KnownAccelerators& known;
  std::unordered_map<std::string, std::size_t> servers = {};  // by name
  std::optional<planner::ModelShape> shape = {};              // if the file names the model or has its config
  std::optional<Lengths> lengths = {};                        // of the mean request
  int cache_tokens = 0;
  std::optional<planner::AcceleratorSpec> accelerator = {};  // of the server being read
  int gpus = 1;
};

constexpr double kGiga = 1e9;
constexpr NumberRange kTokens{1, 1e6};

// Block and cache sizes of the model. Embeddings and output head are spread over the blocks.
void read_shape(YamlReader& reader, Instance& instance, Reading& reading) {
  const YamlValue* config = reader.find("config");
  if (config != nullptr && reader.find("name") != nullptr) {
    return reader.wrong("must have either name or config (got name and config)");
  }
  if (config != nullptr && config->kind != YamlValue::Kind::kMap) {
    return reader.refuse("config", *config, "a map with inline, which has the fields of a config.json");
  }
  reading.shape = config != nullptr ? planner::read_inline_config(reader) : planner::read_model_name(reader);
  if (!reading.shape) return;
  const planner::ModelShape& shape = *reading.shape;
  instance.blocks = shape.layers;
  instance.block_gb = planner::weight_bytes(shape) / shape.layers / kGiga;
  if (!reading.lengths) return;
  const double mean_tokens = reading.lengths->input_tokens + reading.lengths->output_tokens;
  whole("cacheTokens", &Reading::cache_tokens, 1, 100'000'000).read(reader, reading, reading);
  instance.cache_gb =
      planner::kv_bytes(shape, reading.cache_tokens > 0 ? reading.cache_tokens : mean_tokens) / shape.layers / kGiga;
}

void read_sizes(YamlReader& reader, Instance& instance, Reading& reading) {
  const auto blocks = whole("blocks", &Instance::blocks, 1, kMaxBlocks);
  const auto block = number("blockSizeGB", &Instance::block_gb, kPositive);
  const auto cache = number("cacheSizeGB", &Instance::cache_gb, kPositive);
  if (reading.shape) {
    reader.refuse("blocks", "left out: the model's layers are its blocks");
  } else {
    blocks.required().read(reader, instance, reading);
  }
  (reading.shape ? block : block.required()).read(reader, instance, reading);
  (instance.cache_gb > 0 ? cache : cache.required()).read(reader, instance, reading);
}

// Memory and times of a server from its data sheet, at the mean lengths, for one request at a time.
void set_from_sheet(Server& server, const Reading& reading) {
  const planner::ModelShape& shape = *reading.shape;
  const planner::AcceleratorSpec& spec = *reading.accelerator;
  const Lengths& lengths = *reading.lengths;
  const planner::LinearCoefficients c = planner::linear_coefficients(shape, spec, reading.gpus, planner::EngineType::kWindlass);
  server.memory_gb = reading.gpus * spec.memory_bytes * planner::Efficiency().memory / kGiga;
  TokenTimes times;
  times.block_overhead_s = c.c1 / shape.layers;
  times.block_prefill_s_per_token = c.k1 / shape.layers;
  times.block_decode_s_per_token = (c.c3 + c.c2 + c.k2 * (lengths.input_tokens + lengths.output_tokens / 2)) / shape.layers;
  times.communication_first_s = server.communication_s / lengths.output_tokens;
  times.communication_s_per_token = times.communication_first_s;
  server.block_s = times.block_overhead_s + times.block_prefill_s_per_token * lengths.input_tokens +
                   times.block_decode_s_per_token * (lengths.output_tokens - 1);
  server.token_times = times;
}

void read_hardware(YamlReader& reader, Server& server, Reading& reading) {
  reading.accelerator.reset();
  reading.gpus = 1;
  if (reader.find("accelerator") == nullptr) return reader.belongs("gpus", "a server with an accelerator");
  const planner::AcceleratorSpec spec = planner::read_accelerator(reader, reading.known);
  whole("gpus", &Reading::gpus, 1, 1024).read(reader, reading, reading);
  if (!reader.ok()) return;
  if (!reading.shape || !reading.lengths) {
    return reader.wrong("accelerator",
                        fmt::format("must be left out without {}, which its times depend on (got '{}')",
                                    reading.shape ? "workload" : "model.name or model.config", shown_text(spec.name)));
  }
  if (!(planner::peak_flops_for(spec, reading.shape->dtype) > 0)) {
    return reader.wrong("accelerator", fmt::format("must be able to compute in {} (got {})",
                                                   planner::to_string(reading.shape->dtype), spec.name));
  }
  if (reading.gpus > 1 && !(spec.intra_link_bandwidth_bytes_per_s > 0)) {
    return reader.wrong("gpus",
                        fmt::format("must be 1, because {} has no link between GPUs (got {})", spec.name, reading.gpus));
  }
  reading.accelerator = spec;
  set_from_sheet(server, reading);
}

// What the file states itself replaces the data sheet.
void read_memory_and_times(YamlReader& reader, Server& server, Reading& reading) {
  const auto memory = number("memoryGB", &Server::memory_gb, kPositive);
  const auto block = number("blockSeconds", &Server::block_s, kPositive);
  if (reading.accelerator && reader.find("blockSeconds") != nullptr) server.token_times.reset();
  (reading.accelerator ? memory : memory.required()).read(reader, server, reading);
  (reading.accelerator ? block : block.required()).read(reader, server, reading);
}

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
             number("communicationSeconds", &Server::communication_s, kNotNegative).required(), hook(read_hardware),
             hook(read_memory_and_times), number("loadGBPerSecond", &Server::load_gb_per_s, kPositive),
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
  using L = Lengths;
  const auto lengths = section("workload", &Reading::lengths,
                               map(number("inputTokens", &L::input_tokens, kTokens).required(),
                                   number("outputTokens", &L::output_tokens, kTokens).required()));
  return map(hook([lengths](YamlReader& reader, Instance&, Reading& reading) { lengths.read(reader, reading, reading); }),
             section("model", map(hook(read_shape), hook(read_sizes)))
                 .required("a map with blocks, blockSizeGB and cacheSizeGB, or with name or config"),
             number("arrivalRate", &I::arrival_rate_per_s, kPositive).required(), number("maxLoad", &I::max_load, kShare),
             hook(check_cells), list("servers", &I::servers, kMaxServers, "servers", server_fields()).required());
}

// A JSON string is a valid quoted YAML string.
std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

Result<Instance> instance_from_yaml(std::string_view text, const std::string& source, const planner::KnownAccelerators& known) {
  WINDLASS_ASSIGN_OR_RETURN(const YamlValue root, parse_yaml_tree(text, source));
  YamlMistake mistake;
  YamlReader reader(root, "", mistake);
  Instance instance;
  Reading reading{instance, known};
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
