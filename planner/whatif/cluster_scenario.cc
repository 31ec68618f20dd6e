// See cluster_scenario.h.
#include "planner/whatif/cluster_scenario.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "planner/base/foreign_text.h"
#include "planner/base/yaml_reader.h"
#include "planner/deployment/network_parts.h"
#include "planner/whatif/plan_scenario_yaml.h"
#include "planner/whatif/scenario_yaml_service.h"

namespace windlass::hetero {
namespace {

constexpr std::size_t kMaxNodes = 10'000;
constexpr std::size_t kMaxLinks = 1'000'000;
constexpr double kNoNetwork_bytes_per_s = 1;  // for strategies that know of one network alone: nothing crosses it

const YamlValue* member_of(const YamlValue& value, std::string_view key) {
  for (const YamlMember& member : value.members) {
    if (member.key == key) return &member.value;
  }
  return nullptr;
}

class ClusterReader {
 public:
  ClusterReader(GpuCluster& cluster, std::vector<std::string>& defaults, YamlMistake& mistake)
      : cluster_(cluster), defaults_(defaults), mistake_(mistake) {}

  search::AcceleratorsElsewhere::Found read(const YamlValue& value) {
    YamlReader reader(value, "cluster", mistake_);
    read_nodes(reader);
    read_links(reader);
    reader.finish();
    search::AcceleratorsElsewhere::Found found;
    if (!mistake_.what.empty()) return found;
    found.accelerators = classes();
    found.network = slowest_network();
    return found;
  }

 private:
  void read_nodes(YamlReader& reader) {
    const std::string allowed = fmt::format("a list of 1 to {} maps with name, accelerator and gpus", kMaxNodes);
    const YamlValue* nodes = reader.require("nodes", allowed);
    if (nodes == nullptr) return;
    if (nodes->kind != YamlValue::Kind::kList || nodes->items.empty() || nodes->items.size() > kMaxNodes) {
      reader.refuse("nodes", *nodes, allowed);
      return;
    }
    for (std::size_t i = 0; i < nodes->items.size() && mistake_.what.empty(); ++i) {
      YamlReader fields(nodes->items[i], fmt::format("cluster.nodes[{}]", i), mistake_);
      read_node(fields);
    }
  }

  void read_node(YamlReader& fields) {
    ClusterNode node;
    node.name = fields.text("name", "a name of its own");
    if (auto spec = sim::read_accelerator(fields, mistake_)) node.accelerator = std::move(*spec);
    node.gpus = static_cast<int>(fields.whole("gpus", 1, 1024));
    const planner::AcceleratorSpec& sheet = node.accelerator;
    node.within = {sheet.intra_link_bandwidth_bytes_per_s, sheet.intra_link_latency_s};
    if (fields.find("intraGBps") != nullptr) {
      node.within.bytes_per_s = 1e9 * fields.number("intraGBps", {1e-6, 1e6});
    } else if (node.gpus > 1 && told_.insert(sheet.name).second) {
      defaults_.push_back(
          fmt::format("{}: {:.6g} ({}'s data sheet)", fields.path_of("intraGBps"), node.within.bytes_per_s / 1e9, sheet.name));
    }
    if (fields.find("intraLatency") != nullptr) node.within.latency_s = fields.duration_s("intraLatency", {0, 60});
    std::optional<double> price;
    if (fields.find("pricePerGpuHour") != nullptr) price = fields.number("pricePerGpuHour", {0, 1e6});
    fields.finish();
    if (!mistake_.what.empty()) return;
    const auto [at, is_new] = index_.emplace(node.name, static_cast<int>(cluster_.nodes.size()));
    if (!is_new) {
      mistake_.keep(fields.line(),
                    fmt::format("{}: found '{}', which is the name of cluster.nodes[{}] too, allowed is a name of its own",
                                fields.path_of("name"), shown_text(node.name), at->second));
    }
    gpus_ += node.gpus;
    if (gpus_ >= sim::kMaxWorkers) {
      mistake_.keep(fields.line(),
                    fmt::format("cluster.nodes: found more than {} GPUs, allowed are so many together", sim::kMaxWorkers - 1));
    }
    if (price) set_price(fields, node.accelerator.name, *price);
    lines_.emplace(node.accelerator.name, fields.line());
    cluster_.nodes.push_back(std::move(node));
  }

