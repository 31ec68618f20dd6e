// Draws placements and flows; see placement_svg.h.
#include "controller/cli/plan/placement_svg.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "controller/cli/charts/svg_chart.h"
#include "controller/cli/plan/placement_text.h"

namespace windlass::cli {
namespace {

using charts::escaped;
using hetero::GpuCluster;
using planner::Deployment;

constexpr int kWidth = 900;
constexpr const char* kUnused = "#e8e8e8";

// Colours with contrast against black text, alternately light and dark so that neighbours differ.
const char* colour_of(dispatch::Role role, std::size_t group) {
  const bool dark = group % 2 == 1;
  switch (role) {
    case dispatch::Role::kPrefill: return dark ? "#8fbce6" : "#c3dcf4";
    case dispatch::Role::kDecode: return dark ? "#f2b06b" : "#fad7b0";
    case dispatch::Role::kUnified: return dark ? "#97cf97" : "#cbe8cb";
  }
  return kUnused;
}

std::string svg_head(double height, const std::string& title) {
  return fmt::format(
      "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {0} {1:.0f}' width='{0}' height='{1:.0f}' role='img' "
      "font-family='sans-serif' font-size='13'>\n<title>{2}</title>\n",
      kWidth, height, escaped(title));
}

std::string text_at(double x, double y, const std::string& text, const char* anchor = "start") {
  return fmt::format("<text x='{:.1f}' y='{:.1f}' text-anchor='{}'>{}</text>\n", x, y, anchor, escaped(text));
}

std::string box(double x, double y, double width, double height, const char* fill, const std::string& tooltip) {
  return fmt::format(
      "<rect x='{:.1f}' y='{:.1f}' width='{:.1f}' height='{:.1f}' rx='3' fill='{}' "
      "stroke='#555'><title>{}</title></rect>\n",
      x, y, width, height, fill, escaped(tooltip));
}

std::string legend(const Deployment& deployment, bool any_unused, double y) {
  std::string svg;
  double x = 10;
  const auto entry = [&](const char* colour, const std::string& text) {
    svg += box(x, y, 18, 14, colour, text) + text_at(x + 24, y + 12, text);
    x += 40 + 8.0 * static_cast<double>(text.size());
  };
  for (const auto role : {dispatch::Role::kPrefill, dispatch::Role::kDecode, dispatch::Role::kUnified}) {
    const bool any =
        std::any_of(deployment.chains.begin(), deployment.chains.end(), [&](const auto& group) { return group.role == role; });
    if (any) entry(colour_of(role, 0), role == dispatch::Role::kUnified ? "unified" : dispatch::to_string(role));
  }
  if (any_unused) entry(kUnused, "unused");
  return svg;
}

// One group on its side of the flow.
struct Bar {
  std::size_t group = 0;
  double requests_per_s = 0;
  double top = 0, height = 0;
  double used = 0;  // height covered by the bands drawn so far
};

}  // namespace

std::string placement_svg(const GpuCluster& cluster, const Deployment& deployment) {
  constexpr double kLeft = 230, kCellWidth = 40, kCellHeight = 26, kGap = 3, kTop = 34;
  constexpr int kInARow = 15;
  std::vector<int> group_of(static_cast<std::size_t>(cluster.gpus()), -1);
  for (std::size_t g = 0; g < deployment.chains.size(); ++g) {
    for (const int gpu : deployment.chains[g].gpus()) group_of[static_cast<std::size_t>(gpu)] = static_cast<int>(g);
  }
  std::string svg = legend(deployment, std::find(group_of.begin(), group_of.end(), -1) != group_of.end(), 6);
  double y = kTop;
  std::size_t gpu = 0;
  for (const hetero::ClusterNode& node : cluster.nodes) {
    svg += text_at(10, y + 17, fmt::format("{}: {} x {}", node.name, node.gpus, node.accelerator.name));
    for (int i = 0; i < node.gpus; ++i, ++gpu) {
      const double x = kLeft + i % kInARow * (kCellWidth + kGap), top = y + i / kInARow * (kCellHeight + kGap);
      const int g = group_of[gpu];
      const std::string name = fmt::format("{}[{}]", node.name, i);
      if (g < 0) {
        svg += box(x, top, kCellWidth, kCellHeight, kUnused, name + ": unused");
        continue;
      }
      const planner::Chain& group = deployment.chains[static_cast<std::size_t>(g)];
      svg += box(x, top, kCellWidth, kCellHeight, colour_of(group.role, static_cast<std::size_t>(g)),
                 fmt::format("{}: group {}, {}", name, g, dispatch::to_string(group.role)));
      svg += text_at(x + kCellWidth / 2, top + 18, std::to_string(g), "middle");
    }
    y += ((node.gpus - 1) / kInARow + 1) * (kCellHeight + kGap) + 7;
  }
  return svg_head(y + 4, "Groups on their nodes") + svg + "</svg>\n";
}

std::string flow_svg(const GpuCluster& cluster, const Deployment& deployment) {
  constexpr double kHeight = 420, kTop = 26, kBarWidth = 22, kFrom = 330, kTo = kWidth - 330, kGapShare = 0.2;
  if (deployment.pairs.empty()) return "";
  std::vector<Bar> left, right;
  const auto bar_of = [](std::vector<Bar>& side, int group) -> Bar& {
    const auto index = static_cast<std::size_t>(group);
    const auto at = std::find_if(side.begin(), side.end(), [&](const Bar& bar) { return bar.group == index; });
    return at != side.end() ? *at : side.emplace_back(Bar{index});
  };
  double together = 0;
  for (const planner::PairShare& edge : deployment.pairs) {
    bar_of(left, edge.from).requests_per_s += edge.requests_per_s;
    bar_of(right, edge.to).requests_per_s += edge.requests_per_s;
    together += edge.requests_per_s;
  }
  const double height = std::max(kHeight, 24.0 * static_cast<double>(std::max(left.size(), right.size())));
  std::string svg = text_at(kFrom + kBarWidth, 15, "prefill", "end") + text_at(kTo, 15, "decode");
  std::string labels;
  for (std::vector<Bar>* side : {&left, &right}) {
    std::sort(side->begin(), side->end(), [](const Bar& a, const Bar& b) { return a.group < b.group; });
    const double gap = kGapShare * height / static_cast<double>(side->size());
    double y = kTop + gap / 2;
    for (Bar& bar : *side) {
      const planner::Chain& group = deployment.chains[bar.group];
      bar.top = y;
      bar.height = (1 - kGapShare) * height * bar.requests_per_s / together;
      y += bar.height + gap;
      const bool from = side == &left;
      const std::string gpus = gpus_text(cluster, group.gpus());
      const std::string text = fmt::format("group {}: {}", bar.group, gpus.size() > 30 ? gpus.substr(0, 29) + "…" : gpus);
      labels += box(from ? kFrom : kTo, bar.top, kBarWidth, std::max(1.0, bar.height), colour_of(group.role, bar.group),
                    fmt::format("group {}: {}", bar.group, gpus));
      const double middle = bar.top + bar.height / 2;
      const double x = from ? kFrom - 8 : kTo + kBarWidth + 8;
      const char* anchor = from ? "end" : "start";
      labels += text_at(x, middle - 2, text, anchor);
      labels +=
          text_at(x, middle + 13, fmt::format("{:.3g} of {:.3g} requests/s", bar.requests_per_s, group.requests_per_s), anchor);
    }
  }
  for (const planner::PairShare& edge : deployment.pairs) {
    Bar &from = bar_of(left, edge.from), &to = bar_of(right, edge.to);
    const double width = (1 - kGapShare) * height * edge.requests_per_s / together;
    const double y0 = from.top + from.used + width / 2, y1 = to.top + to.used + width / 2;
    from.used += width;
    to.used += width;
    const double x0 = kFrom + kBarWidth, x1 = kTo, middle = (x0 + x1) / 2;
    svg += fmt::format(
        "<path d='M{0:.1f} {1:.1f} C{2:.1f} {1:.1f} {2:.1f} {3:.1f} {4:.1f} {3:.1f}' fill='none' stroke='#777' "
        "stroke-opacity='0.35' stroke-width='{5:.2f}'><title>group {6} to group {7}: {8:.3g} requests/s, {9:.1f}%; the path "
        "carries {10:.3g}</title></path>\n",
        x0, y0, middle, y1, x1, std::max(0.5, width), edge.from, edge.to, edge.requests_per_s, 100 * edge.share,
        edge.capacity_requests_per_s);
  }
  return svg_head(kTop + height + 8, "Flow between prefill and decode groups") + svg + labels + "</svg>\n";
}

}  // namespace windlass::cli
