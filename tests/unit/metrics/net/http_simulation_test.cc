// The server with seeded peers that send and read in pieces, stop, leave and reset, over a simulated kernel
// (simulated_kernel.h).
//
// In step: after each move of a peer the test waits until the server has nothing left to do, so it knows when each time limit
// began. Expects connections to end exactly at their limits. In a hurry: nobody waits, and threads interleave freely.
#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <spdlog/spdlog.h>

#include "metrics/net/http_service.h"
#include "tests/effort.h"
#include "tests/unit/metrics/net/simulated_kernel.h"
#include "tests/unit/metrics/net/simulated_peer.h"

namespace windlass::net {
namespace {

using Time = SimulatedKernel::Time;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr auto kWriteTime = seconds(60);  // for one answer; http_service.cc
constexpr auto kLingerTime = seconds(2);  // after a refusal; http_server.cc
constexpr auto kLookTime = seconds(1);    // time in which the server notices that a peer has left; peer_watch.cc
constexpr std::size_t kMaxBodyBytes = 6000;
constexpr std::size_t kScarceBytes = 5000;
constexpr std::size_t kCrowd = 3;

enum class Pace { kInStep, kInAHurry };

// What the server does for a peer, as far as the peer can know.
enum class Phase { kArriving, kIdle, kHead, kBody, kHandling, kWriting, kRefused, kClosed };

// The outcome of one call.
struct Record {
  int handled = 0, done = 0, left = 0;
  bool ran = false;   // its handler has returned
  bool sent = false;  // the whole answer was sent
  std::optional<Time> answered;
};

using Name = std::pair<std::size_t, std::size_t>;  // a peer's number and the index of its request

struct Held {
  AskName name;
  ServerCall call;
  std::string rest;  // of its answer
};

struct Guest {
  std::unique_ptr<SimulatedPeer> peer;
  std::uint32_t address = 0;
  bool crowded_out = false, timed_out = false;
  Phase phase = Phase::kArriving;
  std::size_t index = 0;  // of the request that the phase is about
  Time since{};
  std::optional<Time> limit;
};

HttpServer::Options refusing() {
  HttpServer::Options options;
  options.admit = [](const http::request_header<>& head) -> std::optional<Refusal> {
    if (head.target() != "/refused") return std::nullopt;
    return Refusal{401, "", "", ""};
  };
  options.refusal_body = [](const Refusal& refused) { return refused.message; };
  return options;
}

class Simulation {
 public:
  Simulation(std::uint64_t seed, Pace pace)
      : random_(seed),
        in_step_(pace == Pace::kInStep),
        scarce_(chance(6)),
        crowded_(chance(5)),
        service_(options(), handler(), 2) {}

  // The problem; empty: none.
  std::string run() {
    if (!service_.open({"127.0.0.1", "0"}).ok()) return "does not listen";
    for (std::size_t steps = 20 + below(60); steps > 0 && problem_.empty(); --steps) {
      move();
      if (in_step_) settle();
    }
    finish();
    return problem_;
  }

 private:
  std::size_t below(std::size_t bound) { return std::uniform_int_distribution<std::size_t>(0, bound - 1)(random_); }
  bool chance(std::size_t n) { return below(n) == 0; }
  void fail(std::string text) {
    if (problem_.empty()) problem_ = std::move(text);
  }

  HttpServer::Options options() {
    HttpServer::Options options = refusing();
    options.limits.head_bytes = 1024;
    options.limits.body_bytes = kMaxBodyBytes;
    if (crowded_) options.limits.connections = options.limits.connections_per_peer = kCrowd;
    if (crowded_ && chance(2)) options.limits.connections_per_peer = 1;
    limits_ = options.limits;
    if (scarce_) options.memory = std::make_shared<MemoryBudget>(kScarceBytes);
    memory_ = options.memory;
    return options;
  }

  HttpService::Handler handler() {
    return [this](const ServerCall& call) { handle(call); };
  }