  void set_price(YamlReader& fields, const std::string& accelerator, double price) {
    const auto [at, is_new] = prices_.emplace(accelerator, price);
    if (is_new || at->second == price) return;
    mistake_.keep(fields.line(),
                  fmt::format("{}: found {:g} beside {:g} of another node with {}, allowed is one price for each "
                              "accelerator",
                              fields.path_of("pricePerGpuHour"), price, at->second, accelerator));
  }

  // Of a link that leaves it open: the later of its ends.
  double latency_of(YamlReader& fields, const std::vector<int>& ends) {
    if (fields.find("latency") != nullptr) return fields.duration_s("latency", {0, 60});
    double latency_s = 0;
    for (const int end : ends) {
      latency_s = std::max(latency_s, cluster_.nodes[static_cast<std::size_t>(end)].accelerator.inter_link_latency_s);
    }
    return latency_s;
  }

  Link link_of(YamlReader& fields, const std::vector<int>& ends) {
    Link link;
    link.bytes_per_s = 1e9 * fields.number("GBps", {0, 1e6});
    link.latency_s = latency_of(fields, ends);
    return link;
  }

  void read_links(YamlReader& reader) {
    const YamlValue* value = reader.find("links");
    if (!mistake_.what.empty()) return;
    std::vector<int> all;
    for (std::size_t node = 0; node < cluster_.nodes.size(); ++node) all.push_back(static_cast<int>(node));
    if (value == nullptr) {
      if (all.size() > 1) take_data_sheets();
      return;
    }
    YamlReader links(*value, "cluster.links", mistake_);
    if (const auto* found = links.find("default")) {
      YamlReader fields(*found, "cluster.links.default", mistake_);
      cluster_.default_link = link_of(fields, all);
      fields.finish();
    } else if (all.size() > 1) {
      defaults_.emplace_back("cluster.links.default: none: nodes that `between` does not join have no link");
    }
    const YamlValue* between = links.find("between");
    links.finish();
    if (between == nullptr) return;
    const std::string allowed = fmt::format("a list of at most {} maps with nodes and GBps", kMaxLinks);
    if (between->kind != YamlValue::Kind::kList || between->items.size() > kMaxLinks) {
      links.refuse("between", *between, allowed);
      return;
    }
    for (std::size_t i = 0; i < between->items.size() && mistake_.what.empty(); ++i) {
      YamlReader fields(between->items[i], fmt::format("cluster.links.between[{}]", i), mistake_);
      read_link(fields);
    }
  }

  void read_link(YamlReader& fields) {
    constexpr const char* kAllowed = "a list of the names of two nodes";
    const YamlValue* ends = fields.require("nodes", kAllowed);
    if (ends == nullptr) return;
    if (ends->kind != YamlValue::Kind::kList || ends->items.size() != 2) {
      fields.refuse("nodes", *ends, kAllowed);
      return;
    }
    std::vector<int> nodes;
    for (const YamlValue& end : ends->items) {
      const auto found = index_.find(end.text);
      if (end.kind != YamlValue::Kind::kText || found == index_.end()) {
        std::vector<int> all(std::min<std::size_t>(cluster_.nodes.size(), 9));
        for (std::size_t node = 0; node < all.size(); ++node) all[node] = static_cast<int>(node);
        mistake_.keep(end.line, fmt::format("{}: found {}, which is no node, allowed are {}", fields.path_of("nodes"),
                                            found_text(end), names_text(cluster_, all)));
        return;
      }
      nodes.push_back(found->second);
    }
    if (nodes[0] == nodes[1]) {
      mistake_.keep(ends->line, fmt::format("{}: found a link of '{}' to itself, allowed are two nodes; its own is `intraGBps`",
                                            fields.path_of("nodes"), shown_text(ends->items[0].text)));
      return;
    }
    const Link link = link_of(fields, nodes);
    fields.finish();
    if (!cluster_.between.emplace(std::minmax(nodes[0], nodes[1]), link).second) {
      mistake_.keep(ends->line,
                    fmt::format("{}: found '{}' and '{}' a second time, allowed is one link of two nodes",
                                fields.path_of("nodes"), shown_text(ends->items[0].text), shown_text(ends->items[1].text)));
    }
  }

