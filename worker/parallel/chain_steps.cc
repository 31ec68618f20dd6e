// One lock protects the peers and the work of their connections; sending and receiving happen outside of it.
#include "worker/parallel/chain_steps.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/core.h>
#include <poll.h>

namespace windlass::worker {
namespace {

constexpr double kHelloS = 2;
constexpr double kNoStepS =
    2 * ChainStepClient::kIdleS;  // the client normally ends the connection first, so it is gone by then
constexpr double kNoAnswerTakenS = 10;
// Limit of a step at the stage; the client has given up by then.
constexpr std::chrono::duration<double> kLongestStep{kChainStepS + kChainHopS * static_cast<double>(kChainMaxHops + 1)};
constexpr std::size_t kMaxRejectedBytes = 64;
constexpr std::size_t kMaxPeers = 256;
constexpr std::size_t kFirstBytes = 1U << 20U;

// `buffer` keeps its memory between steps. It grows with the data received, so announcing a large size is not enough to
// allocate it.
bool receive_step(int socket, std::vector<char>& buffer, std::size_t bytes) {
  for (std::size_t done = 0; done < bytes;) {
    const std::size_t until = std::min(bytes, std::max({buffer.size(), 2 * done, kFirstBytes}));
    if (buffer.size() < until) buffer.resize(until);
    if (!receive_all(socket, buffer.data() + done, until - done)) return false;
    done = until;
  }
  return true;
}

// One connection, on the worker that computes.
class StepsAnswered {
 public:
  StepsAnswered(int socket, const ChainStepServer::StageNow& stage, std::stop_token ends)
      : socket_(socket), stage_(stage), ends_(std::move(ends)) {}

  void run() {
    set_limits(socket_, kHelloS, kNoAnswerTakenS);
    char hello[sizeof(kChainStepsHello)] = {};
    if (!receive_all(socket_, hello, sizeof(hello)) || std::memcmp(hello, kChainStepsHello, sizeof(hello)) != 0) return;
    iovec parts[] = {{hello, sizeof(hello)}};
    if (!send_all(socket_, parts)) return;
    set_limits(socket_, kNoStepS, kNoAnswerTakenS);
    while (answer_next()) {
    }
  }

 private:
  // Answers may arrive when nobody waits for them any more.
  struct Waiting {
    std::mutex mutex;
    std::condition_variable_any changed;
    std::optional<ChainAnswer> answer;
  };

  bool answer_next() {
    ChainStepHead head{};
    if (!receive_all(socket_, &head, sizeof(head)) || head.bytes > max_bytes()) return false;
    if (!receive_step(socket_, step_, head.bytes)) return false;
    const auto waiting = std::make_shared<Waiting>();
    {
      const auto stage = stage_();
      if (stage == nullptr) return false;
      stage->step(std::string_view(step_.data(), head.bytes), [waiting](ChainAnswer answer) {
        const std::scoped_lock lock(waiting->mutex);
        waiting->answer = std::move(answer);
        waiting->changed.notify_all();
      });
    }
    std::unique_lock lock(waiting->mutex);
    waiting->changed.wait_for(lock, ends_, kLongestStep, [&] { return waiting->answer.has_value(); });
    return waiting->answer && send(std::move(*waiting->answer));
  }

  [[nodiscard]] std::size_t max_bytes() const {
    const auto stage = stage_();
    return stage == nullptr ? 0 : max_step_bytes(stage->options().model.hidden_size);
  }

  bool send(ChainAnswer answer) const {
    answer.rejected.resize(std::min(answer.rejected.size(), kMaxRejectedBytes));
    ChainStepAnswerHead head{static_cast<std::uint32_t>(answer.status), static_cast<std::uint32_t>(answer.rejected.size()),
                             answer.body.size()};
    iovec parts[] = {
        {&head, sizeof(head)}, {answer.rejected.data(), answer.rejected.size()}, {answer.body.data(), answer.body.size()}};
    return send_all(socket_, parts);
  }

