// Lists, watches, and recovers from failures of either.
#include "controller/kube/reflector.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "controller/kube/json_path.h"

namespace windlass::kube {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxLineBytes = std::size_t{64} << 20;  // etcd's limit for an object is 1.5 MiB
constexpr std::size_t kMaxRefusalBytes = 64 << 10;
constexpr double kMaxRetryAfter_s = 300;
constexpr double kShortWatch_s = 1;  // a watch that ended sooner without events is a failure, not routine

std::string version_of(const json& object) { return text_at(object, {"metadata", "resourceVersion"}); }

// Resource versions are opaque to clients, with one exception: we compare versions of one resource to tell an echo of our own
// write from a newer state. nullopt if a server's versions are not numbers; then nothing is skipped.
std::optional<std::uint64_t> as_number(const std::string& version) {
  std::uint64_t value = 0;
  const char* end = version.data() + version.size();
  auto [at, error] = std::from_chars(version.data(), end, value);
  if (version.empty() || error != std::errc() || at != end) return std::nullopt;
  return value;
}

bool older(const std::string& version, const std::string& than) {
  auto left = as_number(version);
  auto right = as_number(than);
  return left && right && *left < *right;
}

}  // namespace

ReflectorOptions options_of(const Resource& resource, std::uint64_t seed) {
  ReflectorOptions options;
  options.resource = resource;
  options.seed = seed;
  return options;
}

std::string version_key(const json& object) {
  const std::string version = version_of(object);
  return version.empty() ? "" : text_at(object, {"metadata", "uid"}) + "/" + version;
}

std::string object_key(const json& object) {
  return text_at(object, {"metadata", "namespace"}) + "/" + text_at(object, {"metadata", "name"});
}

Reflector::Reflector(KubeClient& client, ReflectorOptions options)
    : client_(client),
      options_(std::move(options)),
      random_(options_.seed, "reflector " + options_.resource.plural + options_.name_space),
      last_sync_s_(-std::numeric_limits<double>::infinity()),
      last_heard_s_(-std::numeric_limits<double>::infinity()),
      next_step_at_(-std::numeric_limits<double>::infinity()) {}

Reflector::~Reflector() = default;

const json* Reflector::find(const std::string& name_space, const std::string& name) const {
  auto it = objects_.find(name_space + "/" + name);
  return it == objects_.end() ? nullptr : &it->second;
}

void Reflector::step(double now_s) {
  if (stream_) {
    drain(now_s);
    return;
  }
  if (now_s < next_step_at_) return;
  if (must_list_) {
    list(now_s);
  } else {
    open_watch(now_s);
  }
}

void Reflector::list_anew(double now_s) {
  if (synced_ && last_sync_s_ >= now_s) return;
  synced_ = false;
  must_list_ = true;
  if (stream_) next_step_at_ = now_s;  // otherwise a back-off may be running
  close_watch();
}

void Reflector::list(double now_s) {
  ListOptions list_options;
  list_options.label_selector = options_.label_selector;
  list_options.field_selector = options_.field_selector;
  list_options.page_size = options_.page_size;
  list_options.trim = [this](json& object) { trim(object); };
  ++counters_.lists;
  ApiResult<ObjectList> listed = client_.list(options_.resource, options_.name_space, list_options);
  if (!listed.ok()) {
    back_off(now_s, listed.error(), listed.failure().retry_after_s);
    return;
  }
  std::map<std::string, json> fresh;
  for (auto& item : listed->items) {
    std::string key = object_key(item);
    fresh.insert_or_assign(std::move(key), std::move(item));
  }
  if (!synced_ || fresh != objects_) ++generation_;
  objects_ = std::move(fresh);
  resource_version_ = listed->resource_version;
  synced_ = true;
  must_list_ = false;
  last_sync_s_ = now_s;
  last_heard_s_ = now_s;
  last_error_.reset();
  next_step_at_ = now_s;  // start the watch immediately
}

void Reflector::trim(json& object) const {
  // managedFields is the server's own bookkeeping and half of an object's size.
  const auto metadata = object.find("metadata");
  if (metadata != object.end() && metadata->is_object()) metadata->erase("managedFields");
  if (options_.trim) options_.trim(object);
}