  // Runs on one of the service's threads.
  void handle(const ServerCall& call) {
    const auto name = parse_target(call.path());
    if (!name) return;
    const std::string answer = answer_to(*name, call.method(), call.body());
    const std::string first = answer.substr(0, answer.size() / 3);
    std::string rest = answer.substr(first.size());
    {
      const std::scoped_lock lock(mutex_);
      Record& record = record_of(*name);
      ++record.handled;
      record.answered = kernel_.now();
      if (name->reply == Reply::kLater || name->reply == Reply::kPieces) record.answered.reset();
    }
    call.on_left([this, name] {
      const std::scoped_lock lock(mutex_);
      ++record_of(*name).left;
    });
    switch (name->reply) {
      case Reply::kLater: hold({*name, call, answer}); break;
      case Reply::kPieces:
        call.begin({200, first, "text/plain", {}}, when_done(*name));
        hold({*name, call, std::move(rest)});
        break;
      case Reply::kStream:
        call.begin({200, first, "text/plain", {}}, when_done(*name));
        for (; !rest.empty(); rest.erase(0, 500)) call.write(rest.substr(0, 500));
        call.finish();
        break;
      case Reply::kBreakInside:
        call.begin({200, first, "text/plain", {}}, when_done(*name));
        call.break_off();
        break;
      case Reply::kBreak: call.break_off(); break;
      case Reply::kDrop: break;
      default: answer_whole(call, *name, answer);
    }
    const std::scoped_lock lock(mutex_);
    record_of(*name).ran = true;
    ++activity_;
  }

  void answer_whole(const ServerCall& call, const AskName& name, std::string answer) {
    HttpResponse response{name.reply == Reply::kEmpty ? 204 : 200, std::move(answer), "text/plain", {}};
    if (name.reply == Reply::kLast) response.headers.emplace_back("Connection", "close");
    call.answer(std::move(response), when_done(name));
  }

  ServerCall::Done when_done(const AskName& name) {
    return [this, name](bool sent) {
      const std::scoped_lock lock(mutex_);
      Record& record = record_of(name);
      ++record.done;
      record.sent = sent;
      ++activity_;
    };
  }

  void hold(Held held) {
    const std::scoped_lock lock(mutex_);
    held_.push_back(std::move(held));
  }

  Record& record_of(const AskName& name) { return records_[{name.peer, name.index}]; }
  std::map<Name, Record> records() {
    const std::scoped_lock lock(mutex_);
    return records_;
  }
  Record record(std::size_t peer, std::size_t index) {
    const std::scoped_lock lock(mutex_);
    const auto found = records_.find({peer, index});
    return found == records_.end() ? Record{} : found->second;
  }

