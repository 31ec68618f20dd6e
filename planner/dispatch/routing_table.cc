// The routing table's JSON and its version's text.
#include "planner/dispatch/routing_table.h"

#include <charconv>
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "planner/base/json_reader.h"
#include "planner/dispatch/packing_json.h"

namespace windlass::dispatch {
namespace {

using nlohmann::json;

constexpr int kLargestCount = 1'000'000'000;

json chain_to_json(const Chain& chain) {
  json value{{"id", chain.id},
             {"hops", chain.hops},
             {"role", to_string(chain.role)},
             {"serviceRatePerS", json_number(chain.service_rate_per_s)},
             {"capacity", chain.capacity},
             {"draining", chain.draining}};
  if (chain.latency >= 0) value["latency"] = chain.latency;
  if (!chain.token.empty()) value["token"] = chain.token;
  if (chain.share != 1) value["share"] = json_number(chain.share);
  for (const DecodeWeight& one : chain.decode_weights) {
    value["decodeWeights"].push_back({{"chain", one.chain}, {"weight", json_number(one.weight)}});
  }
  return value;
}

json route_to_json(const ModelRoute& route) {
  json chains = json::array();
  for (const Chain& chain : route.chains) chains.push_back(chain_to_json(chain));
  json latencies = json::array();
  for (const PackingModel& model : route.latencies) latencies.push_back(json(to_json(model)));
  json value{{"servedName", route.served_name},
             {"nameSpace", route.name_space},
             {"service", route.service},
             {"ttftSloS", json_number(route.ttft_slo_s)},
             {"tpotSloS", json_number(route.tpot_slo_s)},
             {"maxQueued", route.max_queued},
             {"maxContextTokens", route.max_context_tokens},
             {"expectedStartS", json_number(route.expected_start_s)},
             {"chains", std::move(chains)}};
  if (!latencies.empty()) value["latencies"] = std::move(latencies);
  return value;
}

// A rate or a time: a number that is finite and not negative.
double amount(JsonReader& reader, const char* key) {
  const double value = reader.number(key);
  if (!std::isfinite(value) || value < 0) reader.fail(key, json_number(value), "a number of at least 0");
  return value;
}

Result<Chain> chain_from_json(const json& value, const std::string& path) {
  JsonReader reader(value, path);
  Chain chain;
  chain.id = reader.string("id");
  reader.list("hops", [&](const json& hop, const std::string& hop_path) {
    if (hop.is_string() && !hop.get_ref<const std::string&>().empty()) {
      chain.hops.push_back(hop.get<std::string>());
    } else {
      reader.take(Error{ErrorCode::kInvalidArgument, fmt::format("{}: found {}, must be \"host:port\"", hop_path, hop.dump())});
    }
  });
  const std::string role = reader.string("role");
  if (role == "unified") {
    chain.role = Role::kUnified;
  } else if (role == "prefill") {
    chain.role = Role::kPrefill;
  } else if (role == "decode") {
    chain.role = Role::kDecode;
  } else {
    reader.fail("role", role, "\"unified\", \"prefill\" or \"decode\"");
  }
  chain.service_rate_per_s = amount(reader, "serviceRatePerS");
  chain.capacity = reader.int32("capacity", 0, kLargestCount);
  chain.draining = reader.boolean("draining");
  if (reader.has("latency")) chain.latency = reader.int32("latency", 0, kLargestCount);
  if (reader.has("share")) chain.share = amount(reader, "share");
  if (reader.has("token")) chain.token = reader.string("token");
  if (reader.has("decodeWeights")) {
    reader.list("decodeWeights", [&](const json& weight, const std::string& weight_path) {
      JsonReader one(weight, weight_path);
      chain.decode_weights.push_back({one.int32("chain", 0, kLargestCount), amount(one, "weight")});
      reader.take(one.first_mistake());
    });
  }
  WINDLASS_RETURN_IF_ERROR(reader.first_mistake());
  if (chain.hops.empty()) return Error{ErrorCode::kInvalidArgument, path + ".hops: found [], must name at least one worker"};
  return chain;
}

// What a chain names of the route is there.
Result<void> check_references(const ModelRoute& route, const std::string& path) {
  const auto wrong = [&](std::size_t k, const std::string& what) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("{}.chains[{}].{}", path, k, what)};
  };
  for (std::size_t k = 0; k < route.chains.size(); ++k) {
    const Chain& chain = route.chains[k];
    if (chain.latency >= static_cast<int>(route.latencies.size())) {
      return wrong(k,
                   fmt::format("latency: found {}, must be less than the {} latencies", chain.latency, route.latencies.size()));
    }
    for (std::size_t i = 0; i < chain.decode_weights.size(); ++i) {
      const auto of = static_cast<std::size_t>(chain.decode_weights[i].chain);
      if (of < route.chains.size() && route.chains[of].role == Role::kDecode) continue;
      return wrong(k, fmt::format("decodeWeights[{}].chain: found {}, must be the index of a decode chain", i, of));
    }
  }
  return {};
}

