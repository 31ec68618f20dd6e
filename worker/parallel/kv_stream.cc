// Sends and receives the stream of one prompt.
#include "worker/parallel/kv_stream.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <new>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "planner/base/shown_json.h"
#include "worker/model/ggml_blocks.h"
#include "worker/parallel/kv_wire.h"

namespace windlass::worker {
namespace {

// Longer than kKvLongestWaitS, the interval of the sender's keep-alive messages; the receiver always reads promptly.
constexpr double kSilentS = 5;
constexpr double kNothingTakenS = KvExports::kLeaseS;
// Bytes per frame: fits a core's cache, so that copies on both sides find the data there.
constexpr std::size_t kPieceBytes = 1U << 20U;
constexpr std::size_t kTextBytes = 64U << 10U;
// Time before an unreachable address is tried again; each attempt may take a second.
constexpr std::chrono::seconds kUnreachable{60};

// The receiver's first message.
struct KvHello {
  char magic[8];  // kMagic
  char session[32];
  char hash[16];
  std::uint32_t takes_bf16;  // 0 or 1
};
constexpr char kMagic[8] = {'W', 'L', 'K', 'V', 'S', 'T', 'R', '1'};

enum class KvFrameKind : std::uint32_t { kPiece, kPieceBf16, kWaiting, kEnd, kError };
struct KvFrame {
  KvFrameKind kind;
  std::uint32_t bytes;  // size of what follows
};

bool send_text(int socket, KvFrameKind kind, std::string text) {
  KvFrame frame{kind, static_cast<std::uint32_t>(text.size())};
  iovec parts[] = {{&frame, sizeof(frame)}, {text.data(), text.size()}};
  return send_all(socket, parts);
}

}  // namespace

// Where streams wait for their next piece.
class KvStreamServer::Waits {
 public:
  // Waits until the exports call back, or for twice as long as they should take. Returns false after end().
  [[nodiscard]] bool until_ready(KvExports& exports, const std::string& session, const std::string& hash, std::int64_t piece) {
    const auto ready = std::make_shared<bool>(false);
    exports.when_ready(session, hash, piece, [all = all_, ready] {
      const std::scoped_lock lock(all->mutex);
      *ready = true;
      all->changed.notify_all();
    });
    std::unique_lock lock(all_->mutex);
    all_->changed.wait_for(lock, std::chrono::duration<double>(2 * kKvLongestWaitS), [&] { return *ready || all_->ends; });
    return !all_->ends;
  }
  void end() {
    const std::scoped_lock lock(all_->mutex);
    all_->ends = true;
    all_->changed.notify_all();
  }

 private:
  struct All {
    std::mutex mutex;
    std::condition_variable changed;
    bool ends = false;
  };
  std::shared_ptr<All> all_ = std::make_shared<All>();  // callbacks may come after this is destroyed
};

namespace {

// Sends one prompt's stream.
class Sending {
 public:
  Sending(int socket, const std::function<KvSource()>& source, KvStreamServer::Waits& waits)
      : socket_(socket), source_(source), waits_(waits) {}

  void run() {
    set_limits(socket_, kSilentS, kNothingTakenS);
    KvHello hello{};
    if (!receive_all(socket_, &hello, sizeof(hello)) || std::memcmp(hello.magic, kMagic, sizeof(kMagic)) != 0) return;
    session_.assign(hello.session, sizeof(hello.session));
    hash_.assign(hello.hash, sizeof(hello.hash));
    takes_bf16_ = hello.takes_bf16 != 0;
    while (send_more()) {
    }
  }

 private:
  // Returns whether the stream continues. Asks for the served model each time and never holds it while sending, so a stream
  // does not delay a change of blocks.
  bool send_more() {
    Result<KvExports::Ready> found = none_now();
    std::function<void(const std::string&)> taken;
    if (const KvSource from = source_(); from.exports != nullptr) {
      if (!waits_.until_ready(*from.exports, session_, hash_, next_)) return false;
      found = from.exports->ready(session_, hash_, next_);
      taken = from.taken;
    }
    if (!found.ok()) return refuse(found.error().message);
    if (found->pieces.empty() && !found->last) return send_text(socket_, KvFrameKind::kWaiting, "");
    for (const KvRange& piece : found->pieces) {
      if (!send_piece(piece)) return false;
    }
    next_ = found->next;
    if (!found->last) return true;
    if (send_text(socket_, KvFrameKind::kEnd, first_token_text(*found->last))) taken(session_);
    return false;
  }
  static Error none_now() { return {ErrorCode::kNotFound, "this worker has no sessions at present"}; }

