// What the gateway reads of a request, and the bodies that it writes itself.
#include "gateway/openai.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace windlass::gateway {
namespace {

using Json = nlohmann::json;
using ::testing::HasSubstr;

// Given good requests; model and stream are read, and a streamed one asks for usage without losing anything else.
TEST(InspectRequest, GoodOnes) {
  auto plain = inspect_request(R"({"model":"tiny","prompt":"hi","seed":12345678901234567890})");
  ASSERT_EQ(plain.problem.message, "");
  EXPECT_EQ(plain.head.model, "tiny");
  EXPECT_FALSE(plain.head.stream);
  EXPECT_EQ(plain.head.upstream_body, R"({"model":"tiny","prompt":"hi","seed":12345678901234567890})");

  for (
      const char* body :
      {R"( { "messages":[{"role":"user","content":"{\"model\":1}"}],"model":"t\u0069ny","stream":true})",
       R"({"model":"tiny","messages":[{"role":"user","content":"{\"model\":1}"}],"stream":true,"stream_options":null})",
       R"({"model":"tiny","messages":[{"role":"user","content":"{\"model\":1}"}],"stream":true,"stream_options":{"include_usage":false}})",
       R"({"model":"tiny","messages":[{"role":"user","content":"{\"model\":1}"}],"stream":true,"stream_options":{"x":{"include_usage":3}}})"}) {
    auto streamed = inspect_request(body);
    ASSERT_EQ(streamed.problem.message, "") << body;
    EXPECT_EQ(streamed.head.model, "tiny");
    EXPECT_TRUE(streamed.head.stream);
    EXPECT_FALSE(streamed.head.include_usage);
    const Json sent = Json::parse(streamed.head.upstream_body);
    EXPECT_EQ(sent["stream_options"]["include_usage"], true) << body;
    EXPECT_EQ(sent["messages"], Json::parse(body)["messages"]);
    EXPECT_EQ(sent["stream"], true);
  }

  auto asked = inspect_request(R"({"model":"tiny","stream":true,"stream_options":{"include_usage":true}})");
  EXPECT_TRUE(asked.head.include_usage);
  EXPECT_EQ(asked.head.upstream_body, R"({"model":"tiny","stream":true,"stream_options":{"include_usage":true}})");
}

// Given bad bodies; the message names the field, what was found and what is allowed.
TEST(InspectRequest, BadOnes) {
  const std::vector<std::tuple<std::string, std::string, std::string>> cases = {
      {"", "found nothing, allowed is a JSON object", ""},
      {"{", "not JSON at byte", ""},
      {"{\"model\":\"a\"} x", "not JSON at byte", ""},
      {"{\"model\":\"\xff\"}", "not JSON at byte", ""},
      {"[1]", "found a list, allowed is a JSON object", ""},
      {"\"x\"", "found a string, allowed is a JSON object", ""},
      {"{}", "'model': found nothing", "model"},
      {R"({"model":3})", "'model': found a number", "model"},
      {R"({"model":null})", "'model': found null", "model"},
      {R"({"model":""})", "'model': found an empty string", "model"},
      {R"({"model":["a"]})", "'model': found a list", "model"},
      {R"({"model":{"model":"a"}})", "'model': found an object", "model"},
      {R"([{"model":"a"}])", "found a list", ""},
      {R"({"x":{"model":"a"}})", "'model': found nothing", "model"},
      {R"({"model":"a","stream":"yes"})", "'stream': found a string, allowed are true, false and null", "stream"},
      {R"({"model":"a","stream":true,"stream_options":7})", "'stream_options': found a number", "stream_options"},
      {R"({"model":"a","stream_options":{}})", "unless 'stream' is true", "stream_options"},
      {R"({"model":"a","stream":true,"stream_options":{"include_usage":1}})", "'stream_options.include_usage': found a number",
       "stream_options.include_usage"},
  };
  for (const auto& [body, message, param] : cases) {
    const auto inspected = inspect_request(body);
    EXPECT_THAT(inspected.problem.message, HasSubstr(message)) << body;
    EXPECT_EQ(inspected.problem.param, param) << body;
  }
}

