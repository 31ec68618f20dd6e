// Streams of keys and values over real connections between two workers' caches: complete, in either format, whatever fails on
// the way.
#include "worker/parallel/kv_stream.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <future>
#include <numeric>
#include <thread>
#include <vector>

#include <arpa/inet.h>
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "metrics/bundles.h"
#include "planner/base/rng.h"
#include "worker/model/ggml_blocks.h"

namespace windlass::worker {
namespace {

using ::testing::HasSubstr;

constexpr std::uint64_t kModelOfStreams = 0x5EED;
constexpr std::int64_t kStreamVocabulary = 50;
const std::string kStreamed = "0123456789abcdef0123456789abcdef";

// A backend with only a cache.
class OnlyCache final : public Backend {
 public:
  OnlyCache(KvShape shape, std::int64_t blocks, bool bf16)
      : shape_(shape),
        blocks_(blocks),
        bf16_(bf16),
        numbers_(static_cast<std::size_t>(shape.layers * blocks * 16 * shape.values)) {}

  [[nodiscard]] std::int64_t vocab_size() const override { return kStreamVocabulary; }
  [[nodiscard]] std::int64_t kv_blocks() const override { return blocks_; }
  [[nodiscard]] KvShape kv_shape() const override { return shape_; }
  [[nodiscard]] bool kv_is_bf16() const override { return bf16_; }
  void read_kv(const KvRange& range, std::span<const std::int32_t> blocks, float* out) const override {
    for (std::int64_t p = range.start; p < range.start + range.tokens; ++p)
      out = std::copy_n(numbers_.begin() + at(range.layer, blocks, p), shape_.values, out);
  }
  void write_kv(const KvRange& range, std::span<const std::int32_t> blocks, const float* in) override {
    for (std::int64_t p = range.start; p < range.start + range.tokens; ++p, in += shape_.values)
      std::copy_n(in, shape_.values, numbers_.begin() + at(range.layer, blocks, p));
  }
  void fill(std::uint64_t seed) {
    Rng rng(seed, "cache");
    for (float& number : numbers_) {
      number = static_cast<float>(rng.uniform(-1, 1));
      if (bf16_) number = float_from_bf16(bf16_from_float(number));
    }
  }
  [[nodiscard]] bool untouched() const {
    return std::all_of(numbers_.begin(), numbers_.end(), [](float number) { return number == 0; });
  }

 private:
  [[nodiscard]] Result<std::span<const float>> run(std::span<const SequenceChunk> /*chunks*/, const LayerDone& /*layer_done*/,
                                                   std::int64_t /*skip*/) override {
    return Error{ErrorCode::kInternal, "a cache computes nothing"};
  }
  [[nodiscard]] std::ptrdiff_t at(std::int64_t layer, std::span<const std::int32_t> blocks, std::int64_t position) const {
    const std::int64_t block = blocks[static_cast<std::size_t>(position / 16)];
    return static_cast<std::ptrdiff_t>(((layer * blocks_ + block) * 16 + position % 16) * shape_.values);
  }

  const KvShape shape_;
  const std::int64_t blocks_;
  const bool bf16_;
  std::vector<float> numbers_;
};

// A worker that has a prompt's keys and values, one that wants them, and streams between them; without a port, questions that
// the test answers.
class KvStreams : public ::testing::Test {
 protected:
  void make(KvShape shape, std::int64_t tokens, bool bf16 = false) {
    imports_.reset();
    server_.reset();
    received_before_ = metrics_.kv_transfer_bytes("received").value();
    const std::int64_t count = blocks_for(tokens);
    prompt_.assign(static_cast<std::size_t>(tokens), 7);
    blocks_here_.resize(static_cast<std::size_t>(count));
    std::iota(blocks_here_.begin(), blocks_here_.end(), 0);
    blocks_there_.assign(blocks_here_.rbegin(), blocks_here_.rend());
    there_ = std::make_unique<OnlyCache>(shape, count, bf16);
    there_->fill(3);
    here_ = std::make_unique<OnlyCache>(shape, count, false);
    exports_ = std::make_shared<KvExports>(*there_, kModelOfStreams, clock_, metrics_);
    server_ = KvStreamServer::open("127.0.0.1", [this] {
                return KvSource{exports_, [this](const std::string& session) { taken_.set_value(session); }};
              }).value();
    port_ = server_->port();
    imports_ = std::make_unique<KvImports>(
        *here_, kModelOfStreams,
        [this](const KvQuestion& question, std::function<void(Result<KvAnswer>)> answered) {
          const std::scoped_lock lock(mutex_);
          ++questions_;
          answering_.emplace_back([this, question, answered = std::move(answered)] {
            if (!question.stream) return answered(Error{ErrorCode::kUnavailable, "nobody answers questions"});
            KvAnswer answer;
            answer.stream_port = port_;
            answered(answer);
          });
        },
        [this](RequestId /*request*/, const KvQuestion& /*last*/, const Result<Sampled>& first) { done_.set_value(first); },
        clock_, metrics_, client_.stream());
  }
  void TearDown() override {
    std::vector<std::thread> answering;
    {
      const std::scoped_lock lock(mutex_);
      answering.swap(answering_);
    }
    for (std::thread& each : answering) each.join();
    server_.reset();
  }