  const int socket_;
  const ChainStepServer::StageNow& stage_;
  const std::stop_token ends_;
  std::vector<char> step_;
};

bool says_hello(int socket) {
  set_limits(socket, kHelloS, kHelloS);
  char hello[sizeof(kChainStepsHello)];
  std::memcpy(hello, kChainStepsHello, sizeof(hello));
  iovec parts[] = {{hello, sizeof(hello)}};
  char answer[sizeof(hello)] = {};
  return send_all(socket, parts) && receive_all(socket, answer, sizeof(answer)) &&
         std::memcmp(answer, kChainStepsHello, sizeof(answer)) == 0;
}

// Outcome of a step, on the calling worker.
struct StepOutcome {
  std::optional<ChainAnswer> answer;  // nothing: the connection broke before an answer came
  bool usable = false;                // the connection can carry the next step
};

StepOutcome no_answer(std::string why) { return {ChainAnswer{0, "", std::move(why)}, false}; }

StepOutcome broke_before_answer() {
  if (errno == EAGAIN || errno == EWOULDBLOCK) return no_answer("did not answer in time");
  return {};
}

StepOutcome ask_for_step(int socket, ChainCall& call) {
  pollfd look{socket, POLLIN, 0};
  if (::poll(&look, 1, 0) != 0) return {};  // no data is expected before a step: the other side has closed it
  set_limits(socket, call.timeout_s, call.timeout_s);
  ChainStepHead head{call.body.size()};
  iovec parts[] = {{&head, sizeof(head)}, {call.body.data(), call.body.size()}};
  if (!send_all(socket, parts)) return broke_before_answer();
  ChainStepAnswerHead found{};
  if (!receive_all(socket, &found, sizeof(found))) return broke_before_answer();
  if (found.status < 100 || found.status > 599 || found.rejected_bytes > kMaxRejectedBytes ||
      found.body_bytes > call.max_bytes) {
    return no_answer(fmt::format("answer: must have a status from 100 to 599 and at most {} bytes (got {} and {})",
                                 call.max_bytes, found.status, found.body_bytes));
  }
  ChainAnswer answer;
  answer.status = static_cast<int>(found.status);
  answer.rejected.resize(found.rejected_bytes);
  answer.body.resize(found.body_bytes);
  if (!receive_all(socket, answer.rejected.data(), answer.rejected.size()) ||
      !receive_all(socket, answer.body.data(), answer.body.size())) {
    return no_answer("the connection broke during the answer");
  }
  return {std::move(answer), true};
}

}  // namespace

Result<std::unique_ptr<ChainStepServer>> ChainStepServer::open(const std::string& host, StageNow stage) {
  std::unique_ptr<ChainStepServer> server(new ChainStepServer);
  WINDLASS_ASSIGN_OR_RETURN(server->server_, TcpServer::open(host, "steps of chains",
                                                             [stage = std::move(stage), ends = server->ends_.get_token()](
                                                                 int socket) { StepsAnswered(socket, stage, ends).run(); }));
  return server;
}

ChainStepServer::~ChainStepServer() { ends_.request_stop(); }

struct ChainStepClient::Shared : std::enable_shared_from_this<ChainStepClient::Shared> {
  struct Step {
    ChainCall call;
    ChainAnswered answered;
  };
  struct Connection {
    std::condition_variable changed;
    std::optional<Step> step;  // to be sent next
    bool dropped = false;      // no longer needed
  };
  // A worker's port.
  struct Peer {
    std::string address;
    int port = 0;
    bool dropped = false;
    bool opening = false;         // one more connection
    std::size_t connections = 0;  // including that one
    std::vector<std::shared_ptr<Connection>> idle;
  };
  using PeerPtr = std::shared_ptr<Peer>;

  Shared(ChainPost p, double i) : http(std::move(p)), idle_time(i) {}

  const ChainPost http;
  const std::chrono::duration<double> idle_time;
  std::mutex mutex;
  std::map<std::string, PeerPtr> peers;  // by address
  bool ended = false;
  TcpConnections connections;

