// See api_keys.h.
#include "gateway/api_keys.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "metrics/security/secrets.h"
#include "planner/base/json_reader.h"

namespace windlass::gateway {
namespace {

using nlohmann::json;

constexpr int kMaxPerMinute = 1'000'000'000;
constexpr int kMaxConcurrent = 1'000'000;
constexpr std::size_t kMinKeyChars = 16;
constexpr std::size_t kMaxKeyChars = 512;
constexpr int kConcurrencyRetryS = 1;
constexpr double kMaxRetryS = 3600;

Error bad(const std::string& path, const std::string& what) { return Error{ErrorCode::kInvalidArgument, path + ": " + what}; }

// A secret may be in this place, so the error gives only the type of the value.
std::optional<std::string> text_at(JsonReader& reader, const char* key) {
  const json* value = reader.find(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_string()) return value->get<std::string>();
  reader.take(bad(reader.path_of(key), fmt::format("must be a string (got {})", value->type_name())));
  return std::nullopt;
}

std::optional<int> limit_at(JsonReader& reader, const char* key, int high) {
  if (!reader.has(key)) return std::nullopt;
  return reader.int32(key, 1, high);
}

Result<std::string> digest_of(JsonReader& reader, const std::string& path) {
  const auto key = text_at(reader, "key");
  const auto sha256 = text_at(reader, "sha256");
  WINDLASS_RETURN_IF_ERROR(reader.first_mistake());
  if (key.has_value() == sha256.has_value()) {
    return bad(path, fmt::format("must have either 'sha256' or 'key' (got {})", key ? "both 'sha256' and 'key'" : "neither"));
  }
  if (key.has_value()) {
    const bool visible = std::all_of(key->begin(), key->end(), [](char c) { return c > ' ' && c < 0x7f; });
    if (!visible || key->size() < kMinKeyChars || key->size() > kMaxKeyChars) {
      return bad(path + ".key", fmt::format("must be {} to {} visible ASCII characters (got {} characters{})", kMinKeyChars,
                                            kMaxKeyChars, key->size(), visible ? "" : ", some not visible ASCII"));
    }
    return security::sha256_hex(*key);
  }
  std::string digest = *sha256;
  std::transform(digest.begin(), digest.end(), digest.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (digest.size() != 64 || digest.find_first_not_of("0123456789abcdef") != std::string::npos) {
    return bad(path + ".sha256", fmt::format("must be 64 hexadecimal digits (got {} characters)", digest.size()));
  }
  return digest;
}

Result<std::pair<std::string, ApiKey>> key_from_json(const json& value, const std::string& path) {
  JsonReader reader(value, path);
  ApiKey key;
  key.id = reader.string("id");
  const bool good_id = !key.id.empty() && key.id.size() <= 64 && std::all_of(key.id.begin(), key.id.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.';
  });
  WINDLASS_RETURN_IF_ERROR(reader.first_mistake());
  if (!good_id) return bad(path + ".id", fmt::format("must be 1 to 64 letters, digits, '-', '_' or '.' (got '{}')", key.id));
  WINDLASS_ASSIGN_OR_RETURN(std::string digest, digest_of(reader, path));
  if (!reader.has("models")) {
    return bad(path + ".models",
               fmt::format("must be a list of served names, or [\"*\"] for all (got nothing for key '{}')", key.id));
  }
  reader.list("models", [&](const json& model, const std::string& model_path) {
    if (!model.is_string() || model.get_ref<const std::string&>().empty()) {
      reader.take(bad(model_path, fmt::format("must be the served name of a model (got {})", model.dump())));
    } else if (model == "*") {
      key.all_models = true;
    } else if (const std::string name = model; name.ends_with("/*")) {
      key.prefixes.push_back(name.substr(0, name.size() - 1));
    } else {
      key.models.insert(model.get<std::string>());
    }
  });
  key.requests_per_minute = limit_at(reader, "requestsPerMinute", kMaxPerMinute);
  key.concurrent_requests = limit_at(reader, "concurrentRequests", kMaxConcurrent);
  key.tokens_per_minute = limit_at(reader, "tokensPerMinute", kMaxPerMinute);
  // Unknown fields are errors: a misspelt limit would be no limit.
  WINDLASS_RETURN_IF_ERROR(reader.finish());
  if (!key.all_models && key.models.empty() && key.prefixes.empty()) {
    return bad(path + ".models",
               fmt::format("must be a list of served names, or [\"*\"] for all (got [] for key '{}')", key.id));
  }
  return std::pair{std::move(digest), std::move(key)};
}

int whole_seconds(double wait_s) { return static_cast<int>(std::clamp(std::ceil(wait_s), 1.0, kMaxRetryS)); }

}  // namespace

Result<KeyFile> key_file_from_json(std::string_view text) {
  // The parser's own message quotes the text, which may contain a key.
  const json document = json::parse(text, nullptr, false);
  if (document.is_discarded()) {
    return Error{
        ErrorCode::kInvalidArgument,
        fmt::format("API keys: must be JSON of the form {{\"keys\": [...]}} (got {} bytes that are not JSON)", text.size())};
  }
  JsonReader reader(document, "");
  KeyFile file;
  std::set<std::string> ids;
  reader.list("keys", [&](const json& value, const std::string& path) {
    auto [digest, key] = reader.unwrap(key_from_json(value, path));
    if (key.id.empty()) return;
    if (!ids.insert(key.id).second) reader.take(bad(path + ".id", fmt::format("must be unique (got '{}' twice)", key.id)));
    const std::string id = key.id;
    if (!file.by_digest.emplace(std::move(digest), std::move(key)).second) {
      reader.take(bad(path, fmt::format("must have a key of its own (got the key of another entry for key '{}')", id)));
    }
  });
  if (const auto read = reader.finish(); !read.ok()) return read.error().within("API keys");
  return file;
}

double TokenBucket::level(double now_s) const {
  return std::min(per_minute_, level_ + std::max(0.0, now_s - at_s_) * per_minute_ / 60);
}

void TokenBucket::take(double amount, double now_s) {
  level_ = level(now_s) - amount;
  at_s_ = std::max(at_s_, now_s);
}

double TokenBucket::wait_s(double amount, double now_s) const {
  return std::max(0.0, (amount - level(now_s)) * 60 / per_minute_);
}

void TokenBucket::set_rate(double per_minute, double now_s) {
  if (per_minute == per_minute_) return;
  level_ = level(now_s);
  at_s_ = std::max(at_s_, now_s);
  per_minute_ = per_minute;
  level_ = std::min(level_, per_minute_);
}

KeyLimits::Verdict KeyLimits::admit(const ApiKey& key, double now_s) {
  Account& account = accounts_[key.id];
  const auto follow = [now_s](std::optional<TokenBucket>& bucket, const std::optional<int>& per_minute) {
    if (!per_minute.has_value()) {
      bucket.reset();
    } else if (bucket.has_value()) {
      bucket->set_rate(*per_minute, now_s);
    } else {
      bucket.emplace(*per_minute, now_s);
    }
  };
  follow(account.requests, key.requests_per_minute);
  follow(account.tokens, key.tokens_per_minute);
  if (key.concurrent_requests.has_value() && account.in_flight >= *key.concurrent_requests) {
    return {false, "concurrentRequests", kConcurrencyRetryS};
  }
  // Some slack: rounding must not refuse a request that arrives exactly when the bucket is full enough.
  constexpr double kOne = 1 - 1e-9;
  if (account.tokens.has_value() && account.tokens->level(now_s) < kOne) {
    return {false, "tokensPerMinute", whole_seconds(account.tokens->wait_s(1, now_s))};
  }
  if (account.requests.has_value()) {
    if (account.requests->level(now_s) < kOne) {
      return {false, "requestsPerMinute", whole_seconds(account.requests->wait_s(1, now_s))};
    }
    account.requests->take(1, now_s);
  }
  ++account.in_flight;
  return {};
}

void KeyLimits::finished(const std::string& id, std::int64_t tokens, double now_s) {
  Account& account = accounts_[id];
  --account.in_flight;
  if (account.tokens.has_value() && tokens > 0) account.tokens->take(static_cast<double>(tokens), now_s);
}

int KeyLimits::in_flight(const std::string& id) const {
  const auto found = accounts_.find(id);
  return found == accounts_.end() ? 0 : found->second.in_flight;
}

}  // namespace windlass::gateway
