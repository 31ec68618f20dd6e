// Parsing of requests, and the bodies that the gateway writes itself.
#include "gateway/openai.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace windlass::gateway {
namespace {

using Json = nlohmann::json;
using ::testing::HasSubstr;

// Given good requests; expects model and stream to be read, and a streamed one to ask for usage without losing anything else.
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

// Given bad bodies; expects the field, the rule and the value found in the message.
TEST(InspectRequest, BadOnes) {
  const std::vector<std::tuple<std::string, std::string, std::string>> cases = {
      {"", "must be a JSON object (got nothing)", ""},
      {"{", "must be JSON (got an error at byte", ""},
      {"{\"model\":\"a\"} x", "must be JSON (got an error at byte", ""},
      {"{\"model\":\"\xff\"}", "must be JSON (got an error at byte", ""},
      {"[1]", "must be a JSON object (got a list)", ""},
      {"\"x\"", "must be a JSON object (got a string)", ""},
      {"{}", "'model': must be the name of a model (got nothing)", "model"},
      {R"({"model":3})", "'model': must be the name of a model (got a number)", "model"},
      {R"({"model":null})", "'model': must be the name of a model (got null)", "model"},
      {R"({"model":""})", "'model': must be the name of a model (got an empty string)", "model"},
      {R"({"model":["a"]})", "'model': must be the name of a model (got a list)", "model"},
      {R"({"model":{"model":"a"}})", "'model': must be the name of a model (got an object)", "model"},
      {R"([{"model":"a"}])", "must be a JSON object (got a list)", ""},
      {R"({"x":{"model":"a"}})", "'model': must be the name of a model (got nothing)", "model"},
      {R"({"model":"a","stream":"yes"})", "'stream': must be true, false or null (got a string)", "stream"},
      {R"({"model":"a","stream":true,"stream_options":7})", "'stream_options': must be an object or null (got a number)",
       "stream_options"},
      {R"({"model":"a","stream_options":{}})", "unless 'stream' is true", "stream_options"},
      {R"({"model":"a","stream":true,"stream_options":{"include_usage":1}})",
       "'stream_options.include_usage': must be true or false (got a number)", "stream_options.include_usage"},
  };
  for (const auto& [body, message, param] : cases) {
    const auto inspected = inspect_request(body);
    EXPECT_THAT(inspected.problem.message, HasSubstr(message)) << body;
    EXPECT_EQ(inspected.problem.param, param) << body;
  }
}

// Given model names up to the longest allowed, and one of 16 MB; expects the last to be refused by its length, and no part of
// it in the head or the message.
TEST(InspectRequest, LongNames) {
  const auto named = [](std::size_t bytes) {
    return inspect_request(R"({"model":")" + std::string(bytes, 'm') + R"(","messages":[]})");
  };
  EXPECT_EQ(named(kMaxModelBytes).head.model, std::string(kMaxModelBytes, 'm'));
  for (const std::size_t bytes : {kMaxModelBytes + 1, std::size_t{16} << 20U}) {
    const auto refused = named(bytes);
    EXPECT_EQ(refused.problem.message, fmt::format("'model': must be at most 256 bytes long (got {}).", bytes));
    EXPECT_EQ(refused.problem.param, "model");
    EXPECT_EQ(refused.head.model, "");
    EXPECT_EQ(refused.head.upstream_body, "");
  }
  EXPECT_EQ(inspect_request(R"({"model":")" + std::string(300, 'm') + R"(","model":"a"})").head.model, "a");
}

// Given numbers of a million digits and keys of a million bytes outside JSON; expects the message to show only their beginning.
TEST(InspectRequest, MessagesAreShort) {
  for (const std::string& body : {R"({"model":"a","seed":)" + std::string(1000000, '9') + "e999999}",
                                  R"({"model":"a",")" + std::string(1000000, 'k') + "\x01\":1}"}) {
    const auto refused = inspect_request(body);
    EXPECT_THAT(refused.problem.message, HasSubstr("The request's body must be JSON (got an error at byte 10000"));
    EXPECT_LT(refused.problem.message.size(), 200U);
  }
}

