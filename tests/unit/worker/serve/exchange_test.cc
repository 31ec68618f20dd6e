// One request's answer over loopback, with an engine played by the test.
#include "worker/serve/exchange.h"

#include <future>

#include <gtest/gtest.h>

#include "tests/http_connection.h"

namespace windlass::worker {
namespace {

TokenEvent token_with_logprobs() {
  TokenEvent event;
  event.has_token = true;
  event.text = "a";
  event.logprobs = TokenLogprobs{{"a", -1, 7}, std::vector<LikelyToken>(20, LikelyToken{"a", -1, 7})};
  return event;
}

// Given a buffered answer that exceeds its limit; expects an error to the client, one cancellation at the engine, and further
// events to be dropped.
TEST(Exchange, EndsAnAnswerThatGrowsTooLong) {
  int cancelled = 0, tokens = 0;
  net::HttpService service(
      net::HttpServer::Options{},
      [&](const net::ServerCall& call) {
        Exchange::Parts parts{.call = call,
                              .format = ResponseFormat(Endpoint::kChatCompletions, "id", "m", 0),
                              .request_id = "",
                              .prefilled = "",
                              .token = nullptr,
                              .max_answer_bytes = 100'000};
        const auto exchange = std::make_shared<Exchange>(std::move(parts));
        exchange->accepted([&] { ++cancelled; });
        while (!exchange->finished() && tokens < 1000) {
          exchange->on_event(0, token_with_logprobs());
          ++tokens;
        }
        TokenEvent last;
        last.finish = FinishReason::kCancelled;
        exchange->on_event(0, last);
      },
      1);
  ASSERT_TRUE(service.open({"127.0.0.1", "0"}).ok());
  const auto answer = test_client::ask(std::stoi(service.bound().port), test_client::get("/"));
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->status(), 400);
  EXPECT_NE(answer->body.find("the answer is larger than 100000 bytes"), std::string::npos) << answer->body;
  service.close(0);
  EXPECT_EQ(cancelled, 1);
  EXPECT_LT(tokens, 100);
}

}  // namespace
}  // namespace windlass::worker