  // One random peer makes a move.
  void move() {
    if (guests_.size() < 2 || (guests_.size() < 8 && chance(6))) return arrive();
    if (chance(40)) return kernel_.fail_next_accept();
    if (chance(4)) return answer_held();
    if (chance(6) && in_step_) return advance(milliseconds(below(chance(3) ? 40'000 : 3000)));
    Guest& guest = guests_[below(guests_.size())];
    SimulatedPeer& peer = *guest.peer;
    if (peer.manner().lazy && chance(3)) {
      peer.read(1 + below(20'000));
    } else if (guest.phase == Phase::kRefused && chance(4)) {
      peer.leave(chance(2) ? Leave::kClose : Leave::kFinishWriting);
    } else {
      peer.send(1 + below(peer.manner().max_piece));
      if (!peer.manner().lazy) peer.read(SIZE_MAX);
    }
  }

  void arrive() {
    static constexpr std::array<std::size_t, 4> kPieces = {3, 40, 1000, 65536};
    Link link;
    link.seed = random_();
    link.address = 0x0a000001U + static_cast<std::uint32_t>(below(3));
    link.max_read_bytes = kPieces[below(4)];
    link.max_write_bytes = kPieces[below(4)];
    link.send_buffer_bytes = chance(2) ? 65536 : 1;
    if (chance(12)) link.reset_at_read = below(500);
    if (chance(12)) link.reset_at_written = 1 + below(chance(2) ? 200 : 4000);
    PeerManner manner;
    manner.max_piece = kPieces[below(4)];
    manner.waits = chance(2);
    manner.lazy = chance(4) && !scarce_;  // it would not see that its body is refused
    if (chance(4)) {
      manner.leave = std::array{Leave::kClose, Leave::kFinishWriting, Leave::kReset}[below(3)];
      manner.leave_at = below(600);
    }
    const std::size_t number = guests_.size();
    const bool large = manner.lazy && link.max_write_bytes > 500;
    // As much as the connection carries in a few hundred calls.
    const AskSizes sizes{std::min<std::size_t>(chance(4) ? 4000 : 100, 100 * link.max_read_bytes),
                         large && chance(2) ? 200'000 : std::min<std::size_t>(2000, 100 * link.max_write_bytes)};
    auto asks = random_asks(number, random_, manner.lazy, sizes);
    Guest guest;
    guest.address = link.address;
    guest.peer = std::make_unique<SimulatedPeer>(number, kernel_, link, manner, std::move(asks));
    guests_.push_back(std::move(guest));
  }

  void answer_held() {
    std::optional<Held> held;
    {
      const std::scoped_lock lock(mutex_);
      if (held_.empty()) return;
      std::swap(held_[below(held_.size())], held_.back());
      held = std::move(held_.back());
      held_.pop_back();
      if (held->name.reply == Reply::kLater) record_of(held->name).answered = kernel_.now();
    }
    if (held->name.reply == Reply::kLater) return answer_whole(held->call, held->name, std::move(held->rest));
    const std::size_t n = std::min(held->rest.size(), 1 + below(2000));
    held->call.write(held->rest.substr(0, n));
    held->rest.erase(0, n);
    if (!held->rest.empty()) return hold(std::move(*held));
    held->call.finish();
    const std::scoped_lock lock(mutex_);
    record_of(held->name).answered = kernel_.now();
  }

  // In step: passes every limit on the way, stopping just before each and at it.
  void advance(std::chrono::nanoseconds by) {
    const Time end = kernel_.now() + by;
    while (problem_.empty() && kernel_.now() < end) {
      Time next = end;
      for (const Guest& guest : guests_) next = std::min(next, guest.limit.value_or(end));
      for (const Time time : {next - milliseconds(1), next}) {
        if (time <= kernel_.now()) continue;
        kernel_.advance_to(time);
        settle();
      }
    }
  }

  // Waits until nothing happens any more. The limit uses the real clock and only ends a hung test.
  void settle() {
    const auto limit = std::chrono::system_clock::now() + std::chrono::minutes(2);
    while (problem_.empty()) {
      const std::uint64_t before = activity();
      kernel_.wait_until_idle(limit);
      bool rests = nothing_due();
      for (const Guest& guest : guests_) {
        while (!guest.peer->manner().lazy && guest.peer->read(SIZE_MAX)) rests = false;
      }
      if (rests && activity() == before && kernel_.idle()) break;
      if (std::chrono::system_clock::now() > limit) fail("the server never comes to rest" + state());
      std::this_thread::yield();
    }
    look();
  }

  std::uint64_t activity() {
    const std::scoped_lock lock(mutex_);
    return activity_;
  }

  // Number of requests that the server has finished.
  std::size_t answered(std::size_t number) {
    const SimulatedPeer& peer = *guests_[number].peer;
    std::size_t index = peer.answered();
    while (index < peer.asks().size() && record(number, index).sent) ++index;
    return index;
  }

  Phase phase(std::size_t number, std::size_t index) {
    const SimulatedPeer& peer = *guests_[number].peer;
    if (kernel_.closed(peer.id())) return Phase::kClosed;
    if (!kernel_.accepted(peer.id())) return Phase::kArriving;
    if (peer.refused()) return Phase::kRefused;
    const std::ptrdiff_t sent = index == peer.asks().size() ? 0 : peer.sent_of(index);
    if (sent <= 0) return Phase::kIdle;
    const Ask& ask = peer.asks()[index];
    if (sent < static_cast<std::ptrdiff_t>(ask.head_bytes)) return Phase::kHead;
    if (sent < static_cast<std::ptrdiff_t>(ask.bytes.size())) return Phase::kBody;
    return record(number, index).answered ? Phase::kWriting : Phase::kHandling;
  }

  // Every handler that should run has run, and answers without a report are done.
  bool nothing_due() {
    for (std::size_t number = 0; number < guests_.size(); ++number) {
      const SimulatedPeer& peer = *guests_[number].peer;
      if (ends_itself(guests_[number])) continue;
      const std::size_t index = answered(number);
      const Phase now = phase(number, index);
      if (now != Phase::kHandling && now != Phase::kWriting) continue;
      if (!record(number, index).ran || peer.asks()[index].reply == Reply::kDrop) return false;
    }
    return true;
  }

  // Checks that each peer's bytes are right, each closed connection had a reason, and each refused peer found no room.
  void look() {
    const Time now = kernel_.now();
    std::size_t open = 0;
    const auto arriving =
        std::count_if(guests_.begin(), guests_.end(), [](const Guest& guest) { return guest.phase == Phase::kArriving; });
    const Guest* in_vain = nullptr;
    for (std::size_t number = 0; number < guests_.size(); ++number) {
      Guest& guest = guests_[number];
      const SimulatedPeer& peer = *guest.peer;
      if (!peer.problem().empty()) fail(peer.problem());
      const std::size_t index = answered(number);
      const Phase phase_now = phase(number, index);
      if (kernel_.accepted(peer.id()) && phase_now != Phase::kClosed) ++open;
      if (!ends_itself(guest) && guest.phase != Phase::kClosed && !ends_there(number, index)) {
        const bool at_limit = guest.limit && *guest.limit <= now;
        if (phase_now == Phase::kClosed) {
          guest.timed_out = at_limit || (!in_step_ && guest.phase == Phase::kRefused);  // time is not controlled then
          guest.crowded_out = !at_limit && crowded_ && (!in_step_ || may_make_room(guest, index));
          if (!guest.timed_out && !guest.crowded_out) fail(fmt::format("peer {}: closed without a reason", number) + state());
          if (arriving == 1 && guest.phase == Phase::kArriving) in_vain = &guest;
        } else if (at_limit && guest.phase == phase_now && guest.index == index) {
          fail(fmt::format("peer {}: open at its limit", number) + state());
        }
      }
      if (phase_now != guest.phase || index != guest.index) {
        guest.phase = phase_now;
        guest.index = index;
        guest.since = phase_now == Phase::kWriting ? record(number, index).answered.value() : now;
      }
      guest.limit = limit_of(guest);
    }
    if (open > limits_.connections) fail(fmt::format("{} connections are open", open));
    if (in_vain != nullptr && in_step_) check_turned_away(*in_vain);
  }

  [[nodiscard]] bool ends_itself(const Guest& guest) const { return guest.peer->left() || kernel_.was_reset(guest.peer->id()); }

  // The server has no complete head of it.
  [[nodiscard]] static bool may_make_room(const Guest& guest, std::size_t index) {
    const SimulatedPeer& peer = *guest.peer;
    return guest.phase == Phase::kArriving || index == peer.asks().size() || peer.refused() ||
           peer.sent_of(index) < static_cast<std::ptrdiff_t>(peer.asks()[index].head_bytes);
  }

  // No other connection of its address could have been closed for it.
  void check_turned_away(const Guest& guest) {
    for (const Guest& other : guests_) {
      const bool waits = other.phase == Phase::kIdle || other.phase == Phase::kHead || other.phase == Phase::kRefused;
      if (waits && other.address == guest.address) fail("turned away although another waits" + state());
    }
  }

  // The last answer that fits into the connection was sent, or none is coming.
  bool ends_there(std::size_t number, std::size_t index) {
    const SimulatedPeer& peer = *guests_[number].peer;
    if (index > 0 && peer.asks()[index - 1].last && !peer.refused()) return true;
    return index < peer.asks().size() && peer.asks()[index].status == 0 && record(number, index).handled > 0;
  }

  std::optional<Time> limit_of(const Guest& guest) {
    if (!in_step_ || ends_itself(guest)) return std::nullopt;
    switch (guest.phase) {
      case Phase::kIdle: return guest.since + limits_.idle_time;
      case Phase::kHead: return guest.since + limits_.head_time;
      case Phase::kBody: return guest.since + limits_.body_time;
      case Phase::kWriting:
        if (guest.peer->asks()[guest.index].whole) return guest.since + kWriteTime;
        return std::nullopt;
      case Phase::kRefused: return guest.since + kLingerTime;
      default: return std::nullopt;
    }
  }

  // Every peer does what is left to do, and leaves.
  void finish() {
    in_step_ = false;
    for (bool moved = true; moved && problem_.empty();) {
      moved = false;
      settle();
      for (Guest& guest : guests_) {
        while (guest.peer->send(SIZE_MAX)) moved = true;
        while (guest.peer->read(SIZE_MAX)) moved = true;
        if (guest.phase != Phase::kArriving) continue;
        kernel_.advance_to(kernel_.now() + milliseconds(50));
        moved = true;
      }
      for (std::size_t held = held_count(); held > 0; held = held_count()) {
        answer_held();
        moved = true;
      }
    }
    for (std::size_t number = 0; number < guests_.size() && problem_.empty(); ++number) {
      const Guest& guest = guests_[number];
      if (guest.timed_out || guest.crowded_out || ends_itself(guest)) continue;
      if (!guest.peer->complete() && !guest.peer->refused()) fail(fmt::format("peer {}: has not got all", number) + state());
    }
    for (Guest& guest : guests_) guest.peer->leave(Leave::kClose);
    const auto ran = records();
    settle();  // the server starts to poll
    if (problem_.empty()) kernel_.advance_to(kernel_.now() + kLookTime);
    settle();
    for (std::size_t number = 0; number < guests_.size(); ++number) {
      if (!kernel_.closed(guests_[number].peer->id())) fail(fmt::format("peer {}: has left and is open", number) + state());
    }
    const auto now = records();
    for (const auto& [name, record] : ran) {
      if (record.ran) check(name, now.at(name));
    }
    if (!service_.close(0)) fail("the service holds connections");
    held_.clear();
    if (memory_->held_bytes() != 0) fail(fmt::format("the budget holds {} bytes", memory_->held_bytes()));
  }

  std::size_t held_count() {
    const std::scoped_lock lock(mutex_);
    return held_.size();
  }

  void check(const Name& name, const Record& record) {
    const Ask& ask = guests_[name.first].peer->asks()[name.second];
    const bool says =
        ask.reply != Reply::kDrop && ask.reply != Reply::kBreak && (ask.reply != Reply::kLater || record.answered);
    const bool tells = ask.reply == Reply::kDrop || record.left == (record.sent ? 0 : 1);
    if (record.handled == 1 && record.done == (says ? 1 : 0) && tells) return;
    fail(fmt::format("peer {}, ask {}: handled {}, done {}, left {}, sent {}", name.first, name.second, record.handled,
                     record.done, record.left, record.sent));
  }

  std::string state() {
    std::string text;
    for (std::size_t number = 0; number < guests_.size(); ++number) {
      const Guest& guest = guests_[number];
      const SimulatedPeer& peer = *guest.peer;
      const std::size_t index = answered(number);
      text += fmt::format(
          "\n  peer {}: ask {} of {}, read {}, phase {} (was {}), closed {}, left {}, reset {}, ended {}, lazy {}", number,
          index, peer.asks().size(), peer.answered(), static_cast<int>(phase(number, index)), static_cast<int>(guest.phase),
          kernel_.closed(peer.id()), peer.left(), kernel_.was_reset(peer.id()), peer.ended(), peer.manner().lazy);
      if (index < peer.asks().size())
        text += fmt::format(", sent {} of {}: {}", peer.sent_of(index), peer.asks()[index].bytes.size(),
                            peer.asks()[index].bytes.substr(0, 60));
    }
    return text;
  }

  std::mt19937_64 random_;
  bool in_step_;
  SimulatedKernel kernel_;
  const bool scarce_, crowded_;
  HttpLimits limits_;
  std::shared_ptr<MemoryBudget> memory_;
  std::vector<Guest> guests_;
  std::string problem_;

  std::mutex mutex_;  // guards the members below
  std::map<Name, Record> records_;
  std::vector<Held> held_;
  std::uint64_t activity_ = 0;  // handlers that returned, and answers that are done

  HttpService service_;
};

class HttpSimulation : public ::testing::Test {
 protected:
  HttpSimulation() { spdlog::set_level(spdlog::level::err); }  // hundreds of peers misbehave on purpose
};

// Given an empty chunked body, sent byte by byte; expects an answer: Beast asserted that five bytes are there.
TEST_F(HttpSimulation, AnEmptyChunkedBodyByteByByte) {
  SimulatedKernel kernel;
  HttpService service(
      refusing(),
      [](const ServerCall& call) {
        call.answer({204, "", "", {}});
      },
      1);
  ASSERT_TRUE(service.open({"127.0.0.1", "0"}).ok());
  Ask ask;
  ask.bytes = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
  ask.status = 204;
  Link link;
  link.max_read_bytes = 1;
  SimulatedPeer peer(0, kernel, link, {}, {ask});
  ASSERT_TRUE(peer.send(SIZE_MAX));
  while (!peer.complete() && !peer.ended()) peer.read(SIZE_MAX);
  EXPECT_EQ(peer.problem(), "");
  EXPECT_TRUE(peer.complete());
}

// Given a machine without IPv6, expects a server at "::" to listen on IPv4.
TEST_F(HttpSimulation, ListensWithoutIpv6) {
  SimulatedKernel kernel;
  HttpService service(
      refusing(), [](const ServerCall&) {}, 1);
  const auto opened = service.open({"::", "0"});
  EXPECT_TRUE(opened.ok()) << opened.error().message;
  EXPECT_FALSE(service.open({"::1", "0"}).ok());
}

// Given peers in step with the server; expects each complete request to be answered once, in order and with its own bytes, bad
// ones to be refused, every connection to close at its limit and for no other reason, and nothing held at the end.
TEST_F(HttpSimulation, PeersInStep) {
  for (std::uint64_t seed = 1; seed <= effort(60U, 10'000U); ++seed) {
    ASSERT_EQ(Simulation(seed, Pace::kInStep).run(), "") << "seed " << seed;
  }
}

// Given the same peers without waiting for the server, so that all threads run together; expects the same, without time limits.
TEST_F(HttpSimulation, PeersInAHurry) {
  for (std::uint64_t seed = 1; seed <= effort(60U, 10'000U); ++seed) {
    ASSERT_EQ(Simulation(seed, Pace::kInAHurry).run(), "") << "seed " << seed;
  }
}

}  // namespace
}  // namespace windlass::net