Result<ModelRoute> route_from_json(const json& value, const std::string& path) {
  JsonReader reader(value, path);
  ModelRoute route;
  route.served_name = reader.string("servedName");
  route.name_space = reader.string("nameSpace");
  route.service = reader.string("service");
  route.ttft_slo_s = amount(reader, "ttftSloS");
  route.tpot_slo_s = amount(reader, "tpotSloS");
  route.max_queued = reader.int32("maxQueued", 0, kLargestCount);
  route.max_context_tokens = reader.int32("maxContextTokens", 0, kLargestCount);
  if (reader.has("expectedStartS")) route.expected_start_s = amount(reader, "expectedStartS");
  reader.list("chains", [&](const json& chain, const std::string& chain_path) {
    route.chains.push_back(reader.unwrap(chain_from_json(chain, chain_path)));
  });
  if (reader.has("latencies")) {
    reader.list("latencies", [&](const json& model, const std::string& model_path) {
      route.latencies.push_back(reader.unwrap(packing_model_from_json(model, model_path)));
    });
  }
  WINDLASS_RETURN_IF_ERROR(reader.first_mistake());
  WINDLASS_RETURN_IF_ERROR(check_references(route, path));
  return route;
}

}  // namespace

const char* to_string(Role role) {
  switch (role) {
    case Role::kUnified: return "unified";
    case Role::kPrefill: return "prefill";
    case Role::kDecode: return "decode";
  }
  return "unknown";
}

std::string to_json(const RoutingTable& table) {
  json models = json::array();
  for (const ModelRoute& route : table.models) models.push_back(route_to_json(route));
  return json{{"version", {{"term", table.version.term}, {"counter", table.version.counter}}}, {"models", std::move(models)}}
      .dump(-1, ' ', false, json::error_handler_t::replace);
}

Result<RoutingTable> routing_table_from_json(std::string_view text) {
  WINDLASS_ASSIGN_OR_RETURN(const json document, parse_json(text, "routing table"));
  JsonReader reader(document, "");
  RoutingTable table;
  JsonReader version(reader.require("version"), "version");
  table.version.term = version.integer("term", 0, INT64_MAX);
  table.version.counter = version.integer("counter", 0, INT64_MAX);
  reader.take(version.first_mistake());
  reader.list("models", [&](const json& route, const std::string& path) {
    table.models.push_back(reader.unwrap(route_from_json(route, path)));
  });
  if (Result<void> read = reader.first_mistake(); !read.ok()) return read.error().within("routing table");
  return table;
}

std::string to_string(TableVersion version) { return fmt::format("{}.{}", version.term, version.counter); }

Result<TableVersion> table_version_from_string(std::string_view text) {
  TableVersion version;
  const char* const end = text.data() + text.size();
  const auto term = std::from_chars(text.data(), end, version.term);
  if (term.ec == std::errc{} && term.ptr != end && *term.ptr == '.') {
    const auto counter = std::from_chars(term.ptr + 1, end, version.counter);
    if (counter.ec == std::errc{} && counter.ptr == end && version.term >= 0 && version.counter >= 0) return version;
  }
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("table version: found '{}', must be TERM.COUNTER, two integers of at least 0", text)};
}

}  // namespace windlass::dispatch
