// JSON of the routing table, and the text of its version.
#include "planner/dispatch/routing_table.h"

#include <charconv>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "planner/base/json_table.h"
#include "planner/dispatch/packing_json.h"

namespace windlass::dispatch {
namespace {

using nlohmann::json;

void read_hops(JsonReader& reader, Chain& chain) {
  reader.list("hops", [&](const json& hop, const std::string& path) {
    if (hop.is_string() && !hop.get_ref<const std::string&>().empty()) {
      chain.hops.push_back(hop.get<std::string>());
    } else {
      reader.take(Error{ErrorCode::kInvalidArgument, fmt::format("{}: must be \"host:port\" (got {})", path, hop.dump())});
    }
  });
}

void read_role(JsonReader& reader, Chain& chain) {
  const std::string text = reader.string("role");
  for (const Role role : json_values(JsonType<Role>{})) {
    if (text == to_string(role)) {
      chain.role = role;
      return;
    }
  }
  reader.fail("role", text, "\"unified\", \"prefill\" or \"decode\"");
}

Result<void> check_hops(const Chain& chain, const std::string& path) {
  if (!chain.hops.empty()) return {};
  return Error{ErrorCode::kInvalidArgument, path + ".hops: must name at least one worker (got [])"};
}

// Checks that indices in a chain refer to entries of the route.
Result<void> check_references(const ModelRoute& route, const std::string& path) {
  const auto wrong = [&](std::size_t k, const std::string& what) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("{}.chains[{}].{}", path, k, what)};
  };
  for (std::size_t k = 0; k < route.chains.size(); ++k) {
    const Chain& chain = route.chains[k];
    if (chain.latency >= static_cast<int>(route.latencies.size())) {
      return wrong(
          k, fmt::format("latency: must be below {}, the number of latencies (got {})", route.latencies.size(), chain.latency));
    }
    for (std::size_t i = 0; i < chain.decode_weights.size(); ++i) {
      const auto of = static_cast<std::size_t>(chain.decode_weights[i].chain);
      if (of < route.chains.size() && route.chains[of].role == Role::kDecode) continue;
      return wrong(k, fmt::format("decodeWeights[{}].chain: must be the index of a decode chain (got {})", i, of));
    }
  }
  return {};
}

}  // namespace

constexpr auto json_fields(JsonType<TableVersion>) {
  return json_object(field("term", &TableVersion::term, 0), field("counter", &TableVersion::counter, 0))
      .passing_over_unknown_keys();
}

constexpr auto json_fields(JsonType<DecodeWeight>) {
  return json_object(field("chain", &DecodeWeight::chain, 0, kLargestCount),
                     field("weight", &DecodeWeight::weight).within(kAmount))
      .passing_over_unknown_keys();
}

constexpr auto json_fields(JsonType<Chain>) {
  using T = Chain;
  return json_object(field("id", &T::id), hook([](json& object, const T& chain) { object["hops"] = chain.hops; }, read_hops),
                     hook([](json& object, const T& chain) { object["role"] = to_string(chain.role); }, read_role),
                     field("serviceRatePerS", &T::service_rate_per_s).within(kAmount),
                     field("capacity", &T::capacity, 0, kLargestCount), field("draining", &T::draining),
                     rare("latency", &T::latency, 0, kLargestCount), rare("share", &T::share).within(kAmount),
                     rare("token", &T::token), rare("decodeWeights", &T::decode_weights))
      .passing_over_unknown_keys()
      .checked_by(check_hops);
}

constexpr auto json_fields(JsonType<ModelRoute>) {
  using T = ModelRoute;
  return json_object(field("servedName", &T::served_name), field("nameSpace", &T::name_space), field("service", &T::service),
                     field("ttftSloS", &T::ttft_slo_s).within(kAmount), field("tpotSloS", &T::tpot_slo_s).within(kAmount),
                     field("maxQueued", &T::max_queued, 0, kLargestCount),
                     field("maxContextTokens", &T::max_context_tokens, 0, kLargestCount),
                     added("expectedStartS", &T::expected_start_s).within(kAmount), rare("dispatch", &T::dispatch),
                     field("chains", &T::chains), rare("latencies", &T::latencies))
      .passing_over_unknown_keys()
      .checked_by(check_references);
}

constexpr auto json_fields(JsonType<RoutingTable>) {
  return json_object(field("version", &RoutingTable::version), field("models", &RoutingTable::models))
      .passing_over_unknown_keys();
}

const char* to_string(Role role) {
  switch (role) {
    case Role::kUnified: return "unified";
    case Role::kPrefill: return "prefill";
    case Role::kDecode: return "decode";
  }
  return "unknown";
}

std::string to_json(const RoutingTable& table) {
  json object;
  write_fields(object, table);
  return object.dump(-1, ' ', false, json::error_handler_t::replace);
}

Result<RoutingTable> routing_table_from_json(std::string_view text) {
  WINDLASS_ASSIGN_OR_RETURN(const json document, parse_json(text, "routing table"));
  Result<RoutingTable> table = read_json<RoutingTable>(document, "");
  if (!table.ok()) return table.error().within("routing table");
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
               fmt::format("table version: must be TERM.COUNTER, two integers of at least 0 (got '{}')", text)};
}

}  // namespace windlass::dispatch
