// Parses changes of role and blocks, and decides whether they are allowed; see duty.h.
#include "worker/serve/duty.h"

#include <utility>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "planner/base/shown_json.h"
#include "worker/model/json_input.h"

namespace windlass::worker {
namespace {

using nlohmann::ordered_json;

// The value of a body's only key.
struct Found {
  std::optional<std::string> text;  // nullopt if it is not a string
  std::string body;                 // for the error message
};
Found find_in(const std::string& body, const char* key) {
  const auto read = parse_json(body, kMaxRequestParts);
  if (!read.ok()) return {std::nullopt, "no JSON"};
  Found out{std::nullopt, shown(*read)};
  if (read->is_object() && read->contains(key) && read->at(key).is_string())
    out.text = read->at(key).get_ref<const std::string&>();
  return out;
}

ApiError some_blocks_alone() {
  return {403, "role: cannot be changed while this worker serves only some of the model's blocks"};
}

}  // namespace

PhaseTexts texts_of(Phase phase) {
  switch (phase) {
    case Phase::kLoading: return {"loading", "is loading", "loading"};
    case Phase::kReady: return {"ready", "", ""};
    case Phase::kChanging: return {"changing", "is changing its blocks", "blocks"};
    case Phase::kDraining: return {"draining", "is draining", "draining"};
  }
  return {"", "", ""};
}

ApiError no_change(Phase phase) {
  const PhaseTexts texts = texts_of(phase);
  return {503, fmt::format("blocks: cannot be changed now: this worker {}", texts.why), "server_error", "", texts.rejected};
}

std::variant<Role, ApiError> role_in(const std::string& body) {
  const Found found = find_in(body, "role");
  if (const auto role = found.text ? role_from(*found.text) : std::nullopt) return *role;
  return ApiError{400,
                  fmt::format("role: must be unified, prefill or decode, as in {{\"role\": \"unified\"}} (got {})", found.body),
                  "invalid_request_error", "role"};
}

std::variant<BlockRange, ApiError> blocks_in(const std::string& body) {
  const Found found = find_in(body, "blocks");
  if (const auto blocks = found.text ? parse_blocks(*found.text) : Result<BlockRange>(Error{}); blocks.ok()) return *blocks;
  return ApiError{400,
                  fmt::format("blocks: must be whole numbers 0 <= A < B, as in {{\"blocks\": \"A:B\"}} (got {})", found.body),
                  "invalid_request_error", "blocks"};
}

Role Duty::role() const {
  const std::scoped_lock lock(mutex_);
  return role_;
}

std::optional<ApiError> Duty::fixed_role() const {
  const std::scoped_lock lock(mutex_);
  return in_parts_ ? std::optional<ApiError>(some_blocks_alone()) : std::nullopt;
}

std::variant<Role, ApiError> Duty::change_role(Role wanted) {
  const std::scoped_lock lock(mutex_);
  if (in_parts_) return some_blocks_alone();
  return std::exchange(role_, wanted);
}

std::string Duty::blocks_body() const {
  const std::scoped_lock lock(mutex_);
  if (layers_ == 0) return ordered_json{{"blocks", nullptr}}.dump();
  ordered_json body = {{"blocks", to_string(blocks_)}, {"layers", layers_}};
  if (asked_) body["changing_to"] = to_string(asked_->blocks);
  return body.dump();
}

std::variant<bool, ApiError> Duty::ask(AskedBlocks asked) {
  const BlockRange wanted = asked.blocks;
  const std::scoped_lock lock(mutex_);
  const Phase now = phase();
  if (now == Phase::kLoading || now == Phase::kDraining) return no_change(now);
  if (asked_) {
    return ApiError{409, fmt::format("blocks: must not be changed until this worker has changed to {} (got {})",
                                     to_string(asked_->blocks), to_string(wanted))};
  }
  if (wanted.end > layers_) {
    return ApiError{
        400, fmt::format("blocks: must end at {} or before, the model's number of blocks (got {})", layers_, to_string(wanted)),
        "invalid_request_error", "blocks"};
  }
  const bool part = wanted.size() < layers_;
  if (part && role_ != Role::kUnified) {
    return ApiError{409, fmt::format("role: must be unified to serve only blocks {} of {} (got {})", to_string(wanted), layers_,
                                     to_string(role_))};
  }
  if (wanted == blocks_) return false;
  in_parts_ = in_parts_ || part;
  asked_.emplace(std::move(asked));
  return true;
}

std::optional<BlockRange> Duty::wanted_blocks() const {
  const std::scoped_lock lock(mutex_);
  return asked_ ? std::optional<BlockRange>(asked_->blocks) : std::nullopt;
}

void Duty::serve(BlockRange blocks, std::int64_t layers) {
  {
    const std::scoped_lock lock(mutex_);
    blocks_ = blocks;
    layers_ = layers;
    in_parts_ = blocks.size() < layers;
  }
  phase_.store(Phase::kReady);
}

std::optional<Duty::AskedBlocks> Duty::changed() {
  const std::scoped_lock lock(mutex_);
  in_parts_ = blocks_.size() < layers_;
  return std::exchange(asked_, std::nullopt);
}

std::optional<Duty::AskedBlocks> Duty::drain() {
  phase_.store(Phase::kDraining);
  const std::scoped_lock lock(mutex_);
  return std::exchange(asked_, std::nullopt);
}

}  // namespace windlass::worker