  void begin() {
    exports_->open(kStreamed, prompt_, nullptr);
    exports_->begins(kStreamed);
  }
  void computed(std::int64_t layer, std::int64_t start, std::int64_t tokens) {
    exports_->computed(kStreamed, {layer, start, tokens}, blocks_there_);
  }
  void receive() { imports_->receive(1, {kStreamed, "127.0.0.1:1"}, prompt_, blocks_here_); }
  [[nodiscard]] Result<Sampled> done() {
    auto end = done_.get_future();
    if (end.wait_for(std::chrono::seconds(60)) != std::future_status::ready)
      return Error{ErrorCode::kDeadlineExceeded, "no end"};
    return end.get();
  }
  [[nodiscard]] bool same() const {
    const auto tokens = static_cast<std::int64_t>(prompt_.size());
    const KvShape shape = here_->kv_shape();
    std::vector<float> a(static_cast<std::size_t>(tokens * shape.values)), b(a.size());
    for (std::int64_t layer = 0; layer < shape.layers; ++layer) {
      there_->read_kv({layer, 0, tokens}, blocks_there_, a.data());
      here_->read_kv({layer, 0, tokens}, blocks_here_, b.data());
      if (a != b) return false;
    }
    return true;
  }
  // Bytes since make().
  [[nodiscard]] double received() const { return metrics_.kv_transfer_bytes("received").value() - received_before_; }
  [[nodiscard]] int questions() {
    const std::scoped_lock lock(mutex_);
    return questions_;
  }