// Given bodies nested a hundred thousand levels deep, well-formed or not, including streamed ones that must be rewritten;
// expects all to be refused without a stack overflow. The depth of real tool schemas is accepted.
TEST(InspectRequest, DeepNesting) {
  for (const char* open : {"[", "{\"a\":"}) {
    std::string deep, end;
    for (int i = 0; i < 100000; ++i) {
      deep += open;
      end += *open == '[' ? ']' : '}';
    }
    for (const char* head : {R"({"model":"a","x":)", R"({"model":"a","stream":true,"stream_options":{},"x":)",
                             R"({"model":"a","stream":true,"stream_options":{"x":1},"y":)"}) {
      EXPECT_THAT(inspect_request(head + deep + "1" + end + "}").problem.message, HasSubstr("nested at most 256 levels deep"))
          << head;
      EXPECT_THAT(inspect_request(head + deep).problem.message, HasSubstr("nested at most 256 levels deep")) << head;
    }
  }
  const std::string tools =
      R"({"model":"a","stream":true,"stream_options":{},"tools":)" + std::string(100, '[') + std::string(100, ']') + "}";
  EXPECT_EQ(inspect_request(tools).problem.message, "");
}

// Given repeated members; expects the last one to count, as in every worker, and nothing to remain of the first.
TEST(InspectRequest, MembersThatStandTwice) {
  const std::vector<std::pair<std::string, std::string>> bad = {
      {R"({"model":"a","stream":true,"stream_options":{},"stream_options":"x"})",
       "'stream_options': must be an object or null (got a string)"},
      {R"({"model":"a","stream":true,"stream_options":{},"stream_options":[]})",
       "'stream_options': must be an object or null (got a list)"},
      {R"({"model":"a","model":5})", "'model': must be the name of a model (got a number)"},
      {R"({"model":"a","model":{}})", "'model': must be the name of a model (got an object)"},
      {R"({"model":"a","stream":true,"stream":"x"})", "'stream': must be true, false or null (got a string)"},
      {R"({"model":"a","stream":true,"stream_options":{"include_usage":true,"include_usage":1}})",
       "'stream_options.include_usage': must be true or false (got a number)"},
  };
  for (const auto& [body, message] : bad) EXPECT_THAT(inspect_request(body).problem.message, HasSubstr(message)) << body;
  EXPECT_EQ(inspect_request(R"({"model":"a","model":"b"})").head.model, "b");
  const auto again =
      inspect_request(R"({"model":"a","stream":true,"stream_options":{"include_usage":true},"stream_options":null})");
  ASSERT_EQ(again.problem.message, "");
  EXPECT_FALSE(again.head.include_usage);
  EXPECT_EQ(Json::parse(again.head.upstream_body)["stream_options"]["include_usage"], true);
}

// Given options anywhere in a body, under an escaped name or next to similar members; expects them to ask for usage, and every
// other byte to be unchanged.
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
  EXPECT_THAT(inspect_request(large).problem.message, HasSubstr("'stream_options': must be at most 4096 bytes long"));
}

// Given a body with a zero byte after its object, where nlohmann stops reading; expects it to be refused.
TEST(InspectRequest, AZeroByteIsNoEnd) {
  std::string body = R"({"model":"a","stream":true,"stream_options":{}})";
  EXPECT_EQ(inspect_request(body).problem.message, "");
  body += std::string(3, '\0') + R"("{)";
  EXPECT_THAT(inspect_request(body).problem.message, HasSubstr("must be JSON (got a zero byte at byte 48)"));
}

// Given errors; expects a body in OpenAI's shape, with null for unknown fields, and no failure for bytes that are not UTF-8.
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

// Given a table; expects /v1/models to list its models in OpenAI's shape.
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