  // Sends in frames. Holds no part of the cache while sending, so a slow receiver blocks nobody.
  bool send_piece(const KvRange& piece) {
    KvShape shape;
    bool bf16 = false;
    if (const KvSource from = source_(); from.exports != nullptr) {
      shape = from.exports->kv_shape();
      bf16 = takes_bf16_ && from.exports->kv_is_bf16();
    }
    if (shape.values == 0) return refuse(none_now().message);
    const std::int64_t most = std::max<std::int64_t>(1, static_cast<std::int64_t>(kPieceBytes / sizeof(float)) / shape.values);
    for (std::int64_t done = 0; done < piece.tokens; done += most) {
      const KvRange part{piece.layer, piece.start + done, std::min(most, piece.tokens - done)};
      const auto count = static_cast<std::size_t>(part.tokens * shape.values);
      values_.resize(std::max(values_.size(), count));
      KvPieceHead head = kv_piece_head(part);
      const std::size_t bytes = sizeof(head) + count * (bf16 ? sizeof(std::uint16_t) : sizeof(float));
      if (const auto copied = copy(part); !copied.ok()) return refuse(copied.error().message);
      void* numbers = values_.data();
      if (bf16) {
        halves_.resize(std::max(halves_.size(), count));
        std::transform(values_.begin(), values_.begin() + static_cast<std::ptrdiff_t>(count), halves_.begin(), bf16_from_float);
        numbers = halves_.data();
      }
      KvFrame frame{bf16 ? KvFrameKind::kPieceBf16 : KvFrameKind::kPiece, static_cast<std::uint32_t>(bytes)};
      iovec parts[] = {{&frame, sizeof(frame)}, {&head, sizeof(head)}, {numbers, bytes - sizeof(head)}};
      if (!send_all(socket_, parts)) return false;
      if (const KvSource from = source_(); from.exports != nullptr) from.exports->sent(bytes);
    }
    return true;
  }

  Result<void> copy(const KvRange& part) {
    const KvSource from = source_();
    return from.exports == nullptr ? none_now() : from.exports->copy(session_, part, values_.data());
  }

  bool refuse(const std::string& why) {
    send_text(socket_, KvFrameKind::kError, why);
    return false;
  }

  const int socket_;
  const std::function<KvSource()>& source_;
  KvStreamServer::Waits& waits_;
  std::string session_, hash_;
  bool takes_bf16_ = false;
  std::int64_t next_ = 0;  // number of the next piece
  std::vector<float> values_;
  std::vector<std::uint16_t> halves_;
};

Error lost(std::string_view what) { return Error{ErrorCode::kUnavailable, fmt::format("stream: {}", what)}; }

// Receives one prompt's stream. Returns the first token's text, or the error.
class Receiving {
 public:
  Receiving(int socket, const KvQuestion& question, const KvStreamSink& sink)
      : socket_(socket), question_(question), sink_(sink) {}

  Result<std::string> run() {
    set_limits(socket_, kSilentS, kSilentS);
    KvHello hello{};
    std::memcpy(hello.magic, kMagic, sizeof(kMagic));
    hello.takes_bf16 = 1;
    if (question_.session.size() != sizeof(hello.session) || question_.hash.size() != sizeof(hello.hash))
      return lost("session and hash: must have the usual length");
    std::memcpy(hello.session, question_.session.data(), sizeof(hello.session));
    std::memcpy(hello.hash, question_.hash.data(), sizeof(hello.hash));
    iovec parts[] = {{&hello, sizeof(hello)}};
    if (!send_all(socket_, parts)) return lost("it broke off");
    for (;;) {
      KvFrame frame{};
      if (!receive_all(socket_, &frame, sizeof(frame))) return lost("it broke off");
      const bool piece = frame.kind == KvFrameKind::kPiece || frame.kind == KvFrameKind::kPieceBf16;
      const std::size_t most = piece ? sizeof(KvPieceHead) + std::max(kPieceBytes, question_.token_bytes) : kTextBytes;
      if (frame.bytes > most) return lost(fmt::format("frame: must have at most {} bytes (got {})", most, frame.bytes));
      switch (frame.kind) {
        case KvFrameKind::kPiece:
        case KvFrameKind::kPieceBf16: WINDLASS_RETURN_IF_ERROR(take_piece(frame)); break;
        case KvFrameKind::kWaiting:
          if (frame.bytes > 0) return lost("damaged frame");
          WINDLASS_RETURN_IF_ERROR(sink_.waited());
          break;
        case KvFrameKind::kEnd:
        case KvFrameKind::kError: {
          std::string text(frame.bytes, '\0');
          if (!receive_all(socket_, text.data(), text.size())) return lost("it broke off");
          if (frame.kind == KvFrameKind::kEnd) return text;
          return lost(shown(nlohmann::json(std::move(text))));
        }
        default: return lost("damaged frame");
      }
    }
  }

