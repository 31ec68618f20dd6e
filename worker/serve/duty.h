// Duty: a worker's current phase, role and blocks, and the pending request to change the blocks. Thread-safe.
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

// The status shown by /ready. `why` and `rejected` describe refused requests: a phrase for the message ("is loading") and the
// value of X-Windlass-Rejected. Both are empty if the worker is ready.
struct PhaseTexts {
  const char* status;
  const char* why;
  const char* rejected;
};
[[nodiscard]] PhaseTexts texts_of(Phase phase);

// The error for a request to change the blocks in a phase that does not allow it.
[[nodiscard]] ApiError no_change(Phase phase);

// Parse the bodies of POST /role and POST /blocks. Error: 400.
[[nodiscard]] std::variant<Role, ApiError> role_in(const std::string& body);
[[nodiscard]] std::variant<BlockRange, ApiError> blocks_in(const std::string& body);

class Duty {
 public:
  // A POST /blocks that is not answered yet.
  struct AskedBlocks {
    BlockRange blocks;
    net::ServerCall call;
    std::shared_ptr<void> token;
  };

  // some_blocks: the worker starts with only some of the model's blocks. While it has only some, its role is fixed.
  Duty(Role role, bool some_blocks) : role_(role), in_parts_(some_blocks) {}

  [[nodiscard]] Phase phase() const { return phase_.load(); }
  [[nodiscard]] Role role() const;
  // Why the role cannot be changed now; nullopt: it can.
  [[nodiscard]] std::optional<ApiError> fixed_role() const;
  // Returns the previous role.
  [[nodiscard]] std::variant<Role, ApiError> change_role(Role wanted);

  [[nodiscard]] std::string blocks_body() const;  // the answer to GET /blocks
  // Returns true if the request was stored: wanted_blocks() returns its blocks, and changed() or drain() returns the request.
  // Returns false if the worker already has these blocks. Errors: 400, 409 or 503.
  [[nodiscard]] std::variant<bool, ApiError> ask(AskedBlocks asked);
  [[nodiscard]] std::optional<BlockRange> wanted_blocks() const;

  void serve(BlockRange blocks, std::int64_t layers);  // the phase becomes kReady
  void begin_change() { phase_.store(Phase::kChanging); }
  // Both return the pending request, if any, which the caller must answer.
  [[nodiscard]] std::optional<AskedBlocks> changed();
  [[nodiscard]] std::optional<AskedBlocks> drain();

 private:
  std::atomic<Phase> phase_ = Phase::kLoading;
  mutable std::mutex mutex_;  // protects the members below
  Role role_;
  bool in_parts_;            // has, or will have after the pending change, only some of the model's blocks
  BlockRange blocks_;        // served now, or last
  std::int64_t layers_ = 0;  // the model's number of blocks; 0 until it is loaded
  std::optional<AskedBlocks> asked_;
};

}  // namespace windlass::worker
