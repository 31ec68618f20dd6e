// Counts, limits and writes Events.
#include "controller/kube/events.h"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <utility>

#include <fmt/format.h>

#include "controller/kube/json_path.h"

namespace windlass::kube {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxMessageBytes = 1024;  // the API's limit
constexpr std::size_t kMaxNamePrefix = 200;     // leaves room for the suffix within 253

std::string cut(std::string text) {
  if (text.size() <= kMaxMessageBytes) return text;
  std::size_t end = kMaxMessageBytes - 3;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;  // do not cut inside a UTF-8 character
  return text.substr(0, end) + "...";
}

std::tm utc(double unix_s) {
  auto seconds = static_cast<std::time_t>(std::floor(unix_s));
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  return parts;
}

std::string date_time(const std::tm& t) {
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}", t.tm_year + 1900, t.tm_mon + 1, t.tm_mday, t.tm_hour, t.tm_min,
                     t.tm_sec);
}

}  // namespace

std::string rfc3339(double unix_s) { return date_time(utc(unix_s)) + "Z"; }

std::string rfc3339_micro(double unix_s) {
  double whole = std::floor(unix_s);
  auto micros = static_cast<int>(std::floor((unix_s - whole) * 1e6));
  return date_time(utc(whole)) + fmt::format(".{:06}Z", std::clamp(micros, 0, 999999));
}

EventRecorder::EventRecorder(KubeClient& client, EventOptions options) : client_(client), options_(std::move(options)) {}

void EventRecorder::forget_old(double wall_s) {
  std::erase_if(known_, [&](const auto& entry) { return wall_s - entry.second.last_s > options_.window_s; });
  double full_after_s = options_.refill_per_s > 0 ? options_.burst / options_.refill_per_s : options_.window_s;
  std::erase_if(buckets_, [&](const auto& entry) { return wall_s - entry.second.at_s > full_after_s; });
  if (known_.size() > options_.max_remembered) known_.clear();  // at worst an event appears twice
  if (buckets_.size() > options_.max_remembered) buckets_.clear();
}

Result<void> EventRecorder::record(const json& object, EventType type, const std::string& reason,
                                   const std::string& full_message, double wall_s) {
  std::string message = cut(full_message);
  std::string name_space = text_at(object, {"metadata", "namespace"});
  std::string name = text_at(object, {"metadata", "name"});
  const char* type_name = type == EventType::kNormal ? "Normal" : "Warning";
  std::string whom = text_at(object, {"kind"}) + "/" + name_space + "/" + name + "/" + text_at(object, {"metadata", "uid"});
  std::string key = whom + "\n" + type_name + "\n" + reason + "\n" + message;
  if (known_.size() >= options_.max_remembered || buckets_.size() >= options_.max_remembered) forget_old(wall_s);

  if (auto it = known_.find(key); it != known_.end() && wall_s - it->second.last_s <= options_.window_s) {
    Known& known = it->second;
    ++known.count;
    known.last_s = wall_s;
    if (wall_s - known.written_s < options_.repeat_every_s) return {};
    known.written_s = wall_s;
    json patch{{"count", known.count}, {"lastTimestamp", rfc3339(wall_s)}};
    ApiResult<json> patched = client_.patch(resources::kEvents, known.name_space, known.name, PatchType::kMerge, patch);
    if (patched.ok()) return {};
    if (patched.error().code != ErrorCode::kNotFound) return patched.error();
    known_.erase(it);  // the server deletes Events after an hour, so create a new one
  }

  Bucket& bucket = buckets_.try_emplace(whom, Bucket{options_.burst, wall_s}).first->second;
  bucket.tokens = std::min(options_.burst, bucket.tokens + std::max(0.0, wall_s - bucket.at_s) * options_.refill_per_s);
  bucket.at_s = wall_s;
  if (bucket.tokens < 1) {
    ++dropped_;
    return {};
  }
  bucket.tokens -= 1;

  std::string event_space = name_space.empty() ? "default" : name_space;
  std::string event_name = fmt::format("{}.{:x}{:04x}", name.substr(0, kMaxNamePrefix),
                                       static_cast<std::uint64_t>(std::max(0.0, wall_s) * 1e6), sequence_++ & 0xffff);
  json involved{{"apiVersion", text_at(object, {"apiVersion"})}, {"kind", text_at(object, {"kind"})}, {"name", name}};
  if (!name_space.empty()) involved["namespace"] = name_space;
  for (const char* field : {"uid", "resourceVersion"}) {
    if (std::string value = text_at(object, {"metadata", field}); !value.empty()) involved[field] = value;
  }
  json event{{"metadata", {{"namespace", event_space}, {"name", event_name}}},
             {"involvedObject", involved},
             {"type", type_name},
             {"reason", reason},
             {"message", message},
             {"count", 1},
             {"firstTimestamp", rfc3339(wall_s)},
             {"lastTimestamp", rfc3339(wall_s)},
             {"source", {{"component", options_.component}}},
             {"reportingComponent", options_.component},
             {"reportingInstance", options_.instance}};
  ApiResult<json> created = client_.create(resources::kEvents, event);
  if (!created.ok()) return created.error();
  known_[key] = Known{event_space, event_name, 1, wall_s, wall_s};
  return {};
}

}  // namespace windlass::kube