 private:
  Result<void> take_piece(const KvFrame& frame) {
    const bool bf16 = frame.kind == KvFrameKind::kPieceBf16;
    const std::size_t number = bf16 ? sizeof(std::uint16_t) : sizeof(float);
    KvPieceHead head{};
    if (frame.bytes < sizeof(head) || (frame.bytes - sizeof(head)) % number != 0) return lost("damaged frame");
    if (!receive_all(socket_, &head, sizeof(head))) return lost("it broke off");
    const std::size_t count = (frame.bytes - sizeof(head)) / number;
    values_.resize(std::max(values_.size(), count));
    if (bf16) {
      halves_.resize(std::max(halves_.size(), count));
      if (!receive_all(socket_, halves_.data(), count * number)) return lost("it broke off");
      std::transform(halves_.begin(), halves_.begin() + static_cast<std::ptrdiff_t>(count), values_.begin(), float_from_bf16);
    } else if (!receive_all(socket_, values_.data(), count * number)) {
      return lost("it broke off");
    }
    return sink_.piece(kv_range_of(head), std::span(values_).first(count), frame.bytes);
  }

  const int socket_;
  const KvQuestion& question_;
  const KvStreamSink& sink_;
  std::vector<float> values_;
  std::vector<std::uint16_t> halves_;
};

}  // namespace

KvStreamServer::KvStreamServer() : waits_(std::make_unique<Waits>()) {}

Result<std::unique_ptr<KvStreamServer>> KvStreamServer::open(const std::string& host, std::function<KvSource()> source) {
  std::unique_ptr<KvStreamServer> server(new KvStreamServer);
  WINDLASS_ASSIGN_OR_RETURN(server->server_, TcpServer::open(host, "streams of keys and values",
                                                             [source = std::move(source), waits = server->waits_.get()](
                                                                 int socket) { Sending(socket, source, *waits).run(); }));
  return server;
}

KvStreamServer::~KvStreamServer() { waits_->end(); }

struct KvStreamClient::Shared {
  using Time = std::chrono::steady_clock::time_point;

  // Whether a connection to it failed recently.
  [[nodiscard]] bool is_unreachable(const std::string& where) {
    const std::scoped_lock lock(mutex);
    const Time now = std::chrono::steady_clock::now();
    std::erase_if(unreachable, [&](const auto& each) { return now > each.second + kUnreachable; });
    return unreachable.count(where) > 0;
  }
  void note_unreachable(const std::string& where) {
    const std::scoped_lock lock(mutex);
    unreachable[where] = std::chrono::steady_clock::now();
  }

  std::mutex mutex;
  std::map<std::string, Time> unreachable;  // addresses with stream ports
  TcpConnections connections;               // destroyed first
};

KvStreamClient::KvStreamClient() : shared_(std::make_shared<Shared>()) {}
KvStreamClient::~KvStreamClient() { shared_->connections.end(); }

KvImports::Stream KvStreamClient::stream() {
  return [shared = shared_](const KvQuestion& question, int port, const KvStreamSink& sink) {
    const std::string where = fmt::format("{} {}", question.address, port);
    if (shared->is_unreachable(where)) return sink.end(lost("its port was unreachable recently"));
    const auto receive = [question, sink, where, known = shared.get()](const Result<int>& socket) {
      if (!socket.ok()) {
        known->note_unreachable(where);
        return sink.end(lost(socket.error().message));
      }
      Result<std::string> first = lost("no memory for it");
      try {
        first = Receiving(*socket, question, sink).run();
      } catch (const std::bad_alloc&) {
        // best effort
      }
      sink.end(first);
    };
    if (!shared->connections.add([address = question.address, port] { return connect_to(address, port); }, receive))
      sink.end(lost("no thread could be started for it"));
  };
}

}  // namespace windlass::worker
