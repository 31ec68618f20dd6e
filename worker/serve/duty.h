// Duty: what a worker does now: its phase, its role and its blocks, and who has asked for other blocks. Any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <variant>

#include "metrics/net/http_service.h"
#include "worker/model/config.h"
#include "worker/serve/openai_api.h"
#include "worker/serve/role.h"

namespace windlass::worker {

enum class Phase { kLoading, kReady, kChanging, kDraining };

// As /ready says it; when it is not ready also why requests are refused, and X-Windlass-Rejected.
struct PhaseTexts {
  const char* status;
  const char* why;
  const char* rejected;
};
[[nodiscard]] PhaseTexts texts_of(Phase phase);

// What whoever asks for other blocks is told then.
[[nodiscard]] ApiError no_change(Phase phase);

// Of the body of POST /role and of POST /blocks.
[[nodiscard]] std::variant<Role, ApiError> role_in(const std::string& body);
[[nodiscard]] std::variant<BlockRange, ApiError> blocks_in(const std::string& body);

class Duty {
 public:
  // By POST /blocks, until it is answered.
  struct AskedBlocks {
    BlockRange blocks;
    net::ServerCall call;
    std::shared_ptr<void> token;
  };

  // some_blocks: it begins with some of the model's blocks alone. A worker that has these has no other role.
  Duty(Role role, bool some_blocks) : role_(role), in_parts_(some_blocks) {}

  [[nodiscard]] Phase phase() const { return phase_.load(); }
  [[nodiscard]] Role role() const;
  // Why its role cannot be changed now.
  [[nodiscard]] std::optional<ApiError> fixed_role() const;
  // The role before.
  [[nodiscard]] std::variant<Role, ApiError> change_role(Role wanted);

  [[nodiscard]] std::string blocks_body() const;  // of GET /blocks
  // True: wanted_blocks() has them from now on, and whoever asked is answered after changed() or drain(). False: it has them
  // already.
  [[nodiscard]] std::variant<bool, ApiError> ask(AskedBlocks asked);
  [[nodiscard]] std::optional<BlockRange> wanted_blocks() const;

  void serve(BlockRange blocks, std::int64_t layers);  // ready from now on
  void begin_change() { phase_.store(Phase::kChanging); }
  // Both return whoever has asked for blocks, to be answered.
  [[nodiscard]] std::optional<AskedBlocks> changed();
  [[nodiscard]] std::optional<AskedBlocks> drain();

 private:
  std::atomic<Phase> phase_ = Phase::kLoading;
  mutable std::mutex mutex_;  // of what follows
  Role role_;
  bool in_parts_;            // it has, or is to have, some of the model's blocks alone
  BlockRange blocks_;        // that are served, or were last
  std::int64_t layers_ = 0;  // of the model; 0 until it is loaded
  std::optional<AskedBlocks> asked_;
};

}  // namespace windlass::worker