// Given names of models up to the longest that is read, and one of 16 MB; the latter is refused by its length, and neither the
// head nor the message holds anything of it.
TEST(InspectRequest, LongNames) {
  const auto named = [](std::size_t bytes) {
    return inspect_request(R"({"model":")" + std::string(bytes, 'm') + R"(","messages":[]})");
  };
  EXPECT_EQ(named(kMaxModelBytes).head.model, std::string(kMaxModelBytes, 'm'));
  for (const std::size_t bytes : {kMaxModelBytes + 1, std::size_t{16} << 20U}) {
    const auto refused = named(bytes);
    EXPECT_EQ(refused.problem.message, fmt::format("'model': found a name of {} bytes, allowed are at most 256.", bytes));
    EXPECT_EQ(refused.problem.param, "model");
    EXPECT_EQ(refused.head.model, "");
    EXPECT_EQ(refused.head.upstream_body, "");
  }
  EXPECT_EQ(inspect_request(R"({"model":")" + std::string(300, 'm') + R"(","model":"a"})").head.model, "a");
}

// Given numbers of a million digits and keys of a million bytes where no JSON is; the message shows the beginning alone.
TEST(InspectRequest, MessagesAreShort) {
  for (const std::string& body : {R"({"model":"a","seed":)" + std::string(1000000, '9') + "e999999}",
                                  R"({"model":"a",")" + std::string(1000000, 'k') + "\x01\":1}"}) {
    const auto refused = inspect_request(body);
    EXPECT_THAT(refused.problem.message, HasSubstr("The request's body is not JSON at byte 10000"));
    EXPECT_LT(refused.problem.message.size(), 200U);
  }
}

// Given bodies nested a hundred thousand deep, streamed ones that have to be written anew among them; all are refused, whether
// or not they are well-formed, and the stack holds. As deep as tools really go is taken.
TEST(InspectRequest, DeepNesting) {
  for (const char* open : {"[", "{\"a\":"}) {
    std::string deep, end;
    for (int i = 0; i < 100000; ++i) {
      deep += open;
      end += *open == '[' ? ']' : '}';
    }
    for (const char* head : {R"({"model":"a","x":)", R"({"model":"a","stream":true,"stream_options":{},"x":)",
                             R"({"model":"a","stream":true,"stream_options":{"x":1},"y":)"}) {
      EXPECT_THAT(inspect_request(head + deep + "1" + end + "}").problem.message, HasSubstr("nested deeper than")) << head;
      EXPECT_THAT(inspect_request(head + deep).problem.message, HasSubstr("nested deeper than")) << head;
    }
  }
  const std::string tools =
      R"({"model":"a","stream":true,"stream_options":{},"tools":)" + std::string(100, '[') + std::string(100, ']') + "}";
  EXPECT_EQ(inspect_request(tools).problem.message, "");
}

// Given members that stand twice; the last one counts, as it does for every worker, and nothing is left of the first.
TEST(InspectRequest, MembersThatStandTwice) {
  const std::vector<std::pair<std::string, std::string>> bad = {
      {R"({"model":"a","stream":true,"stream_options":{},"stream_options":"x"})", "'stream_options': found a string"},
      {R"({"model":"a","stream":true,"stream_options":{},"stream_options":[]})", "'stream_options': found a list"},
      {R"({"model":"a","model":5})", "'model': found a number"},
      {R"({"model":"a","model":{}})", "'model': found an object"},
      {R"({"model":"a","stream":true,"stream":"x"})", "'stream': found a string"},
      {R"({"model":"a","stream":true,"stream_options":{"include_usage":true,"include_usage":1}})",
       "'stream_options.include_usage': found a number"},
  };
  for (const auto& [body, message] : bad) EXPECT_THAT(inspect_request(body).problem.message, HasSubstr(message)) << body;
  EXPECT_EQ(inspect_request(R"({"model":"a","model":"b"})").head.model, "b");
  const auto again =
      inspect_request(R"({"model":"a","stream":true,"stream_options":{"include_usage":true},"stream_options":null})");
  ASSERT_EQ(again.problem.message, "");
  EXPECT_FALSE(again.head.include_usage);
  EXPECT_EQ(Json::parse(again.head.upstream_body)["stream_options"]["include_usage"], true);
}

