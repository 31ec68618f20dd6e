// Reads the nodes and links of a cluster, and derives what a plan needs from them: accelerators to choose among and a network.
// See scenario_sections.h.
#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "planner/base/foreign_text.h"
#include "planner/deployment/network_parts.h"
#include "planner/whatif/scenario_sections.h"

namespace windlass::sim {
namespace {

using hetero::ClusterNode;
using hetero::GpuCluster;
using hetero::Link;

constexpr std::size_t kMaxNodes = 10'000;
constexpr std::size_t kMaxLinks = 1'000'000;
constexpr double kNoNetwork_bytes_per_s = 1;  // for strategies that know a single network only: effectively no transfers

// State while nodes and links are read.
struct NodesReading {
  GpuCluster& cluster;
  const planner::KnownAccelerators& known;
  std::map<std::string, int> index = {};      // index of a node by name
  std::map<std::string, double> prices = {};  // prices in the file, by accelerator
  std::set<std::string> told = {};            // accelerators whose data sheet supplied intraGBps
  bool links_given = false;
  double latency_s = 0;  // default of the next link
};

// Defaults to the data sheet.
void set_within(YamlReader& reader, ClusterNode& node, NodesReading& reading) {
  const planner::AcceleratorSpec& sheet = node.accelerator;
  node.within = {sheet.intra_link_bandwidth_bytes_per_s, sheet.intra_link_latency_s};
  if (reader.find("intraGBps") != nullptr || node.gpus == 1 || !reading.told.insert(sheet.name).second) return;
  reader.note("intraGBps", fmt::format("{:.6g} ({}'s data sheet)", node.within.bytes_per_s / 1e9, sheet.name));
}

void check_node(YamlReader& reader, ClusterNode& node, NodesReading& reading) {
  const auto [first, is_new] = reading.index.emplace(node.name, static_cast<int>(reading.cluster.nodes.size()) - 1);
  if (is_new) return;
  reader.wrong("name", fmt::format("must be unique (got '{}', as cluster.nodes[{}])", shown_text(node.name), first->second));
}

// One price for all nodes with the accelerator.
void read_price(YamlReader& reader, ClusterNode& node, NodesReading& reading) {
  if (reader.find("pricePerGpuHour") == nullptr) return;
  const double price = reader.number("pricePerGpuHour", kPrice);
  const auto [stated, is_new] = reading.prices.emplace(node.accelerator.name, price);
  if (is_new || stated->second == price) return;
  reader.wrong("pricePerGpuHour", fmt::format("must be the same on all nodes with {} (got {:g}, another node has {:g})",
                                              node.accelerator.name, price, stated->second));
}

void check_nodes(YamlReader& reader, GpuCluster& cluster) {
  int gpus = 0;
  for (std::size_t i = 0; i < cluster.nodes.size() && reader.ok(); ++i) {
    gpus += cluster.nodes[i].gpus;
    if (gpus < kMaxWorkers) continue;
    reader.wrong_at(reader.find("nodes")->items[i].line, "nodes",
                    fmt::format("must have at most {} GPUs in total", kMaxWorkers - 1));
  }
}

auto node_fields() {
  return map(text("name", &ClusterNode::name, "a unique name").required(),
             hook([](YamlReader& reader, ClusterNode& node, NodesReading& reading) {
               node.accelerator = read_accelerator(reader, reading.known, false);
             }),
             whole("gpus", &ClusterNode::gpus, 1, 1024).required(), hook(set_within),
             part(&ClusterNode::within, number("intraGBps", &Link::bytes_per_s, kGBps, kGiga),
                  duration("intraLatency", &Link::latency_s, kLatency_s)),
             hook(read_price))
      .checked_by(check_node);
}

auto link_fields() {
  return map(hook([](YamlReader&, Link& link, NodesReading& reading) { link.latency_s = reading.latency_s; }),
             number("GBps", &Link::bytes_per_s, {0, 1e6}, kGiga).required(), duration("latency", &Link::latency_s, kLatency_s));
}

// Default link: the slowest of all nodes' networks by their data sheets.
void set_default_link(YamlReader& links, GpuCluster& cluster, NodesReading& reading) {
  reading.latency_s = 0;
  double bytes_per_s = std::numeric_limits<double>::infinity();
  std::string slowest;
  for (const ClusterNode& node : cluster.nodes) {
    reading.latency_s = std::max(reading.latency_s, node.accelerator.inter_link_latency_s);
    if (node.accelerator.inter_link_bandwidth_bytes_per_s >= bytes_per_s) continue;
    bytes_per_s = node.accelerator.inter_link_bandwidth_bytes_per_s;
    slowest = node.accelerator.name;
  }
  if (cluster.nodes.size() < 2) return;
  if (reading.links_given) return links.note("default", "none: nodes that `between` does not list have no link");
  cluster.default_link = {bytes_per_s, reading.latency_s};
  links.note("default", fmt::format("{{GBps: {:.6g}, latency: {}}} (the data sheets' slowest, {}'s)", bytes_per_s / 1e9,
                                    duration_text(reading.latency_s), slowest));
}

// The two nodes that a link joins; empty after an error.
std::vector<int> read_ends(YamlReader& reader, const NodesReading& reading) {
  constexpr const char* kAllowed = "a list of the names of two nodes";
  const YamlValue* ends = reader.require("nodes", kAllowed);
  if (ends == nullptr) return {};
  if (ends->kind != YamlValue::Kind::kList || ends->items.size() != 2) {
    reader.refuse("nodes", *ends, kAllowed);
    return {};
  }
  std::vector<int> nodes;
  for (const YamlValue& end : ends->items) {
    const auto found = reading.index.find(end.text);
    if (end.kind != YamlValue::Kind::kText || found == reading.index.end()) {
      std::vector<int> some;
      for (int node = 0; node < std::min(9, static_cast<int>(reading.cluster.nodes.size())); ++node) some.push_back(node);
      reader.wrong_at(end.line, "nodes",
                      fmt::format("must be names of nodes: {} (got {})", names_text(reading.cluster, some), found_text(end)));
      return {};
    }
    nodes.push_back(found->second);
  }
  if (nodes[0] != nodes[1]) return nodes;
  reader.wrong_at(ends->line, "nodes",
                  fmt::format("must be two different nodes (got '{}' twice); a node's own link is `intraGBps`",
                              shown_text(ends->items[0].text)));
  return {};
}

void read_between(YamlReader& links, GpuCluster& cluster, NodesReading& reading) {
  static const auto kLink = link_fields();
  const YamlValue* between = links.list("between", 0, kMaxLinks, "maps with nodes and GBps", false);
  for (std::size_t i = 0; between != nullptr && i < between->items.size() && links.ok(); ++i) {
    YamlReader reader = links.item("between", *between, i);
    const std::vector<int> ends = read_ends(reader, reading);
    reading.latency_s = 0;
    for (const int end : ends) {
      const planner::AcceleratorSpec& sheet = cluster.nodes[static_cast<std::size_t>(end)].accelerator;
      reading.latency_s = std::max(reading.latency_s, sheet.inter_link_latency_s);
    }
    Link link;
    kLink.read_all(reader, link, reading);
    if (!links.ok() || cluster.between.emplace(std::minmax(ends[0], ends[1]), link).second) continue;
    const YamlValue& names = *reader.find("nodes");
    reader.wrong_at(names.line, "nodes",
                    fmt::format("must be listed once (got '{}' and '{}' a second time)", shown_text(names.items[0].text),
                                shown_text(names.items[1].text)));
  }
}

auto cluster_of_nodes() {
  return map(list("nodes", &GpuCluster::nodes, kMaxNodes, "maps with name, accelerator and gpus", node_fields()).required(),
             hook(check_nodes), hook([](YamlReader& cluster, GpuCluster&, NodesReading& reading) {
               reading.links_given = cluster.find("links") != nullptr;
             }),
             when([](GpuCluster& cluster) { return !cluster.nodes.empty(); },
                  section("links", map(hook(set_default_link), section("default", &GpuCluster::default_link, link_fields()),
                                       hook(read_between)))
                      .or_defaults()));
}

// Each accelerator once, in order of its first node: total GPUs, largest node, slowest link.
std::vector<ScenarioPool> classes(NodesReading& reading, const YamlValue& list) {
  std::vector<ScenarioPool> pools;
  for (std::size_t i = 0; i < reading.cluster.nodes.size(); ++i) {
    ClusterNode& node = reading.cluster.nodes[i];
    planner::AcceleratorSpec& spec = node.accelerator;
    if (const auto price = reading.prices.find(spec.name); price != reading.prices.end()) spec.price_per_hour = price->second;
    spec.intra_link_bandwidth_bytes_per_s = node.within.bytes_per_s;
    spec.intra_link_latency_s = node.within.latency_s;
    auto pool = std::find_if(pools.begin(), pools.end(), [&](const auto& each) { return each.accelerator.name == spec.name; });
    if (pool == pools.end()) {
      pool = pools.insert(pool, {.accelerator = spec, .workers = 0, .price_per_gpu_hour = spec.price_per_hour});
      pool->accelerator.gpus_per_node = 0;
      pool->line = list.items[i].line;
    }
    pool->workers += node.gpus;
    planner::AcceleratorSpec& all = pool->accelerator;
    all.gpus_per_node = std::max(all.gpus_per_node, node.gpus);
    all.intra_link_bandwidth_bytes_per_s = std::min(all.intra_link_bandwidth_bytes_per_s, node.within.bytes_per_s);
    all.intra_link_latency_s = std::max(all.intra_link_latency_s, node.within.latency_s);
  }
  return pools;
}

search::PlanNetwork slowest_network(const GpuCluster& cluster) {
  Link within{std::numeric_limits<double>::infinity(), 0}, between = within;
  const auto slower = [](Link& slowest, const Link& link) {
    if (!(link.bytes_per_s > 0)) return;
    slowest.bytes_per_s = std::min(slowest.bytes_per_s, link.bytes_per_s);
    slowest.latency_s = std::max(slowest.latency_s, link.latency_s);
  };
  for (const ClusterNode& node : cluster.nodes) slower(within, node.within);
  for (const auto& [pair, link] : cluster.between) slower(between, link);
  const std::size_t nodes = cluster.nodes.size();
  if (cluster.between.size() < nodes * (nodes - 1) / 2) slower(between, cluster.default_link);
  if (nodes == 1) between = within;
  if (between.bytes_per_s == std::numeric_limits<double>::infinity()) between.bytes_per_s = kNoNetwork_bytes_per_s;
  return {within.bytes_per_s, between.bytes_per_s, within.latency_s, between.latency_s};
}

}  // namespace

void read_nodes(YamlReader& parent, Reading& reading) {
  static const auto kCluster = section("cluster", cluster_of_nodes()).required("a map with nodes and links");
  NodesReading nodes{reading.file.cluster, reading.known};
  reading.plan().accelerators_field = "cluster.nodes";
  kCluster.read(parent, nodes.cluster, nodes);
  if (!parent.ok()) return;
  const YamlValue* cluster = parent.find("cluster");
  reading.file.line = cluster->line;
  reading.service->pools = classes(nodes, *member_of(*cluster, "nodes"));
  reading.plan().network = slowest_network(nodes.cluster);
}

}  // namespace windlass::sim