  // The slowest node's network for all: what the data sheets say where the file says nothing of links.
  void take_data_sheets() {
    double bytes_per_s = std::numeric_limits<double>::infinity(), latency_s = 0;
    const ClusterNode* slowest = nullptr;
    for (const ClusterNode& node : cluster_.nodes) {
      latency_s = std::max(latency_s, node.accelerator.inter_link_latency_s);
      if (node.accelerator.inter_link_bandwidth_bytes_per_s >= bytes_per_s) continue;
      bytes_per_s = node.accelerator.inter_link_bandwidth_bytes_per_s;
      slowest = &node;
    }
    cluster_.default_link = {bytes_per_s, latency_s};
    defaults_.push_back(fmt::format("cluster.links.default: {{GBps: {:.6g}, latency: {}}} (the data sheets' slowest, {}'s)",
                                    bytes_per_s / 1e9, duration_text(latency_s), slowest->accelerator.name));
  }

  // Each accelerator once, by its first node: its GPUs together, its largest node, its slowest link.
  std::vector<sim::ScenarioPool> classes() {
    std::vector<sim::ScenarioPool> pools;
    std::map<std::string, std::size_t> place;
    for (ClusterNode& node : cluster_.nodes) {
      planner::AcceleratorSpec& spec = node.accelerator;
      if (const auto price = prices_.find(spec.name); price != prices_.end()) spec.price_per_hour = price->second;
      spec.intra_link_bandwidth_bytes_per_s = node.within.bytes_per_s;
      spec.intra_link_latency_s = node.within.latency_s;
      const auto [at, is_new] = place.emplace(spec.name, pools.size());
      if (is_new) {
        sim::ScenarioPool& pool = pools.emplace_back();
        pool.accelerator = spec;
        pool.accelerator.gpus_per_node = 0;
        pool.workers = 0;
        pool.price_per_gpu_hour = spec.price_per_hour;
        pool.line = lines_.at(spec.name);
      }
      sim::ScenarioPool& pool = pools[at->second];
      pool.workers += node.gpus;
      planner::AcceleratorSpec& of_class = pool.accelerator;
      of_class.gpus_per_node = std::max(of_class.gpus_per_node, node.gpus);
      of_class.intra_link_bandwidth_bytes_per_s =
          std::min(of_class.intra_link_bandwidth_bytes_per_s, spec.intra_link_bandwidth_bytes_per_s);
      of_class.intra_link_latency_s = std::max(of_class.intra_link_latency_s, spec.intra_link_latency_s);
    }
    return pools;
  }

  search::PlanNetwork slowest_network() const {
    Link within{std::numeric_limits<double>::infinity(), 0}, between = within;
    const auto slower = [](Link& slowest, const Link& link) {
      if (!(link.bytes_per_s > 0)) return;
      slowest.bytes_per_s = std::min(slowest.bytes_per_s, link.bytes_per_s);
      slowest.latency_s = std::max(slowest.latency_s, link.latency_s);
    };
    for (const ClusterNode& node : cluster_.nodes) slower(within, node.within);
    for (const auto& [pair, link] : cluster_.between) slower(between, link);
    const std::size_t nodes = cluster_.nodes.size();
    if (cluster_.between.size() < nodes * (nodes - 1) / 2) slower(between, cluster_.default_link);
    if (nodes == 1) between = within;
    if (between.bytes_per_s == std::numeric_limits<double>::infinity()) between.bytes_per_s = kNoNetwork_bytes_per_s;
    search::PlanNetwork network;
    network.within_node_bytes_per_s = within.bytes_per_s;
    network.within_node_latency_s = within.latency_s;
    network.between_nodes_bytes_per_s = between.bytes_per_s;
    network.between_nodes_latency_s = between.latency_s;
    return network;
  }

