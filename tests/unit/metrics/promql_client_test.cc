// Queries to a Prometheus server: the URL, and good and bad answers.
#include "metrics/promql_client.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace windlass::metrics {
namespace {

using testing::HasSubstr;

// Given a server with a path and a query full of special characters; expects a percent-encoded URL with the timeout in
// milliseconds.
TEST(PromqlClient, UrlIsEncoded) {
  EXPECT_EQ(promql_url("http://p:9090/prom/", R"(sum by (m) (rate(a{x="ü"}[5m])))", 1.5),
            "http://p:9090/prom/api/v1/query?query=sum%20by%20%28m%29%20%28rate%28a%7Bx%3D%22%C3%BC%22%7D%5B5m%5D%29%29"
            "&timeout=1500ms");
}

// Given a label value with quotes, a backslash and a line feed; expects it not to end its matcher.
TEST(PromqlClient, LabelValuesAreEscaped) { EXPECT_EQ(promql_escape("a\"b\\c\nd"), R"(a\"b\\c\nd)"); }

// Given a vector of three samples, one of them NaN and one infinite; expects each with its labels and time.
TEST(PromqlClient, AVector) {
  const auto read = read_promql_answer(200, R"({"status":"success","data":{"resultType":"vector","result":[
    {"metric":{"model":"a","__name__":"x"},"value":[1700000000.5,"3.25"]},
    {"metric":{"model":"b"},"value":[1700000000.5,"NaN"]},
    {"metric":{},"value":[1700000000.5,"+Inf"]}]}})");
  ASSERT_TRUE(read.ok()) << read.error().message;
  ASSERT_EQ(read->size(), 3U);
  EXPECT_EQ((*read)[0], (PromqlSample{{{"model", "a"}, {"__name__", "x"}}, 3.25, 1700000000.5}));
  EXPECT_TRUE(std::isnan((*read)[1].value));
  EXPECT_TRUE(std::isinf((*read)[2].value));
}

// Given a scalar, and a vector without matches; expects one sample without labels, and none.
TEST(PromqlClient, AScalarAndNothing) {
  const auto scalar = read_promql_answer(200, R"({"status":"success","data":{"resultType":"scalar","result":[5,"0.5"]}})");
  ASSERT_TRUE(scalar.ok());
  EXPECT_EQ(*scalar, (std::vector<PromqlSample>{{{}, 0.5, 5}}));
  const auto none = read_promql_answer(200, R"({"status":"success","data":{"resultType":"vector","result":[]}})");
  ASSERT_TRUE(none.ok());
  EXPECT_TRUE(none->empty());
}

// Given answers without a result: a refused query, a rejected token, a proxy's page, a range, a value that is not a number;
// expects the right kind of error with the server's text.
TEST(PromqlClient, ErrorsAreValues) {
  const struct {
    int status;
    const char* body;
    ErrorCode code;
    const char* words;
  } kCases[] = {
      {400, R"({"status":"error","errorType":"bad_data","error":"parse error: x"})", ErrorCode::kInvalidArgument,
       "parse error"},
      {503, R"({"status":"error","errorType":"timeout","error":"query timed out"})", ErrorCode::kUnavailable, "timed out"},
      {401, "no", ErrorCode::kPermissionDenied, "401"},
      {403, R"({"status":"success"})", ErrorCode::kPermissionDenied, "403"},
      {502, "<html>Bad Gateway</html>", ErrorCode::kUnavailable, "Bad Gateway"},
      {200, "", ErrorCode::kUnavailable, "answer: must be JSON"},
      {200, R"({"status":"success"})", ErrorCode::kUnavailable, "data.result"},
      {200, R"({"status":"success","data":{"resultType":"matrix","result":[]}})", ErrorCode::kInvalidArgument, "matrix"},
      {200, R"({"status":"success","data":{"resultType":"scalar","result":[5,"five"]}})", ErrorCode::kUnavailable, "five"},
      {200, R"({"status":"success","data":{"resultType":"scalar","result":5}})", ErrorCode::kUnavailable, "value: must be"},
      {200, R"({"status":"success","data":{"resultType":"vector","result":[{"metric":{},"histogram":[5,{}]}]}})",
       ErrorCode::kUnavailable, "histogram"},
      {200, R"({"status":"success","data":{"resultType":"vector","result":[{"metric":{"a":1},"value":[5,"1"]}]}})",
       ErrorCode::kUnavailable, "label"},
      // Thanos's warning when one of its stores did not answer, and VictoriaMetrics's flag: a part must not pass as the whole.
      {200, R"({"status":"success","warnings":["store 10.0.0.7 is gone"],"data":{"resultType":"vector","result":[]}})",
       ErrorCode::kUnavailable, "store 10.0.0.7 is gone"},
      {200, R"({"status":"success","isPartial":true,"data":{"resultType":"vector","result":[]}})", ErrorCode::kUnavailable,
       "must be complete"},
  };
  for (const auto& one : kCases) {
    const auto read = read_promql_answer(one.status, one.body);
    ASSERT_FALSE(read.ok()) << one.body;
    EXPECT_EQ(read.error().code, one.code) << one.body;
    EXPECT_THAT(read.error().message, HasSubstr(one.words)) << one.body;
  }
}

}  // namespace
}  // namespace windlass::metrics
