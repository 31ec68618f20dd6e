// The engine's thread: concurrent submitters, cancellation, the limit of requests, drain. Also run by the thread sanitizer.
#include "worker/engine/engine_loop.h"

#include <future>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/worker/fake_backend.h"

namespace windlass::worker {
namespace {

using testing::greedy;
using testing::HashBackend;
using ::testing::HasSubstr;
using testing::letter;

// Collects one request's events; wait() returns the whole text and how it ended.
class Collector {
 public:
  EngineLoop::Sink sink() {
    return [this](const TokenEvent& event) {
      text_ += event.text;
      if (event.finish) done_.set_value({text_, *event.finish});
    };
  }
  std::pair<std::string, FinishReason> wait() {
    auto future = done_.get_future();
    if (future.wait_for(std::chrono::seconds(60)) != std::future_status::ready) {
      ADD_FAILURE() << "the request does not end";
      std::abort();
    }
    return future.get();
  }

 private:
  std::string text_;
  std::promise<std::pair<std::string, FinishReason>> done_;
};

// A backend whose steps wait until the test releases them.
class GatedBackend final : public Backend {
 public:
  explicit GatedBackend(std::unique_ptr<Backend> inner) : inner_(std::move(inner)) {}
  [[nodiscard]] std::int64_t vocab_size() const override { return inner_->vocab_size(); }
  [[nodiscard]] std::int64_t kv_blocks() const override { return inner_->kv_blocks(); }
  [[nodiscard]] KvShape kv_shape() const override { return inner_->kv_shape(); }
  void read_kv(const KvRange& range, std::span<const std::int32_t> blocks, float* out) const override {
    inner_->read_kv(range, blocks, out);
  }
  void write_kv(const KvRange& range, std::span<const std::int32_t> blocks, const float* in) override {
    inner_->write_kv(range, blocks, in);
  }
  void allow(std::int64_t steps) {
    const std::scoped_lock lock(mutex_);
    allowed_ += steps;
    changed_.notify_all();
  }
  // Whether all released steps begin soon.
  bool all_begun() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(60), [&] { return allowed_ == 0; });
  }
  // How many steps wait or have begun, likewise.
  std::int64_t entered(std::int64_t at_least) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::seconds(60), [&] { return entered_ >= at_least; });
    return entered_;
  }
  // How many steps have begun, once it is at least that many or the wait times out.
  std::int64_t begun(std::int64_t at_least = 0, std::chrono::milliseconds longest = std::chrono::seconds(60)) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, longest, [&] { return begun_ >= at_least; });
    return begun_;
  }

 private:
  [[nodiscard]] Result<std::span<const float>> run(std::span<const SequenceChunk> chunks, const LayerDone& layer_done,
                                                   std::int64_t skip) override {
    std::unique_lock lock(mutex_);
    ++entered_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return allowed_ > 0; });
    --allowed_;
    ++begun_;
    changed_.notify_all();
    return inner_->forward(chunks, layer_done, skip);
  }

  std::unique_ptr<Backend> inner_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::int64_t allowed_ = 0;
  std::int64_t begun_ = 0;
  std::int64_t entered_ = 0;
};

class Loop : public ::testing::Test {
 protected:
  static EngineOptions options() {
    EngineOptions options;
    options.max_running = 2;
    options.max_waiting = 4;
    options.max_context_tokens = 256;
    return options;
  }
  // The loop, and the gate to its backend.
  std::pair<std::unique_ptr<EngineLoop>, GatedBackend*> make() {
    auto gated = std::make_unique<GatedBackend>(std::make_unique<HashBackend>(97, 64, options().max_batch_tokens));
    GatedBackend* gate = gated.get();
    return {std::make_unique<EngineLoop>(options(), std::move(gated), letter, clock_, metrics_), gate};
  }
  std::string expected(std::vector<std::int32_t> tokens, std::int64_t count) const {
    const HashBackend reference(97, 1, 1);
    std::string text;
    for (; count > 0; --count) {
      tokens.push_back(reference.next_token(tokens));
      text += letter(tokens.back());
    }
    return text;
  }

  SteadyClock clock_;
  metrics::Registry registry_;
  metrics::WorkerMetrics metrics_{registry_, "m"};
};

// Given a first iteration that does not finish; expects metrics that already show a running request and used blocks.
TEST_F(Loop, GaugesShowTheCurrentIteration) {
  Collector collector;
  auto [loop, gate] = make();
  ASSERT_TRUE(loop->submit(greedy({1, 2, 3}, 2), collector.sink()).ok());
  ASSERT_EQ(gate->entered(1), 1);
  EXPECT_EQ(metrics_.requests_running.value(), 1);
  EXPECT_EQ(metrics_.kv_blocks_used.value(), 1);
  gate->allow(10);
  EXPECT_EQ(collector.wait().second, FinishReason::kLength);
}

