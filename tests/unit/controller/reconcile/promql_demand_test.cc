// Demand from Prometheus' answers: their meaning, their age, and failed queries.
// tests/process/controller/reconcile/promql_test.cc queries the real Prometheus.
#include "controller/reconcile/promql_demand.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/fakes/fake_api_server.h"

namespace windlass::controller {
namespace {

using testing::HasSubstr;

std::string decoded(const std::string& url) {
  const std::size_t begin = url.find("query=") + 6, end = url.find('&', begin);
  std::string out;
  for (std::size_t i = begin; i < end; ++i) {
    if (url[i] == '%') {
      out += static_cast<char>(std::stoi(url.substr(i + 1, 2), nullptr, 16));
      i += 2;
    } else {
      out += url[i];
    }
  }
  return out;
}

std::string vector(const std::string& samples) {
  return R"({"status":"success","data":{"resultType":"vector","result":[)" + samples + "]}}";
}
std::string sample(const std::string& labels, const std::string& value) {
  return fmt::format(R"({{"metric":{{{}}},"value":[1000,"{}"]}})", labels, value);
}
std::string of_tiny(const std::string& value) { return vector(sample(R"("model":"tiny")", value)); }

std::string buckets(const std::vector<std::pair<std::string, std::string>>& counts) {
  std::string samples;
  for (const auto& [most, count] : counts)
    samples += (samples.empty() ? "" : ",") + sample(fmt::format(R"("model":"tiny","le":"{}")", most), count);
  return vector(samples);
}

constexpr const char* kRaw = "windlass_gateway_requests_started_total";
constexpr const char* kRate = "sum by (model) (rate(windlass_gateway_requests_started_total";
constexpr const char* kQueue = "sum by (model) (windlass_gateway_queue_length";

// A Prometheus whose answers the test sets by the beginning of the query; other queries match nothing.
class PromqlDemandTest : public ::testing::Test {
 protected:
  PromqlDemandTest() {
    wire_->route("http://prometheus", [this](const kube::HttpRequest& request) -> Result<kube::HttpResponse> {
      asked_.push_back(request);
      const std::string query = decoded(request.url);
      for (const auto& [begin, body] : answers_) {
        if (query.starts_with(begin)) return kube::HttpResponse{status_, {}, body};
      }
      return kube::HttpResponse{status_, {}, vector("")};
    });
  }
  // This many gateways; the first was scraped `age_s` before the query, the others at its time.
  void scraped(double age_s, int gateways = 1) {
    std::string samples;
    for (int i = 0; i < gateways; ++i) {
      const double at_s = i == 0 ? 1000 - age_s : 1000;
      samples += (i > 0 ? "," : "") + sample(fmt::format(R"("instance":"g{}")", i), fmt::format("{}", at_s));
    }
    answers_["timestamp("] = vector(samples);
  }
  planner::Demand at(double now_s, std::size_t gateways = 1) {
    demand_.refresh({query_}, gateways, now_s);
    return demand_.demand(query_);
  }

