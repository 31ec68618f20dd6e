// SimulatedPeer: a client of the simulated server. It sends its requests in pieces of its own, reads and leaves at random
// moments, and checks each byte that comes back.
#pragma once

#include <array>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "tests/unit/metrics/net/simulated_kernel.h"

namespace windlass::net {

// How the handler answers.
enum class Reply {
  kNow,         // whole, on its own thread
  kLater,       // whole, by the test
  kStream,      // piece by piece, on its own thread
  kPieces,      // piece by piece, by the test
  kEmpty,       // 204
  kLast,        // whole, and closes the connection
  kDrop,        // releases the call without an answer
  kBreak,       // breaks off without a byte
  kBreakInside  // breaks off after the first piece
};

// One request, or invalid bytes.
struct Ask {
  std::string bytes;
  std::size_t head_bytes = 0;
  bool body_waits = false;  // until "100 Continue"
  bool head_only = false;   // HEAD
  int status = 200;         // of the answer; 0: none, the connection breaks
  bool last = false;        // the answer closes the connection
  bool whole = false;       // the answer is sent in one piece, and the server reports when it was sent
  bool has_body = false;    // may be refused when memory is short
  Reply reply = Reply::kNow;
  std::string answer;  // its body
};

// The handler's part of it.
struct AskName {
  std::size_t peer = 0, index = 0;
  Reply reply = Reply::kNow;
  std::size_t bytes = 0;
};
[[nodiscard]] std::optional<AskName> parse_target(std::string_view path);
// The answer's body, which depends on the whole request.
[[nodiscard]] std::string answer_to(const AskName& name, std::string_view method, std::string_view body);

enum class Leave { kNever, kClose, kFinishWriting, kReset };

struct PeerManner {
  std::size_t max_piece = 100;  // of what it sends at a time
  bool waits = false;           // for an answer before its next request
  bool lazy = false;            // reads only when told to
  Leave leave = Leave::kNever;  // once it has sent `leave_at` bytes
  std::size_t leave_at = SIZE_MAX;
};

class SimulatedPeer {
 public:
  using Random = std::mt19937_64;

  SimulatedPeer(std::size_t number, SimulatedKernel& kernel, const Link& link, PeerManner manner, std::vector<Ask> asks);
  ~SimulatedPeer();
  SimulatedPeer(const SimulatedPeer&) = delete;
  SimulatedPeer& operator=(const SimulatedPeer&) = delete;

  // Each returns true if it did something.
  bool send(std::size_t max_bytes);
  bool read(std::size_t max_bytes);
  // Also when it has not sent everything.
  void leave(Leave how);

  [[nodiscard]] std::size_t id() const { return connection_.id; }
  [[nodiscard]] const PeerManner& manner() const { return manner_; }
  [[nodiscard]] const std::vector<Ask>& asks() const { return asks_; }
  [[nodiscard]] std::size_t answered() const { return answered_; }  // as far as it has read
  [[nodiscard]] bool ended() const { return ended_; }               // it has read the end of the connection
  [[nodiscard]] bool left() const { return left_; }
  // True when the last answer that it read explains why the server reads no more.
  [[nodiscard]] bool refused() const { return refused_; }
  // For the request with this index; negative: earlier ones are not completely sent.
  [[nodiscard]] std::ptrdiff_t sent_of(std::size_t index) const;
  // Everything was answered, in order, and the connection ended where it should.
  [[nodiscard]] bool complete() const;
  // The problem with the answers so far; empty: none.
  [[nodiscard]] const std::string& problem() const { return problem_; }

 private:
  void parse();
  [[nodiscard]] std::size_t may_send_up_to() const;

  const std::size_t number_;
  SimulatedKernel& kernel_;
  const PeerManner manner_;
  const std::vector<Ask> asks_;
  SimulatedKernel::Opened connection_;
  std::array<char, 32768> piece_;
  std::string out_, in_;
  std::vector<std::size_t> begins_;  // start of each request in out_
  std::size_t sent_ = 0, parsed_ = 0, answered_ = 0;
  bool continued_ = false;  // "100 Continue" has arrived for the current request
  bool ended_ = false, left_ = false, refused_ = false;
  std::string problem_;
};

struct AskSizes {
  std::size_t body_bytes, answer_bytes;  // upper bounds, exclusive
};
// At most one request follows one that ends the connection; nobody answers it.
[[nodiscard]] std::vector<Ask> random_asks(std::size_t peer, SimulatedPeer::Random& random, bool lazy, AskSizes sizes);

}  // namespace windlass::net