void Reflector::open_watch(double now_s) {
  WatchOptions watch;
  watch.label_selector = options_.label_selector;
  watch.field_selector = options_.field_selector;
  watch.resource_version = resource_version_;
  watch.timeout_s = random_.uniform(options_.watch_timeout_min_s, options_.watch_timeout_max_s);
  watch.connect_timeout_s = options_.connect_timeout_s;
  ++counters_.watches;
  Result<std::unique_ptr<HttpStream>> stream = client_.watch(options_.resource, options_.name_space, watch);
  if (!stream.ok()) {
    back_off(now_s, stream.error());
    return;
  }
  stream_ = std::move(*stream);
  pending_.clear();
  watch_opened_s_ = now_s;
  watch_heard_s_ = now_s;
  watch_ends_s_ = now_s + watch.timeout_s;
  watch_head_seen_ = false;
  watch_brought_something_ = false;
  next_step_at_ = silence_limit_s();
}

double Reflector::silence_limit_s() const {
  if (!watch_head_seen_) return watch_opened_s_ + options_.connect_timeout_s + options_.watch_grace_s;
  double limit = std::max(watch_ends_s_, watch_heard_s_) + options_.watch_grace_s;
  if (options_.idle_limit_s) limit = std::min(limit, watch_heard_s_ + *options_.idle_limit_s);
  return limit;
}

void Reflector::drain(double now_s) {
  Result<HttpStream::Poll> poll = stream_->poll();
  if (!poll.ok()) {
    back_off(now_s, poll.error().within("watch " + describe(options_.resource, options_.name_space, "*")));
    return;
  }
  int status = stream_->status();
  if (!poll->bytes.empty() || (status != 0 && !watch_head_seen_)) watch_heard_s_ = now_s;
  watch_head_seen_ = status != 0;
  pending_ += poll->bytes;

  if (status == 200) {
    std::size_t begin = 0;
    for (std::size_t end = pending_.find('\n'); end != std::string::npos; end = pending_.find('\n', begin)) {
      std::string line = pending_.substr(begin, end - begin);
      begin = end + 1;
      if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
      if (!take_line(line, now_s)) return;
    }
    pending_.erase(0, begin);
    if (pending_.size() > kMaxLineBytes) {
      give_up_copy(now_s, Error{ErrorCode::kInternal, fmt::format("watch {}: a line of more than {} bytes",
                                                                  options_.resource.plural, kMaxLineBytes)});
      return;
    }
  } else if (status != 0 && (poll->finished || pending_.size() > kMaxRefusalBytes)) {
    refused(now_s, status);
    return;
  }

  if (poll->finished) {
    bool useful = watch_brought_something_ || now_s - watch_opened_s_ >= kShortWatch_s;
    close_watch();
    // pending_ holds a truncated event. The next watch delivers it whole, because the version has not advanced past it.
    if (useful) {
      next_step_at_ = now_s;
    } else {
      back_off(now_s, Error{ErrorCode::kUnavailable,
                            fmt::format("watch {}: the server closed it immediately", options_.resource.plural)});
    }
    return;
  }
  if (now_s >= silence_limit_s()) {
    ++counters_.half_open;
    double silent_s = now_s - watch_heard_s_;
    close_watch();
    last_error_ = Error{ErrorCode::kDeadlineExceeded,
                        fmt::format("watch {}: no data for {:.0f} s, reconnecting", options_.resource.plural, silent_s)};
    next_step_at_ = now_s;
    return;
  }
  next_step_at_ = silence_limit_s();
}

void Reflector::refused(double now_s, int status) {
  ApiResult<void> failure = failure_from_response("watch " + describe(options_.resource, options_.name_space, "*"),
                                                  HttpResponse{status, {}, pending_});
  if (status == 401) client_.credentials_refused();
  if (failure.error().code == ErrorCode::kGone) {
    ++counters_.gone;
    must_list_ = true;
  }
  back_off(now_s, failure.error(), failure.failure().retry_after_s);
}

