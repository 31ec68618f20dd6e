// What the workers of a chain say to each other (docs/decisions/2026-11-22-chains-of-workers.md): five calls, each a POST to
// /chain/VERB that is passed on from worker to worker and answered from the last one back. Little-endian. Pure.
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

// So many tokens of all sequences together may come in one step.
inline constexpr std::int64_t kChainMostTokens = 1024;
inline constexpr std::size_t kChainMostSessions = 128;  // of one reservation
inline constexpr std::size_t kChainMostHops = 64;

// Who reserves tells of its sessions so often; who has heard nothing of one for the lease forgets it.
inline constexpr double kChainKeepS = 2;
inline constexpr double kChainLeaseS = 10;
// A worker that is the last of its chain and leaves these calls unanswered for so long is taken for lost. Each one before it
// has so much more time, in which it hears of that and tells it on: otherwise all would give up at the same moment, and none
// say who was lost.
inline constexpr double kChainReserveS = 5;
inline constexpr double kChainKeepAnswerS = 3;
inline constexpr double kChainStepS = 120;
inline constexpr double kChainRowS = 10;
inline constexpr double kChainHopS = 0.25;
// An error has at most so many bytes.
inline constexpr std::size_t kChainMostErrorBytes = 4096;

enum class ChainVerb {
  kReserve,  // body: ChainReservation; answer: nothing, once all later workers have reserved, too
  kStep,     // body: ChainStep; answer: for each chunk that wants logits its row, (vocab) floats, or the row's summary
  kRow,      // body: name of a session; answer: the row of its last step's summary, where that step had it kept
  kKeep,     // body: names of sessions; answer: nothing, once all later workers have answered
  kRelease,  // the same, at once
};
// "reserve", "step", "row", "keep", "release".
[[nodiscard]] const char* to_string(ChainVerb verb);
// Of a call to a worker that has so many of its chain behind it.
[[nodiscard]] double patience_s(ChainVerb verb, std::size_t further);

struct ChainCall {
  std::string address;  // "host:port" of the worker that is called
  ChainVerb verb = ChainVerb::kKeep;
  std::string body;
  double timeout_s = 0;
  std::size_t most_bytes = 0;  // of the answer
};

struct ChainAnswer {
  int status = 200;      // as HTTP has them; 0: there was none
  std::string rejected;  // of a 503: why, in a word ("full", "draining", "loading"): another chain may have room
  std::string body;      // of a 200 what was asked for, of sessions that are over their names, else what went wrong
  int step_port = 0;     // of a reservation: where that worker also takes steps (chain_steps.h); 0: nowhere

  [[nodiscard]] bool ok() const { return status == 200; }
};
// The 404 of a worker where these sessions, which it was called for, are not or are not any more; never empty.
[[nodiscard]] ChainAnswer sessions_over(std::span<const std::string> sessions);
// Of such an answer; empty: it is none.
[[nodiscard]] std::vector<std::string> sessions_over(const ChainAnswer& answer);
// An answer to a call for so many sessions that is none of what was asked for has at most so many bytes.
[[nodiscard]] std::size_t most_refusal_bytes(std::size_t sessions);
using ChainAnswered = std::function<void(ChainAnswer)>;
// Calls and returns; answers once, on any thread, perhaps before it returns.
using ChainPost = std::function<void(ChainCall call, ChainAnswered answered)>;

// A model as the workers of a chain must agree on it.
struct ChainModel {
  std::uint64_t fingerprint = 0;  // of the weights and of all numbers that the blocks are computed with
  std::int64_t layers = 0;
  std::int64_t hidden_size = 0;
  std::int64_t vocab_size = 0;

  bool operator==(const ChainModel&) const = default;
};
// `weights`: TensorStore::fingerprint.
[[nodiscard]] ChainModel chain_model(const ModelConfig& config, std::uint64_t weights);

// Room for whole sequences, before they begin: for all of these sessions or for none.
struct ChainReservation {
  ChainModel model;
  std::int64_t block = 0;              // the first one that the chain has not had yet
  std::int64_t tokens = 0;             // positions of each session
  std::vector<std::string> sessions;   // 32 hexadecimal digits each
  std::vector<std::string> next_hops;  // addresses of the workers after the one that gets this
};
[[nodiscard]] std::string to_json(const ChainReservation& reservation);
// Error: kInvalidArgument naming the field, what was found and what is allowed.
[[nodiscard]] Result<ChainReservation> reservation_from_json(std::string_view text);

// Some consecutive tokens of one session.
struct ChainChunk {
  std::string session;
  std::int64_t start = 0;
  std::int64_t tokens = 0;
  bool wants_logits = false;  // of the last token
  RowNeed need = {};          // of them, where they are wanted
  bool keeps_row = false;     // at the last worker, where a summary is enough: kRow may follow
};
// The head of a step, which stays the same from worker to worker; hidden states follow it, (tokens of all chunks, hidden size).
[[nodiscard]] std::string step_head(std::span<const ChainChunk> chunks);

struct ChainStep {
  std::vector<ChainChunk> chunks;  // of different sessions
  std::size_t head_bytes = 0;      // the rest is hidden states
  std::int64_t tokens = 0;         // of all chunks
};
// Error: kInvalidArgument where the bytes are no step of hidden states of that width.
[[nodiscard]] Result<ChainStep> step_from(std::string_view bytes, std::int64_t hidden_size);
// What one chunk has in the answer to a step: a row, a summary for its need, or nothing.
[[nodiscard]] std::size_t logit_bytes(const ChainChunk& chunk, std::int64_t vocab_size);
// Writes logit_bytes().
void write_summary(const LogitSummary& summary, const RowNeed& need, char* to);
// Error: kInvalidArgument where the bytes are no summary of a row of that length for that need.
[[nodiscard]] Result<LogitSummary> summary_from(std::string_view bytes, const RowNeed& need, std::int64_t vocab_size);

// Of the longest step.
[[nodiscard]] std::size_t most_step_bytes(std::int64_t hidden_size);

// "host:port,host:port": the value of X-Windlass-Chain and --next. Error: kInvalidArgument.
[[nodiscard]] Result<std::vector<std::string>> hops_from(std::string_view text);

// "HOST:PORT" of another worker: a name, an IPv4 address or an IPv6 one in brackets.
[[nodiscard]] bool is_worker_address(std::string_view text);

// 128 bits from the system's source of randomness, as 32 hexadecimal digits.
[[nodiscard]] std::string new_session_id();

}  // namespace windlass::worker