  const SteadyClock clock_;
  metrics::Registry registry_;
  const metrics::WorkerMetrics metrics_{registry_, "m"};
  std::vector<std::int32_t> prompt_, blocks_here_, blocks_there_;
  std::unique_ptr<OnlyCache> there_, here_;
  std::shared_ptr<KvExports> exports_;
  std::promise<std::string> taken_;
  std::promise<Result<Sampled>> done_;
  std::unique_ptr<KvStreamServer> server_;
  int port_ = 0;
  KvStreamClient client_;
  std::mutex mutex_;
  int questions_ = 0;
  double received_before_ = 0;
  std::vector<std::thread> answering_;
  std::unique_ptr<KvImports> imports_;
};

// Given a prompt that is computed chunk by chunk and layer by layer while it streams, with pieces longer than a frame and a
// pause longer than the sender may be silent; expects the receiver to have the same numbers and the first token, the sender to
// learn that everything was fetched, and only one question. With BF16, expects half of the bytes.
TEST_F(KvStreams, StreamPiecesAsTheyAreComputed) {
  for (const bool bf16 : {false, true}) {
    SCOPED_TRACE(bf16 ? "BF16" : "FP32");
    taken_ = {};
    done_ = {};
    make({3, 1000}, 700, bf16);
    begin();
    receive();
    for (const auto& [start, tokens] : {std::pair{0, 100}, std::pair{100, 600}}) {
      for (std::int64_t layer = 0; layer < 3; ++layer) computed(layer, start, tokens);
      if (start > 0) continue;
      // A waiting receiver gets a keep-alive at each tick after a second.
      const double until_s = clock_.now_s() + 1.2 * kKvLongestWaitS;
      while (clock_.now_s() < until_s) {
        static_cast<void>(exports_->tick());
        std::this_thread::yield();
      }
    }
    Sampled first;
    first.id = 42;
    exports_->completed(kStreamed, first);
    const auto end = done();
    ASSERT_TRUE(end.ok()) << end.error().message;
    EXPECT_EQ(end->id, 42);
    EXPECT_TRUE(same());
    EXPECT_EQ(taken_.get_future().get(), kStreamed);
    EXPECT_EQ(questions(), bf16 ? 2 : 1);
    EXPECT_NEAR(received(), 3.0 * 700 * 1000 * (bf16 ? 2 : 4), 1000);
    exports_->stop(kStreamed);
  }
}

// Given an unknown session, another prompt's hash, or a port where nobody listens; expects the receiver to ask questions
// instead.
TEST_F(KvStreams, AskQuestionsWithoutAStream) {
  for (const std::string wrong : {"session", "prompt", "port"}) {
    SCOPED_TRACE(wrong);
    done_ = {};
    questions_ = 0;
    make({2, 8}, 40);
    if (wrong != "session") begin();
    if (wrong == "prompt") prompt_[3] = 8;
    if (wrong == "port") server_.reset();
    receive();
    const auto end = done();
    ASSERT_FALSE(end.ok());
    EXPECT_EQ(end.error().message, "nobody answers questions");
    EXPECT_EQ(questions(), 2);
    EXPECT_TRUE(here_->untouched());
  }
}

// Given a sender that stops midway, or drops the prompt; expects the receiver to learn of it immediately and to ask nobody.
TEST_F(KvStreams, BrokenStreamIsAnError) {
  for (const bool given_up : {false, true}) {
    done_ = {};
    questions_ = 0;
    make({2, 8}, 40);
    begin();
    computed(0, 0, 40);
    receive();
    while (received() < 40 * 8 * 4) std::this_thread::yield();
    if (given_up) {
      exports_->stop(kStreamed);
    } else {
      server_.reset();
    }
    const auto end = done();
    ASSERT_FALSE(end.ok());
    EXPECT_THAT(end.error().message, HasSubstr(given_up ? "session: must be open here" : "stream: it broke off"));
    EXPECT_EQ(questions(), 1);
  }
}

// Given a receiver that is stopped during a stream; expects no more writes and no end callback.
TEST_F(KvStreams, StoppedReceiverWritesNothing) {
  make({2, 8}, 40);
  begin();
  computed(0, 0, 40);
  receive();
  while (received() < 40 * 8 * 4) std::this_thread::yield();
  imports_->stop(1);
  std::vector<float> zeros(40 * 8);
  here_->write_kv({0, 0, 40}, blocks_here_, zeros.data());
  computed(1, 0, 40);
  exports_->completed(kStreamed, {});
  server_.reset();  // waits for the stream's end
  EXPECT_TRUE(here_->untouched());
  EXPECT_EQ(done_.get_future().wait_for(std::chrono::seconds(0)), std::future_status::timeout);
}

// A connection to that port, or one that listens on its own.
class Socket {
 public:
  explicit Socket(int descriptor) : descriptor_(descriptor) {}
  static Socket to(int port) {
    Socket made(::socket(AF_INET, SOCK_STREAM, 0));
    const sockaddr_in address = loopback(port);
    EXPECT_EQ(::connect(made.descriptor_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    return made;
  }
  static Socket listening(int& port) {
    Socket made(::socket(AF_INET, SOCK_STREAM, 0));
    sockaddr_in address = loopback(0);
    socklen_t size = sizeof(address);
    EXPECT_EQ(::bind(made.descriptor_, reinterpret_cast<const sockaddr*>(&address), size), 0);
    EXPECT_EQ(::listen(made.descriptor_, 4), 0);
    EXPECT_EQ(::getsockname(made.descriptor_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    port = ntohs(address.sin_port);
    return made;
  }
  Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  ~Socket() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  void send_if_open(std::string_view bytes) const {
    static_cast<void>(::send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL));
  }
  [[nodiscard]] Socket accepted() const { return Socket(::accept(descriptor_, nullptr, nullptr)); }
  void send(std::string_view bytes) const {
    EXPECT_EQ(::send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL), bytes.size());
  }
  // Whether the other side closes it without sending anything.
  [[nodiscard]] bool ends_within(std::chrono::milliseconds limit) const {
    pollfd look{descriptor_, POLLIN, 0};
    char byte = 0;
    return ::poll(&look, 1, static_cast<int>(limit.count())) == 1 && ::recv(descriptor_, &byte, 1, MSG_PEEK) == 0;
  }
  [[nodiscard]] std::string receive(std::size_t bytes) const {
    std::string come(bytes, '\0');
    const ssize_t count = ::recv(descriptor_, come.data(), bytes, MSG_WAITALL);
    come.resize(count < 0 ? 0 : static_cast<std::size_t>(count));
    return come;
  }

 private:
  static sockaddr_in loopback(int port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
  }
  int descriptor_;
};

// magic, session, hash, and whether BF16 is accepted.
constexpr std::size_t kHelloBytes = 60;
constexpr double kHelloWaitS = 4;  // slightly less than the server's wait for a hello

// Given a receiver that says hello and then reads nothing; expects the sender's cache not to be blocked: the prompt can be
// dropped at any time, although far more data was to be sent than the connection buffers.
TEST_F(KvStreams, SlowReceiverBlocksNothing) {
  make({4, 4000}, 1600);
  begin();
  for (std::int64_t layer = 0; layer < 4; ++layer) computed(layer, 0, 1600);  // 100 MB
  const Socket slow = Socket::to(port_);
  slow.send("WLKVSTR1" + kStreamed + kv_prompt_hash(prompt_, kModelOfStreams) + std::string(4, '\0'));
  EXPECT_EQ(slow.receive(1).size(), 1);
  double sent = 0;  // until it blocks
  for (double now = 1; now > sent;) {
    sent = now;
    const double until_s = clock_.now_s() + 0.2;
    while (clock_.now_s() < until_s) std::this_thread::yield();
    now = metrics_.kv_transfer_bytes("sent").value();
  }
  EXPECT_LT(sent, 80e6);
  auto stopped = std::async(std::launch::async, [&] { exports_->stop(kStreamed); });
  EXPECT_EQ(stopped.wait_for(std::chrono::seconds(20)), std::future_status::ready);
}

// Given a hello of another protocol, or half of one; expects the connection to end. Connections beyond the limit are closed.
TEST_F(KvStreams, StrangersAreTurnedAway) {
  make({1, 1}, 1);
  const Socket other = Socket::to(port_);
  other.send("GET / HTTP/1.1\r\nHost: worker.example\r\nUser-Agent: somebody\r\nAccept: */*\r\n\r\n");
  EXPECT_EQ(other.receive(1), "");
  const double begun_s = clock_.now_s();
  std::vector<Socket> many;
  for (std::size_t i = 0; i < TcpConnections::kMost + 1; ++i) many.push_back(Socket::to(port_));
  EXPECT_TRUE(many.back().ends_within(std::chrono::seconds(20)));
  const bool waits = !many.front().ends_within(std::chrono::seconds(0));  // for its hello
  EXPECT_TRUE(waits || clock_.now_s() - begun_s > kHelloWaitS);
}

// Given a sender that sends a byte now and then; expects the receiver to wait no longer for a frame than for silence, and to
// compute the prompt itself.
TEST_F(KvStreams, TrickleCountsAsSilence) {
  make({2, 3}, 20);
  const Socket listener = Socket::listening(port_);
  std::atomic<bool> over = false;
  auto sends = std::async(std::launch::async, [&] {
    const Socket connection = listener.accepted();
    EXPECT_EQ(connection.receive(kHelloBytes).size(), kHelloBytes);
    const std::uint32_t frame[] = {0, 12 + 20 * 3 * 4, 0, 0, 20};  // a piece whose numbers never arrive completely
    connection.send({reinterpret_cast<const char*>(frame), sizeof(frame)});
    while (!over && !connection.ends_within(std::chrono::seconds(2))) connection.send_if_open("x");
  });
  receive();
  const auto end = done();
  over = true;
  ASSERT_FALSE(end.ok());
  EXPECT_EQ(end.error().message, "nobody answers questions");
  sends.get();
}

// Given a sender whose frames are random, truncated, of other layers, too long, or complete but without an end; expects each
// stream to fail without a write outside the prompt's blocks (for the address sanitizer).
TEST_F(KvStreams, HostileFramesAreErrors) {
  Rng rng(17, "frames");
  const auto number = [](std::uint32_t value) { return std::string(reinterpret_cast<const char*>(&value), sizeof(value)); };
  for (int round = 0; round < 200; ++round) {
    SCOPED_TRACE(fmt::format("round {}", round));
    done_ = {};
    make({2, 3}, 20);
    const Socket listener = Socket::listening(port_);
    auto sends = std::async(std::launch::async, [&] {
      const Socket connection = listener.accepted();
      EXPECT_EQ(connection.receive(kHelloBytes).size(), kHelloBytes);
      std::string bytes;
      for (std::int64_t frames = rng.integer(0, 4); frames > 0; --frames) {
        const bool bf16 = rng.uniform() < 0.5;
        const auto tokens = static_cast<std::uint32_t>(rng.integer(0, 21));
        const auto layer = static_cast<std::uint32_t>(rng.integer(0, 2)), start = static_cast<std::uint32_t>(rng.integer(0, 2));
        const std::string body = number(layer) + number(start) + number(tokens) + std::string(tokens * 3 * (bf16 ? 2 : 4), 'x');
        bytes += number(bf16 ? 1 : 0) + number(static_cast<std::uint32_t>(body.size())) + body;
      }
      if (rng.uniform() < 0.5) bytes += number(3) + number(31) + R"({"id":7,"logprob":-0.5,"top":[]})" + "?";
      if (!bytes.empty() && rng.uniform() < 0.7) {
        auto& byte = bytes[static_cast<std::size_t>(rng.integer(0, static_cast<std::int64_t>(bytes.size()) - 1))];
        byte = static_cast<char>(rng.integer(0, 255));
      }
      if (!bytes.empty() && rng.uniform() < 0.3)
        bytes.resize(static_cast<std::size_t>(rng.integer(0, static_cast<std::int64_t>(bytes.size()) - 1)));
      if (!bytes.empty()) connection.send(bytes);
    });
    receive();
    EXPECT_FALSE(done().ok());
    sends.get();
  }
}

}  // namespace
}  // namespace windlass::worker