  fakes::FakeApiServer api_{fakes::FakeApiOptions{}};
  std::unique_ptr<fakes::FakeConnection> wire_ = api_.connect("prometheus");
  metrics::Registry registry_;
  metrics::ControllerMetrics metrics_{registry_};
  PromqlDemand demand_{*wire_, metrics_, [] {
                         PromqlOptions options;
                         options.server = "http://prometheus:9090";
                         options.selector = R"(namespace="llm")";
                         options.credentials = kube::static_token("secret-token");
                         return options;
                       }()};
  ServiceQuery query_{"tiny", 300, 95};
  std::map<std::string, std::string> answers_;
  int status_ = 200;
  std::vector<kube::HttpRequest> asked_;
};

// Given answers to every query, scraped 8 s before; expects each reading to have its value and to be 8 s old, and each query to
// carry the selector and the token.
TEST_F(PromqlDemandTest, ReadsEverySignal) {
  scraped(8);
  answers_[kRaw] = vector(sample(R"("model":"tiny","instance":"g0")", "100"));
  answers_[kRate] = of_tiny("2.5");
  answers_[kQueue] = of_tiny("3");
  answers_["sum by (model) (increase(windlass_gateway_requests_measured_total"] = of_tiny("50");
  answers_["sum by (model) (increase(windlass_gateway_request_prompt_tokens_total"] = of_tiny("100");
  answers_["sum by (model) (increase(windlass_gateway_request_generation_tokens_total"] = of_tiny("8");
  answers_["sum by (model) (increase(windlass_gateway_requests_attained_total"] = of_tiny("0.9");
  // increase() extrapolates, so values are not integers.
  answers_["sum by (model, le) (increase(windlass_gateway_time_to_first_token_seconds_bucket"] =
      buckets({{"0.1", "20.5"}, {"0.2", "49.2"}, {"0.5", "51.25"}, {"+Inf", "51.25"}});
  answers_["sum by (model, le) (increase(windlass_gateway_time_per_output_token_seconds_bucket"] =
      buckets({{"0.1", "0"}, {"+Inf", "0"}});
  const planner::Demand demand = at(500);
  EXPECT_EQ(demand_.problem(), "");
  EXPECT_EQ(demand.arrivals_per_s, (planner::Reading{2.5, 492}));
  EXPECT_EQ(demand.arrivals_total, (planner::Reading{0, 492}));  // earlier requests do not count as our arrivals
  EXPECT_EQ(demand.queued, (planner::Reading{3, 492}));
  EXPECT_EQ(demand.input_tokens, (planner::Reading{100, 492}));
  EXPECT_EQ(demand.output_tokens, (planner::Reading{8, 492}));
  EXPECT_EQ(demand.attainment, (planner::Reading{0.9, 492}));
  EXPECT_EQ(demand.ttft_s, (planner::Reading{0.2, 492, Bound::kBelow}));
  EXPECT_FALSE(demand.tpot_s);
  ASSERT_FALSE(asked_.empty());
  // A mean divides each part by the matching whole.
  for (const auto& [part, whole] : {std::pair{"request_prompt_tokens", "requests_measured"},
                                    {"request_generation_tokens", "requests_measured"},
                                    {"requests_attained", "requests_judged"}}) {
    EXPECT_TRUE(std::any_of(asked_.begin(), asked_.end(), [&](const kube::HttpRequest& request) {
      const std::string query = decoded(request.url);
      return query.starts_with(fmt::format("sum by (model) (increase(windlass_gateway_{}_total", part)) &&
             query.find(fmt::format(" / sum by (model) (increase(windlass_gateway_{}_total", whole)) != std::string::npos;
    })) << part;
  }
  for (const kube::HttpRequest& request : asked_) {
    EXPECT_THAT(decoded(request.url), HasSubstr(R"({namespace="llm"})"));
    EXPECT_EQ(request.headers.at("Authorization"), "Bearer secret-token");
  }
}

// Given buckets in any order, one that is not a number and one that fell by Prometheus' rounding, latencies beyond the last
// bound, and an answer without the +Inf bucket; expects the matching limit for each, and nothing from the last.
TEST_F(PromqlDemandTest, ABucketIsALimit) {
  const std::string query = "sum by (model, le) (increase(windlass_gateway_time_to_first_token_seconds_bucket";
  scraped(0);
  answers_[kRaw] = vector(sample(R"("model":"tiny","instance":"g0")", "100"));
  answers_[query] = buckets({{"+Inf", "10"}, {"0.0001", "9.6000001"}, {"0.0002", "9.6"}, {"x", "1"}, {"0.0005", "NaN"}});
  EXPECT_EQ(at(10).ttft_s, (planner::Reading{0.0001, 10, Bound::kBelow}));
  answers_[query] = buckets({{"1", "9"}, {"500", "9"}, {"+Inf", "10"}});
  EXPECT_EQ(at(20).ttft_s, (planner::Reading{500, 20, Bound::kAbove}));
  answers_[query] = buckets({{"1", "9"}, {"500", "9"}});
  EXPECT_FALSE(at(30).ttft_s);
}

// Given gateways without a series of the model, then with arrivals without a rate yet; expects neither to count as idle.
TEST_F(PromqlDemandTest, NoSeriesIsUnknown) {
  scraped(1);
  EXPECT_FALSE(at(10).arrivals_per_s);
  EXPECT_FALSE(at(10).queued);
  EXPECT_FALSE(at(10).arrivals_total);
  answers_[kRaw] = vector(sample(R"("model":"tiny","instance":"g0")", "5"));
  EXPECT_FALSE(at(20).arrivals_per_s);
  EXPECT_FALSE(at(20).queued);
  EXPECT_EQ(at(20).arrivals_total, (planner::Reading{0, 19}));
}

// Given counters of two gateways of which one restarts and the other ends; expects the total to continue and never to fall.
TEST_F(PromqlDemandTest, TotalsSurviveTheGateways) {
  scraped(0, 2);
  const auto counters = [&](const std::string& one, const std::string& two) {
    std::string samples = sample(R"("model":"tiny","instance":"g0")", one);
    if (!two.empty()) samples += "," + sample(R"("model":"tiny","instance":"g1")", two);
    answers_[kRaw] = vector(samples);
  };
  counters("100", "50");
  EXPECT_EQ(at(0, 2).arrivals_total->value, 0);
  counters("110", "55");
  EXPECT_EQ(at(10, 2).arrivals_total->value, 15);
  counters("4", "55");
  EXPECT_EQ(at(20, 2).arrivals_total->value, 19);
  counters("4", "");
  scraped(0, 1);
  EXPECT_EQ(at(30, 1).arrivals_total->value, 19);
  counters("6", "");
  EXPECT_EQ(at(40, 1).arrivals_total->value, 21);
}

// Given a Prometheus that scrapes one gateway of two, then one that scraped it a minute ago; expects no demand instead of half
// of it, and a reason without the token.
TEST_F(PromqlDemandTest, EveryGatewayMustBeScraped) {
  scraped(1, 1);
  answers_[kQueue] = of_tiny("3");
  EXPECT_FALSE(at(10, 2).queued);
  EXPECT_THAT(demand_.problem(), HasSubstr("must have scraped all 2 gateways in the last 30 s (got 1)"));
  scraped(60, 2);
  EXPECT_FALSE(at(20, 2).queued);
  EXPECT_THAT(demand_.problem(), HasSubstr("all 2 gateways"));
  EXPECT_GE(metrics_.scrape_errors.with({{"target_kind", "prometheus"}}).value(), 2);
}

// Given two scraped gateways, one of which shows nothing of the model yet; expects no demand for it instead of half.
TEST_F(PromqlDemandTest, EveryGatewayMustShowTheModel) {
  scraped(0, 2);
  answers_[kRaw] = vector(sample(R"("model":"tiny","instance":"g0")", "100"));
  answers_[kRate] = of_tiny("2.5");
  answers_[kQueue] = of_tiny("3");
  EXPECT_FALSE(at(10, 2).arrivals_per_s);
  EXPECT_FALSE(at(10, 2).arrivals_total);
  EXPECT_FALSE(at(10, 2).queued);
  EXPECT_EQ(demand_.problem(), "");
  answers_[kRaw] =
      vector(sample(R"("model":"tiny","instance":"g0")", "110") + "," + sample(R"("model":"tiny","instance":"g1")", "0"));
  EXPECT_EQ(at(20, 2).arrivals_per_s, (planner::Reading{2.5, 20}));
  EXPECT_EQ(at(20, 2).arrivals_total, (planner::Reading{10, 20}));
  EXPECT_EQ(at(20, 2).queued, (planner::Reading{3, 20}));
}

// Given rounds that see the same scrape again, with an age that varies with network delay; expects readings' times never to go
// back, because a counter window would start over each time.
TEST_F(PromqlDemandTest, ReadingsNeverGoBackInTime) {
  answers_[kRaw] = vector(sample(R"("model":"tiny","instance":"g0")", "100"));
  answers_[kQueue] = of_tiny("3");
  scraped(3);
  EXPECT_EQ(at(10).arrivals_total->at_s, 7);
  scraped(8.25);
  EXPECT_EQ(at(15).arrivals_total->at_s, 7);
  EXPECT_EQ(at(15).queued->at_s, 7);
  scraped(1);
  EXPECT_EQ(at(20).arrivals_total->at_s, 19);
}

// Given a successful round, then a Prometheus that refuses the token, one that fails and one that is gone; expects the readings
// to stay and age.
TEST_F(PromqlDemandTest, FailedRoundsLeaveReadingsToAge) {
  scraped(0);
  answers_[kRaw] = vector(sample(R"("model":"tiny","instance":"g0")", "5"));
  answers_[kQueue] = of_tiny("3");
  EXPECT_EQ(at(10).queued, (planner::Reading{3, 10}));
  status_ = 401;
  EXPECT_EQ(at(20).queued, (planner::Reading{3, 10}));
  EXPECT_THAT(demand_.problem(), HasSubstr("token"));
  EXPECT_THAT(demand_.problem(), Not(HasSubstr("secret-token")));
  status_ = 200;
  answers_.clear();
  answers_[""] = R"({"status":"error","errorType":"execution","error":"query timed out"})";
  EXPECT_EQ(at(30).queued, (planner::Reading{3, 10}));
  wire_->unroute("http://prometheus");
  EXPECT_EQ(at(40).queued, (planner::Reading{3, 10}));
  EXPECT_NE(demand_.problem(), "");
}

// Given steps every second; expects Prometheus to be queried every five seconds.
TEST_F(PromqlDemandTest, AsksNoMoreOftenThanItsPeriod) {
  scraped(0);
  for (int second = 0; second < 20; ++second) static_cast<void>(at(second));
  const auto presence = std::count_if(asked_.begin(), asked_.end(), [](const kube::HttpRequest& request) {
    return decoded(request.url).starts_with("timestamp(");
  });
  EXPECT_EQ(presence, 4);
}

}  // namespace
}  // namespace windlass::controller