// Given eight threads with ten requests each, retried while the worker is full; expects each to get the text that it would get
// alone, and the metrics to count every token.
TEST_F(Loop, ManySubmittersAtOnce) {
  const auto [loop, gate] = make();
  gate->allow(1 << 30);
  std::vector<std::thread> threads;
  for (std::int32_t t = 0; t < 8; ++t) {
    threads.emplace_back([&, t, engine = loop.get()] {
      for (std::int32_t i = 0; i < 10; ++i) {
        Collector collector;
        for (;;) {
          const auto taken = engine->submit(greedy({t, i}, 5 + i), collector.sink());
          if (taken.ok()) break;
          ASSERT_EQ(taken.error().code, ErrorCode::kResourceExhausted);
          std::this_thread::yield();
        }
        const auto [text, finish] = collector.wait();
        EXPECT_EQ(text, expected({t, i}, 5 + i));
        EXPECT_EQ(finish, FinishReason::kLength);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_TRUE(loop->wait_idle(10));
  EXPECT_EQ(metrics_.generation_tokens.value(), 8 * (10 * 5 + 45));
  EXPECT_EQ(metrics_.prompt_tokens.value(), 8 * 10 * 2);
  EXPECT_EQ(metrics_.requests_finished("length").value(), 80);
}

// Given as many requests as may run and wait; expects another one to be refused before any work, and room again once some have
// ended.
TEST_F(Loop, FullIsRefused) {
  const auto [loop, gate] = make();
  std::vector<Collector> collectors(7);
  for (std::size_t i = 0; i < 6; ++i) ASSERT_TRUE(loop->submit(greedy({1}, 2), collectors[i].sink()).ok());
  const auto refused = loop->submit(greedy({1}, 2), collectors[6].sink());
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kResourceExhausted);
  EXPECT_THAT(refused.error().message,
              HasSubstr("this worker is full: 6 requests in flight (at most 2 running and 4 waiting)"));
  gate->allow(1 << 20);
  for (std::size_t i = 0; i < 6; ++i) EXPECT_EQ(collectors[i].wait().second, FinishReason::kLength);
  ASSERT_TRUE(loop->wait_idle(10));
  ASSERT_TRUE(loop->submit(greedy({1}, 2), collectors[6].sink()).ok());
  EXPECT_EQ(collectors[6].wait().second, FinishReason::kLength);
}

// Given a drain with a request in flight; expects new ones to be refused and that one to finish normally.
TEST_F(Loop, DrainFinishesWhatIsInFlight) {
  const auto [loop, gate] = make();
  Collector running;
  ASSERT_TRUE(loop->submit(greedy({5}, 8), running.sink()).ok());
  gate->allow(1);
  loop->drain();
  EXPECT_TRUE(loop->draining());
  Collector late;
  const auto refused = loop->submit(greedy({5}, 8), late.sink());
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kFailedPrecondition);
  EXPECT_FALSE(loop->wait_idle(0));
  gate->allow(100);
  const auto [text, finish] = running.wait();
  EXPECT_EQ(text, expected({5}, 8));
  EXPECT_EQ(finish, FinishReason::kLength);
  EXPECT_TRUE(loop->wait_idle(10));
}

// Given a cancelled request; expects its sink to receive the end, its place to be free, and the others to go on.
TEST_F(Loop, CancelEndsOneRequest) {
  const auto [loop, gate] = make();
  Collector first;
  Collector second;
  const auto id = loop->submit(greedy({5}, 200), first.sink());
  ASSERT_TRUE(id.ok());
  ASSERT_TRUE(loop->submit(greedy({6}, 20), second.sink()).ok());
  gate->allow(3);
  loop->cancel(*id, "the client left");
  loop->cancel(12345, "nobody");
  gate->allow(1000);
  EXPECT_EQ(first.wait().second, FinishReason::kCancelled);
  EXPECT_EQ(second.wait().first, expected({6}, 20));
  EXPECT_EQ(metrics_.requests_finished("abort").value(), 1);
}

// Given a loop that is destroyed with requests in flight; expects every sink to receive an end.
TEST_F(Loop, DestructionEndsEverything) {
  Collector running;
  Collector waiting;
  {
    const auto [loop, gate] = make();
    ASSERT_TRUE(loop->submit(greedy({5}, 200), running.sink()).ok());
    ASSERT_TRUE(loop->submit(greedy({5}, 200), waiting.sink()).ok());
    gate->allow(5);
    loop->cancel_all("test");
    gate->allow(1000);
  }
  EXPECT_EQ(running.wait().second, FinishReason::kCancelled);
  EXPECT_EQ(waiting.wait().second, FinishReason::kCancelled);
}

// Given a sink that blocks; expects the engine to go on with its steps. Later the sink receives all tokens in order, and may
// cancel another request meanwhile.
TEST_F(Loop, BlockedSinksDoNotDelaySteps) {
  std::promise<void> go;
  const std::shared_future<void> released = go.get_future().share();
  Collector slow, other;
  const auto tell = slow.sink();
  const auto [loop, gate] = make();  // destroyed before what its sinks use
  const auto other_id = loop->submit(greedy({7}, 200), other.sink());
  ASSERT_TRUE(other_id.ok());
  const auto taken = loop->submit(greedy({5}, 30), [&, &to = *loop, &opens = *gate](const TokenEvent& event) {
    if (event.generated_tokens == 1) {
      released.wait();
      to.cancel(*other_id, "test");
      opens.allow(1000);  // only now: otherwise the other request would have finished
    }
    tell(event);
  });
  ASSERT_TRUE(taken.ok());
  gate->allow(20);
  EXPECT_TRUE(gate->all_begun());
  go.set_value();
  EXPECT_EQ(slow.wait().first, expected({5}, 30));
  EXPECT_EQ(other.wait().second, FinishReason::kCancelled);
}

// Given 64 requests and a sink that blocks; expects the engine to run until the event queue is full, and one step further, and
// the same again after the first events are delivered. In the end every request has all of its text.
TEST_F(Loop, EngineWaitsWhenItsEventQueueIsFull) {
  constexpr std::int64_t kRequests = 64, kTokens = 200;
  constexpr auto kSteps = static_cast<std::int64_t>(EngineLoop::kMaxUntold) / kRequests;  // number of steps that fill the queue
  EngineOptions options;
  options.max_running = kRequests;
  options.max_context_tokens = 256;
  auto gated = std::make_unique<GatedBackend>(std::make_unique<HashBackend>(97, 1024, options.max_batch_tokens));
  GatedBackend& gate = *gated;
  std::vector<std::string> texts(kRequests);
  std::promise<void> heard_first;
  std::int64_t heard = 0;
  const auto hear = [&](std::int64_t request, const TokenEvent& event) {
    if (++heard == 1) heard_first.set_value();
    // Blocks twice: at the first step's events, and when the queue is full.
    const bool first = heard <= kRequests;
    if (first || heard <= (kSteps + 1) * kRequests) {
      const std::int64_t most = first ? kSteps + 2 : 2 * kSteps + 2;
      const bool begins = heard == 1 || heard == kRequests + 1;
      EXPECT_EQ(gate.begun(most), most) << "event " << heard;
      // An engine that does not wait would begin another step soon.
      EXPECT_EQ(gate.begun(most + 1, std::chrono::milliseconds(begins ? 100 : 0)), most) << "event " << heard;
    }
    texts[static_cast<std::size_t>(request)] += event.text;
  };
  {
    EngineLoop loop(options, std::move(gated), letter, clock_, metrics_);
    std::vector<std::pair<GenerationRequest, EngineLoop::Sink>> requests;
    for (std::int64_t i = 0; i < kRequests; ++i) {
      requests.emplace_back(greedy({static_cast<std::int32_t>(i)}, kTokens),
                            [&hear, i](const TokenEvent& event) { hear(i, event); });
    }
    ASSERT_TRUE(loop.submit_all(std::move(requests)).ok());
    gate.allow(1);
    heard_first.get_future().wait();
    gate.allow(1 << 20);
    EXPECT_TRUE(loop.wait_idle(60));
  }
  EXPECT_EQ(heard, kRequests * kTokens);
  for (std::int64_t i = 0; i < kRequests; ++i) {
    EXPECT_EQ(texts[static_cast<std::size_t>(i)], expected({static_cast<std::int32_t>(i)}, kTokens)) << "request " << i;
  }
}

// Given a loop that is destroyed while a sink blocks, with undelivered tokens; expects every sink to receive all of them and an
// end before the loop is gone.
TEST_F(Loop, DestructionDeliversPendingEvents) {
  std::promise<void> go;
  const std::shared_future<void> released = go.get_future().share();
  Collector slow, waiting;
  const auto tell = slow.sink();
  auto [loop, gate] = make();
  ASSERT_TRUE(loop->submit(greedy({5}, 200),
                           [&](const TokenEvent& event) {
                             if (event.generated_tokens == 1) released.wait();
                             tell(event);
                           })
                  .ok());
  gate->allow(5);
  EXPECT_TRUE(gate->all_begun());
  ASSERT_TRUE(loop->submit(greedy({6}, 200), waiting.sink()).ok());
  // Loop and gate exist until the sink returns; the thread that releases it acts last and touches neither.
  std::thread releases([&go, &at = *loop, &opens = *gate] {
    while (!at.draining()) std::this_thread::yield();
    opens.allow(1000);
    go.set_value();
  });
  loop.reset();
  releases.join();
  const auto [text, end] = slow.wait();
  EXPECT_EQ(end, FinishReason::kCancelled);
  EXPECT_GE(text.size(), 5U);
  EXPECT_EQ(text, expected({5}, static_cast<std::int64_t>(text.size())));
  EXPECT_EQ(waiting.wait().second, FinishReason::kCancelled);
  EXPECT_EQ(metrics_.requests_running.value() + metrics_.requests_waiting.value() + metrics_.kv_blocks_used.value(), 0);
}

}  // namespace
}  // namespace windlass::worker