bool Reflector::take_line(const std::string& line, double now_s) {
  json event = json::parse(line, nullptr, false);
  std::string type =
      event.is_object() && event.contains("type") && event["type"].is_string() ? event["type"].get<std::string>() : "";
  bool has_object = event.is_object() && event.contains("object") && event["object"].is_object();
  if (type.empty() || !has_object) {
    ++counters_.malformed;
    give_up_copy(now_s,
                 Error{ErrorCode::kInternal, fmt::format("watch {}: a line is not a watch event", options_.resource.plural)});
    return false;
  }
  json& object = event["object"];
  if (type == "ERROR") {
    ApiResult<void> failure = failure_from_status("watch " + describe(options_.resource, options_.name_space, "*"), object, 0);
    if (failure.error().code == ErrorCode::kGone) ++counters_.gone;
    give_up_copy(now_s, failure.error(), failure.failure().retry_after_s);
    return false;
  }
  std::string version = version_of(object);
  bool known_type = type == "ADDED" || type == "MODIFIED" || type == "DELETED" || type == "BOOKMARK";
  std::string key = object_key(object);
  if (version.empty() || !known_type || (type != "BOOKMARK" && key.back() == '/')) {
    ++counters_.malformed;
    give_up_copy(now_s,
                 Error{ErrorCode::kInternal,
                       fmt::format("watch {}: an event must have a known type, a name and a resourceVersion (got type '{}')",
                                   options_.resource.plural, type)});
    return false;
  }
  resource_version_ = version;
  last_heard_s_ = now_s;
  watch_brought_something_ = true;
  backoff_s_ = 0;
  last_error_.reset();
  if (type == "BOOKMARK") {
    ++counters_.bookmarks;
    return true;
  }
  ++counters_.events;
  auto held = objects_.find(key);
  // observe_write() may have stored a newer state than this event has.
  if (held != objects_.end() && older(version, version_of(held->second))) return true;
  if (type == "DELETED") {
    if (held != objects_.end()) {
      objects_.erase(held);
      ++generation_;
    }
    return true;
  }
  object["apiVersion"] = options_.resource.api_version();
  object["kind"] = options_.resource.kind;
  trim(object);
  if (held == objects_.end()) {
    objects_.emplace(std::move(key), std::move(object));
    ++generation_;
  } else if (held->second != object) {
    held->second = std::move(object);
    ++generation_;
  }
  return true;
}

void Reflector::observe_write(const json& object) {
  std::string version = version_of(object);
  // the watch has already reported this state or a newer one
  if (!synced_ || !as_number(version) || !older(resource_version_, version)) return;
  std::string key = object_key(object);
  auto held = objects_.find(key);
  if (held != objects_.end() && !older(version_of(held->second), version)) return;
  json copy = object;
  copy["apiVersion"] = options_.resource.api_version();
  copy["kind"] = options_.resource.kind;
  trim(copy);
  objects_.insert_or_assign(std::move(key), std::move(copy));
  ++generation_;
}

void Reflector::give_up_copy(double now_s, Error error, std::optional<double> retry_after_s) {
  must_list_ = true;
  back_off(now_s, std::move(error), retry_after_s);
}

void Reflector::back_off(double now_s, Error error, std::optional<double> retry_after_s) {
  ++counters_.failures;
  if (stream_ && now_s - watch_opened_s_ >= options_.backoff_reset_s) backoff_s_ = 0;
  close_watch();
  // The delay is uniform between backoff_s_/2 and backoff_s_, so it starts at backoff_min_s or more.
  backoff_s_ = backoff_s_ == 0 ? 2 * options_.backoff_min_s : std::min(options_.backoff_max_s, 2 * backoff_s_);
  double delay_s = random_.uniform(0.5, 1) * backoff_s_;
  if (retry_after_s) delay_s = std::max(delay_s, std::min(*retry_after_s, kMaxRetryAfter_s));
  next_step_at_ = now_s + delay_s;
  last_error_ = std::move(error);
}

void Reflector::close_watch() {
  stream_.reset();
  pending_.clear();
}

}  // namespace windlass::kube