  void call(ChainCall call, ChainAnswered answered);
  void learn(const std::string& address, int port);
  [[nodiscard]] bool give(Step& step);
  void open(const PeerPtr& peer);
  void drop(const PeerPtr& peer);
  void drop_unused();
  void serve(const PeerPtr& peer, const Result<int>& socket);
  void bring_steps(const PeerPtr& peer, int socket, std::unique_lock<std::mutex>& lock);
  void tell(Step step, StepOutcome outcome);
  void end();
};

void ChainStepClient::Shared::call(ChainCall call, ChainAnswered answered) {
  if (call.verb == ChainVerb::kReserve) {
    const std::string address = call.address;
    return http(std::move(call), [self = shared_from_this(), address, answered = std::move(answered)](ChainAnswer answer) {
      if (answer.ok()) self->learn(address, answer.step_port);
      answered(std::move(answer));
    });
  }
  Step step{std::move(call), std::move(answered)};
  if (step.call.verb == ChainVerb::kStep && give(step)) return;
  http(std::move(step.call), std::move(step.answered));
}

// Drops the old connections if a worker has restarted at the same address.
void ChainStepClient::Shared::learn(const std::string& address, int port) {
  const std::scoped_lock lock(mutex);
  if (ended) return;
  const auto it = peers.find(address);
  PeerPtr peer = it == peers.end() ? nullptr : it->second;
  if (peer != nullptr && peer->port != port) {
    drop(peer);
    peer = nullptr;
  }
  if (port == 0) return;
  if (peer == nullptr) {
    if (peers.size() >= kMaxPeers) drop_unused();
    if (peers.size() >= kMaxPeers) return;
    peer = std::make_shared<Peer>();
    peer->address = address;
    peer->port = port;
    peers[address] = peer;
  }
  if (peer->connections == 0) open(peer);
}

// Returns false if no connection is free; one is then opened for the next step.
bool ChainStepClient::Shared::give(Step& step) {
  const std::scoped_lock lock(mutex);
  const auto it = peers.find(step.call.address);
  if (ended || it == peers.end()) return false;
  Peer& peer = *it->second;
  if (peer.idle.empty()) {
    if (!peer.opening) open(it->second);
    return false;
  }
  const auto connection = std::move(peer.idle.back());
  peer.idle.pop_back();
  connection->step = std::move(step);
  connection->changed.notify_all();
  return true;
}

// REQUIRES: mutex held, as for the next two.
void ChainStepClient::Shared::open(const PeerPtr& peer) {
  const bool added =
      connections.add([address = peer->address, port = peer->port] { return connect_to(address, port); },
                      [self = shared_from_this(), peer](const Result<int>& socket) { self->serve(peer, socket); });
  if (!added) return;
  peer->opening = true;
  ++peer->connections;
}

void ChainStepClient::Shared::drop(const PeerPtr& peer) {
  peer->dropped = true;
  for (const auto& each : peer->idle) {
    each->dropped = true;
    each->changed.notify_all();
  }
  peer->idle.clear();
  const auto it = peers.find(peer->address);
  if (it != peers.end() && it->second == peer) peers.erase(it);
}

void ChainStepClient::Shared::drop_unused() {
  std::erase_if(peers, [](const auto& each) { return each.second->connections == 0; });
}

// The main function of a connection's thread.
void ChainStepClient::Shared::serve(const PeerPtr& peer, const Result<int>& socket) {
  const bool good = socket.ok() && says_hello(*socket);
  std::unique_lock lock(mutex);
  peer->opening = false;
  if (good) bring_steps(peer, *socket, lock);
  --peer->connections;
  // Retry only after a reservation has reported the port again.
  if (!good && peer->connections == 0) drop(peer);
}

// REQUIRES: mutex held by `lock`.
void ChainStepClient::Shared::bring_steps(const PeerPtr& peer, int socket, std::unique_lock<std::mutex>& lock) {
  const auto own = std::make_shared<Connection>();
  if (!peer->dropped) peer->idle.push_back(own);
  for (bool usable = !peer->dropped; usable;) {
    own->changed.wait_for(lock, idle_time, [&] { return own->step || own->dropped; });
    if (!own->step) {
      std::erase(peer->idle, own);
      return;
    }
    Step step = *std::exchange(own->step, std::nullopt);
    lock.unlock();
    StepOutcome outcome = ask_for_step(socket, step.call);
    lock.lock();
    usable = outcome.usable && !peer->dropped;
    if (usable) peer->idle.push_back(own);  // before delivering the answer, which may cause the next step
    lock.unlock();
    tell(std::move(step), std::move(outcome));
    lock.lock();
  }
}

// A step whose connection broke is sent once more, over HTTP. The other worker may have received it before and accepts it
// twice.
void ChainStepClient::Shared::tell(Step step, StepOutcome outcome) {
  if (outcome.answer) return step.answered(std::move(*outcome.answer));
  bool stops = false;
  {
    const std::scoped_lock lock(mutex);
    stops = ended;
  }
  if (stops) return step.answered({0, "", "this worker is stopping"});
  http(std::move(step.call), std::move(step.answered));
}

void ChainStepClient::Shared::end() {
  {
    const std::scoped_lock lock(mutex);
    ended = true;
    while (!peers.empty()) drop(PeerPtr(peers.begin()->second));
  }
  connections.end();
}

ChainStepClient::ChainStepClient(ChainPost http, double idle_s) : shared_(std::make_shared<Shared>(std::move(http), idle_s)) {}

ChainStepClient::~ChainStepClient() { shared_->end(); }

bool ChainStepClient::ready(const std::string& address) const {
  const std::scoped_lock lock(shared_->mutex);
  const auto it = shared_->peers.find(address);
  return it != shared_->peers.end() && !it->second->idle.empty();
}

ChainPost ChainStepClient::post() {
  return [shared = shared_](ChainCall call, ChainAnswered answered) { shared->call(std::move(call), std::move(answered)); };
}

}  // namespace windlass::worker