// Given options anywhere in a body, under an escaped name or beside members that look like them; they ask for usage and every
// other byte of the body is as it was.
TEST(InspectRequest, OnlyTheOptionsAreWritten) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({"model":"a", "stream":true,"n" : 1.50,"stream_options" : {"x":[{}]} ,"t":"}{"})",
       R"({"model":"a", "stream":true,"n" : 1.50,"stream_options" :{"include_usage":true,"x":[{}]},"t":"}{"})"},
      {R"({"stream_options":{"include_usage":false},"x":{"stream_options":{"y":"\"stream_options\":{}"}},"model":"a","stream":true})",
       R"({"stream_options":{"include_usage":true},"x":{"stream_options":{"y":"\"stream_options\":{}"}},"model":"a","stream":true})"},
      {R"({"model":"a","stream":true,"stream\u005foptions":{}})",
       R"({"model":"a","stream":true,"stream\u005foptions":{"include_usage":true}})"},
      {R"({"model":"a","stream_options":{"x":1},"stream":true,"stream_options":{"z":"\\"}})",
       R"({"model":"a","stream_options":{"x":1},"stream":true,"stream_options":{"include_usage":true,"z":"\\"}})"},
      {R"({"model":"a","stream":true,"s":["stream_options",{"stream_options":2}],"stream_options":null})",
       R"({"model":"a","stream":true,"s":["stream_options",{"stream_options":2}],"stream_options":{"include_usage":true}})"},
  };
  for (const auto& [body, sent] : cases) {
    const auto inspected = inspect_request(body);
    EXPECT_EQ(inspected.problem.message, "") << body;
    EXPECT_EQ(inspected.head.upstream_body, sent);
  }
  const std::string large = R"({"model":"a","stream":true,"stream_options":{"x":")" + std::string(4096, 'x') + R"("}})";
  EXPECT_THAT(inspect_request(large).problem.message, HasSubstr("'stream_options': found more than the 4096 bytes"));
}

// Given a body with a zero byte behind its object, where nlohmann stops reading; it is refused, and nothing behind it is read.
TEST(InspectRequest, AZeroByteIsNoEnd) {
  std::string body = R"({"model":"a","stream":true,"stream_options":{}})";
  EXPECT_EQ(inspect_request(body).problem.message, "");
  body += std::string(3, '\0') + R"("{)";
  EXPECT_THAT(inspect_request(body).problem.message, HasSubstr("not JSON at byte 48: found a zero byte"));
}

// Given errors; the body is OpenAI's shape, with null where nothing is known, and bytes that are not UTF-8 do no harm.
TEST(Errors, Bodies) {
  const Json error = Json::parse(error_body(400, "'model': bad \xff", "bad_request", "model"))["error"];
  EXPECT_EQ(error["type"], "invalid_request_error");
  EXPECT_EQ(error["param"], "model");
  EXPECT_EQ(error["code"], "bad_request");
  EXPECT_TRUE(Json::parse(error_body(502, "x", "y"))["error"]["param"].is_null());
  EXPECT_EQ(Json::parse(error_body(429, "x", "y"))["error"]["type"], "rate_limit_error");
  const std::string event = error_event(502, "broken", "stream_broken");
  EXPECT_THAT(event, ::testing::StartsWith("data: {"));
  EXPECT_THAT(event, ::testing::EndsWith("\n\n"));
}

// Given a table; /v1/models lists its models in OpenAI's shape.
TEST(Models, FromTheTable) {
  dispatch::RoutingTable table;
  table.models.resize(2);
  table.models[0].served_name = "big/model";
  table.models[0].max_context_tokens = 4096;
  table.models[1].served_name = "tiny";
  const Json list = Json::parse(model_list(table, [](const std::string&) { return true; }));
  EXPECT_EQ(list["object"], "list");
  EXPECT_EQ(list["data"][0]["id"], "big/model");
  EXPECT_EQ(list["data"][0]["max_model_len"], 4096);
  EXPECT_EQ(list["data"][1]["object"], "model");
  EXPECT_EQ(Json::parse(model_object(table, "tiny"))["id"], "tiny");
  EXPECT_EQ(model_object(table, "other"), "");
}

}  // namespace
}  // namespace windlass::gateway