  GpuCluster& cluster_;
  std::vector<std::string>& defaults_;
  YamlMistake& mistake_;
  std::map<std::string, int> index_;      // of a node by name
  std::map<std::string, double> prices_;  // that the file states, by accelerator
  std::map<std::string, int> lines_;      // of an accelerator's first node
  std::set<std::string> told_;            // accelerators whose data sheet was taken for intraGBps
  int gpus_ = 0;
};

// What a part of the network has for the model.
std::string room_text(const GpuCluster& cluster, const std::vector<int>& part, double needed_bytes) {
  const double there = memory_bytes(cluster, part);
  return fmt::format(
      "{} {} {:.0f} GB{}", names_text(cluster, part), part.size() == 1 ? "has" : "have", there / 1e9,
      there >= needed_bytes ? "" : fmt::format(", {:.0f} GB too few", std::max(1.0, (needed_bytes - there) / 1e9)));
}

}  // namespace

bool holds_cluster(std::string_view yaml) {
  const auto root = parse_yaml_tree(yaml, "");
  if (!root.ok()) return false;
  const YamlValue* cluster = member_of(*root, "cluster");
  return cluster != nullptr && cluster->kind == YamlValue::Kind::kMap && member_of(*cluster, "pools") == nullptr;
}

Result<ClusterScenario> parse_cluster_scenario(std::string_view yaml, const std::string& source) {
  WINDLASS_ASSIGN_OR_RETURN(const YamlValue root, parse_yaml_tree(yaml, source));
  ClusterScenario scenario;
  const search::AcceleratorsElsewhere nodes{"cluster.nodes",
                                            [&](YamlReader& file, std::vector<std::string>& defaults, YamlMistake& mistake) {
                                              const YamlValue* cluster = file.require("cluster", "a map with nodes and links");
                                              if (cluster == nullptr) return search::AcceleratorsElsewhere::Found{};
                                              scenario.line = cluster->line;
                                              return ClusterReader(scenario.cluster, defaults, mistake).read(*cluster);
                                            }};
  WINDLASS_ASSIGN_OR_RETURN(scenario.plan, search::read_plan_scenario(root, source, &nodes));
  return scenario;
}

Result<search::Question> question_of(ClusterScenario scenario, const std::map<std::string, std::string>& texts) {
  const std::string source = scenario.plan.scenario.source;
  const int line = scenario.line;
  const sim::ScenarioModel& asked = scenario.plan.scenario.services.front().model;
  const std::string model = asked.name.empty() ? asked.config_file : asked.name;
  WINDLASS_RETURN_IF_ERROR(validate(scenario.cluster));
  WINDLASS_ASSIGN_OR_RETURN(auto made, search::question_without_kinds(std::move(scenario.plan), texts));
  made.keep_notes([](const std::string& note) { return note.starts_with("cluster.") || note.starts_with("latency:"); });
  search::Problem& problem = made.problem();
  const auto cluster = std::make_shared<const GpuCluster>(std::move(scenario.cluster));
  problem.cluster = cluster;

  const double weight_bytes = planner::weight_bytes(problem.shape);
  const double request_bytes = planner::kv_bytes_per_token(problem.shape) *
                               (problem.requests->mean_input_tokens() + problem.requests->mean_output_tokens());
  const double needed_bytes = weight_bytes + request_bytes;
  const std::vector<std::vector<int>> parts = network_parts(*cluster);
  std::string rooms;
  bool fits = false;
  for (const std::vector<int>& part : parts) {
    rooms += (rooms.empty() ? "" : "; ") + room_text(*cluster, part, needed_bytes);
    fits = fits || memory_bytes(*cluster, part) >= needed_bytes;
  }
  if (!fits) {
    return Error{
        ErrorCode::kNotFound,
        fmt::format("{}:{}: cluster: found {} that fits nowhere: weights of {:.0f} GB and a mean request's KV cache of "
                    "{:.2g} GB, allowed are nodes that links join with {:.0f} GB together; {}",
                    source, line, model, weight_bytes / 1e9, request_bytes / 1e9, needed_bytes / 1e9, rooms)};
  }
  if (parts.size() > 1) {
    made.note(
        fmt::format("cluster.links: the network is in {} parts, and a copy of the model ({:.0f} GB) stays in "
                    "one: {}",
                    parts.size(), needed_bytes / 1e9, rooms));
  }
  return made;
}

}  // namespace windlass::hetero
