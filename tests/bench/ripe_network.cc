// Implements ripe_network.h.
#include "tests/bench/ripe_network.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <numbers>

#include <fmt/format.h>

namespace windlass::bench {
namespace {

std::vector<std::string_view> split(std::string_view text, char at) {
  std::vector<std::string_view> parts;
  while (true) {
    const auto end = text.find(at);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

double kilometres(const Anchor& a, const Anchor& b) {
  constexpr double kDegree = std::numbers::pi / 180, kEarthRadiusKm = 6371;
  const double north = (b.latitude - a.latitude) * kDegree, east = (b.longitude - a.longitude) * kDegree;
  const double h = std::pow(std::sin(north / 2), 2) +
                   std::cos(a.latitude * kDegree) * std::cos(b.latitude * kDegree) * std::pow(std::sin(east / 2), 2);
  return 2 * kEarthRadiusKm * std::asin(std::min(1.0, std::sqrt(h)));
}

}  // namespace

Result<RipeNetwork> RipeNetwork::parse(std::string_view text) {
  struct Measured {
    std::vector<double> latencies_ms;
    double latitude, longitude;
  };
  std::map<int, Measured> by_id;
  const auto lines = split(text, '\n');
  for (std::size_t i = 1; i < lines.size(); ++i) {
    if (lines[i].empty()) continue;
    const auto fields = split(lines[i], ',');
    if (fields.size() != 10) {
      return Error{ErrorCode::kInvalidArgument, fmt::format("line {}: must have 10 fields (got {})", i + 1, fields.size())};
    }
    double values[7];  // id, four latencies, latitude, longitude
    constexpr std::size_t kColumns[7] = {1, 4, 5, 6, 7, 8, 9};
    for (std::size_t column = 0; column < 7; ++column) {
      std::string_view field = fields[kColumns[column]];
      if (!field.empty() && field.back() == '\r') field.remove_suffix(1);
      const auto [end, wrong] = std::from_chars(field.data(), field.data() + field.size(), values[column]);
      if (wrong != std::errc() || end != field.data() + field.size()) {
        return Error{ErrorCode::kInvalidArgument,
                     fmt::format("line {}: field {}: must be a number (got '{}')", i + 1, kColumns[column] + 1, field)};
      }
    }
    Measured& anchor = by_id[static_cast<int>(values[0])];
    anchor.latencies_ms.insert(anchor.latencies_ms.end(), values + 1, values + 5);
    anchor.latitude = values[5];
    anchor.longitude = values[6];
  }
  RipeNetwork network;
  for (auto& [id, anchor] : by_id) {
    std::sort(anchor.latencies_ms.begin(), anchor.latencies_ms.end());
    const std::size_t n = anchor.latencies_ms.size();
    const double median = (anchor.latencies_ms[(n - 1) / 2] + anchor.latencies_ms[n / 2]) / 2;
    network.anchors_.push_back(Anchor{median, anchor.latitude, anchor.longitude});
  }
  return network;
}

double RipeNetwork::rtt_s(std::size_t i, std::size_t j) const {
  const Anchor &a = anchors_[i], &b = anchors_[j];
  return (0.3 * a.median_ms + 0.3 * b.median_ms + 0.01 * kilometres(a, b)) / 1000;
}

}  // namespace windlass::bench
