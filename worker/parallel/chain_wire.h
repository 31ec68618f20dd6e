// Wire format between the workers of a chain (docs/decisions/2026-11-22-chains-of-workers.md): five calls, each a POST to
// /chain/VERB, passed on from worker to worker and answered from the last one back. Little-endian. Pure functions.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "planner/base/result.h"
#include "worker/backend/logit_summary.h"
#include "worker/model/config.h"

namespace windlass::worker {

// Limit of tokens in one step, over all sequences.
inline constexpr std::int64_t kChainMaxTokens = 1024;
inline constexpr std::size_t kChainMaxSessions = 128;  // per reservation
inline constexpr std::size_t kChainMaxHops = 64;

// Interval at which the first worker renews its sessions. A worker that hears nothing of a session for the lease forgets it.
inline constexpr double kChainKeepS = 2;
inline constexpr double kChainLeaseS = 10;
// Timeouts of calls to the last worker of a chain, after which it counts as lost. Each worker before it gets more time, enough
// to hear of the loss and report it; otherwise all would give up at the same moment, and nobody could say who was lost.
inline constexpr double kChainReserveS = 5;
inline constexpr double kChainKeepAnswerS = 3;
inline constexpr double kChainStepS = 120;
inline constexpr double kChainRowS = 10;
inline constexpr double kChainHopS = 0.25;
// Longest error, in bytes.
inline constexpr std::size_t kChainMaxErrorBytes = 4096;

enum class ChainVerb {
  kReserve,  // body: ChainReservation; answer: empty, once all later workers have reserved, too
  kStep,     // body: ChainStep; answer: per chunk that wants logits its row, (vocab) floats, or the row's summary
  kRow,      // body: name of a session; answer: the row of its last step, if that step had it kept
  kKeep,     // body: names of sessions; answer: empty, once all later workers have answered
  kRelease,  // body: names of sessions, which end; answers without waiting for later workers
};
// "reserve", "step", "row", "keep", "release".
[[nodiscard]] const char* to_string(ChainVerb verb);
// Timeout in seconds of a call to a worker with this many more workers after it.
[[nodiscard]] double patience_s(ChainVerb verb, std::size_t further);

struct ChainCall {
  std::string address;  // "host:port" of the worker called
  ChainVerb verb = ChainVerb::kKeep;
  std::string body;
  double timeout_s = 0;
  std::size_t max_bytes = 0;  // limit of the answer
};

struct ChainAnswer {
  int status = 200;      // HTTP status; 0: no answer
  std::string rejected;  // for 503: the reason in a word ("full", "draining", "loading"); another chain may have room
  std::string body;      // for 200 the result; for sessions that are gone, their names; otherwise the error
  int step_port = 0;     // for a reservation: port that also accepts steps (chain_steps.h); 0: none

  [[nodiscard]] bool ok() const { return status == 200; }
};
// The 404 that reports sessions which are not here, or no longer; never empty.
[[nodiscard]] ChainAnswer sessions_over(std::span<const std::string> sessions);
// The sessions named in such an answer; empty for any other answer.
[[nodiscard]] std::vector<std::string> sessions_over(const ChainAnswer& answer);
// Size limit of an error answer to a call for this many sessions.
[[nodiscard]] std::size_t max_refusal_bytes(std::size_t sessions);
using ChainAnswered = std::function<void(ChainAnswer)>;
// Starts the call and returns; answers once, on any thread, perhaps before it returns.
using ChainPost = std::function<void(ChainCall call, ChainAnswered answered)>;

// What the workers of a chain must agree on about the model.
struct ChainModel {
  std::uint64_t fingerprint = 0;  // of the weights and of all config values that the blocks are computed with
  std::int64_t layers = 0;
  std::int64_t hidden_size = 0;
  std::int64_t vocab_size = 0;

  bool operator==(const ChainModel&) const = default;
};
// `weights`: TensorStore::fingerprint().
[[nodiscard]] ChainModel chain_model(const ModelConfig& config, std::uint64_t weights);

// Reserves room for whole sequences before they begin, for all of these sessions or for none.
struct ChainReservation {
  ChainModel model;
  std::int64_t block = 0;              // the first block that the earlier workers do not have
  std::int64_t tokens = 0;             // positions per session
  std::vector<std::string> sessions;   // 32 hexadecimal digits each
  std::vector<std::string> next_hops;  // addresses of the workers after the receiver
};
[[nodiscard]] std::string to_json(const ChainReservation& reservation);
// Error: kInvalidArgument naming the field, the rule and the value.
[[nodiscard]] Result<ChainReservation> reservation_from_json(std::string_view text);

// Consecutive tokens of one session.
struct ChainChunk {
  std::string session;
  std::int64_t start = 0;
  std::int64_t tokens = 0;
  bool wants_logits = false;  // of the last token
  RowNeed need = {};          // what is needed of the logits, if wanted
  bool keeps_row = false;     // the last worker keeps the row if a summary suffices: kRow may follow
};
// The head of a step, the same for all workers. Hidden states follow it: (tokens of all chunks, hidden size).
[[nodiscard]] std::string step_head(std::span<const ChainChunk> chunks);

struct ChainStep {
  std::vector<ChainChunk> chunks;  // of different sessions
  std::size_t head_bytes = 0;      // hidden states follow after these
  std::int64_t tokens = 0;         // of all chunks
};
// Error: kInvalidArgument if the bytes are not a step with hidden states of this width.
[[nodiscard]] Result<ChainStep> step_from(std::string_view bytes, std::int64_t hidden_size);
// Size of a chunk's part of the answer: a row, a summary for its need, or nothing.
[[nodiscard]] std::size_t logit_bytes(const ChainChunk& chunk, std::int64_t vocab_size);
// Writes logit_bytes() bytes.
void write_summary(const LogitSummary& summary, const RowNeed& need, char* to);
// Error: kInvalidArgument if the bytes are not a summary of a row of this length for this need.
[[nodiscard]] Result<LogitSummary> summary_from(std::string_view bytes, const RowNeed& need, std::int64_t vocab_size);

// Size limit of a step.
[[nodiscard]] std::size_t max_step_bytes(std::int64_t hidden_size);

// Parses "host:port,host:port", the value of X-Windlass-Chain and --next. Error: kInvalidArgument.
[[nodiscard]] Result<std::vector<std::string>> hops_from(std::string_view text);

// Whether `text` is "HOST:PORT" of another worker: a name, an IPv4 address or an IPv6 address in brackets.
[[nodiscard]] bool is_worker_address(std::string_view text);

// 128 bits from the system's random source, as 32 hexadecimal digits.
[[nodiscard]] std::string new_session_id();

}  // namespace windlass::worker
