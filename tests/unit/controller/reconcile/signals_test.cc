// Signals, from pages on the wire to the planner's readings: every engine's page, ages, restarts, and broken pages.
#include "controller/reconcile/signals.h"

#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <tuple>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/base/rng.h"
#include "tests/fakes/fake_api_server.h"
#include "tests/unit/metrics/engine_pages.h"

namespace windlass::controller {
namespace {

namespace pages = metrics::pages;

// An installation: gateways and workers whose pages the test sets, and the Signals that read them.
class SignalsTest : public ::testing::Test {
 protected:
  void serve(const std::string& address_and_path, std::string body, int status = 200) {
    wire_->route("http://" + address_and_path, [body = std::move(body), status](const kube::HttpRequest&) {
      return Result<kube::HttpResponse>(kube::HttpResponse{status, {}, body});
    });
  }
  void silence(const std::string& address_and_path) { wire_->unroute("http://" + address_and_path); }

  void gateway(const std::string& id) {
    GatewayPeer peer;
    peer.id = id;
    peer.admin_address = id + ":1";
    targets_.gateways.push_back(peer);
  }
  void gateway_page(const std::string& id, const metrics::Registry& registry) {
    silence(id + ":1/metrics");
    serve(id + ":1/metrics", registry.exposition());
  }
  // As a gateway does once its routing table lists the model.
  static void lists_tiny(const metrics::GatewayMetrics& gateway) {
    gateway.requests_started.with({{"model", "tiny"}}).add(0);
    gateway.queue_length.with({{"model", "tiny"}}).set(0);
  }
  Worker& worker(const std::string& uid, const std::string& engine) {
    Worker one;
    one.uid = uid;
    one.address = uid + ":8000";
    one.ready = true;
    one.service_uid = "of-" + engine;
    targets_.engines[one.service_uid] = engine;
    targets_.workers.push_back(one);
    return targets_.workers.back();
  }
  planner::Demand at(double now_s) {
    signals_.scrape(targets_, now_s);
    return signals_.demand({"tiny", 300, 95}, now_s);
  }
  double scrape_errors(const char* kind) { return metrics_.scrape_errors.with({{"target_kind", kind}}).value(); }

  fakes::FakeApiServer api_{fakes::FakeApiOptions{}};
  std::unique_ptr<fakes::FakeConnection> wire_ = api_.connect("scraper");
  metrics::Registry registry_;
  metrics::ControllerMetrics metrics_{registry_};
  Signals signals_{*wire_, metrics_, SignalOptions{}};
  ScrapeTargets targets_{{}, {}, {{"tiny", 300, 95}}, {}};
};

// Given workers of five engines, each with its own names at its own address; expects each one's load with the time of reading;
// what an engine does not report stays absent.
TEST_F(SignalsTest, ReadsEveryEnginesLoad) {
  worker("vllm", "VLLM");
  worker("sglang", "SGLang");
  worker("trt", "TensorRTLLM");
  worker("llama", "LlamaCpp");
  worker("own", "Windlass");
  serve("vllm:8000/metrics", pages::kVllmTwoEngines);
  serve("sglang:8000/metrics", pages::kSglangOld);
  serve("trt:8000/metrics", R"([{"iter": 1}])");  // trtllm-serve's own JSON
  serve("trt:8000/prometheus/metrics",
        "trtllm_num_requests_running 3\ntrtllm_num_requests_waiting 1\ntrtllm_kv_cache_utilization 0.5\n");
  serve("llama:8000/metrics",
        "llamacpp:requests_processing 2\nllamacpp:requests_deferred 4\nllamacpp:prompt_tokens_seconds -nan\n");
  metrics::Registry own;
  metrics::WorkerMetrics bundle(own, "tiny");
  bundle.requests_running.set(6);
  bundle.kv_cache_usage_ratio.set(0.125);
  serve("own:8000/metrics", own.exposition());
  signals_.scrape(targets_, 100);

  const auto load = [&](const char* uid) {
    return signals_.worker_load(uid) == nullptr ? WorkerLoad{} : *signals_.worker_load(uid);
  };
  EXPECT_EQ(load("vllm").running, (planner::Reading{7, 100}));
  EXPECT_EQ(load("vllm").kv_use, (planner::Reading{0.375, 100}));
  EXPECT_TRUE(load("sglang").running && load("sglang").waiting && load("sglang").kv_use);
  EXPECT_EQ(load("trt").running, (planner::Reading{3, 100}));
  EXPECT_EQ(load("trt").kv_use, (planner::Reading{0.5, 100}));
  EXPECT_EQ(load("llama").requests(), (planner::Reading{6, 100}));
  EXPECT_FALSE(load("llama").kv_use);
  EXPECT_EQ(load("own").running, (planner::Reading{6, 100}));
  EXPECT_EQ(load("own").kv_use, (planner::Reading{0.125, 100}));
  EXPECT_EQ(scrape_errors("worker"), 0);
  EXPECT_EQ(metrics_.broken_series.with({{"engine", "llama.cpp"}}).value(), 1);
}

// Given two gateways whose mixed pool serves requests, the second without the series; expects their number within the last ten
// minutes, and no reading before the first one and after them. A change of the objective's window loses none.
TEST_F(SignalsTest, WhatTheMixedPoolServed) {
  metrics::Registry one, two;
  metrics::GatewayMetrics first(one), second(two);
  for (const auto& [id, registry, page] : {std::tuple{"g1", &one, &first}, std::tuple{"g2", &two, &second}}) {
    gateway(id);
    lists_tiny(*page);
    gateway_page(id, *registry);
  }
  EXPECT_FALSE(at(0).mixed_pool);
  EXPECT_FALSE(at(10).mixed_pool);
  first.mixed_pool_requests.with({{"model", "tiny"}}).add(3);
  gateway_page("g1", one);
  EXPECT_EQ(at(20).mixed_pool, (planner::Reading{3, 20}));
  for (double now_s = 100; now_s < 600; now_s += 100) EXPECT_TRUE(at(now_s).mixed_pool) << now_s;
  EXPECT_FALSE(at(700).mixed_pool);
  first.mixed_pool_requests.with({{"model", "tiny"}}).add(2);
  first.requests_rebalanced.with({{"model", "tiny"}}).add(4);
  gateway_page("g1", one);
  (void)at(710);
  targets_.models[0].window_s = 3600;
  EXPECT_EQ(at(720).mixed_pool, (planner::Reading{2, 720})) << "another objective changes nothing here";
  EXPECT_EQ(at(720).rebalanced, (planner::Reading{4, 720}));
}

// Given a TensorRT-LLM worker of a service that now says vLLM; expects the first page not to be an exposition, and the next
// scrape to find the other address.
TEST_F(SignalsTest, AWorkerIsFoundUnderItsEnginesOtherAddress) {
  worker("trt", "VLLM");
  serve("trt:8000/metrics", R"([{"iter": 1}])");
  serve("trt:8000/prometheus/metrics", "trtllm_num_requests_running 3\n");
  signals_.scrape(targets_, 1);
  EXPECT_EQ(signals_.worker_load("trt"), nullptr);
  signals_.scrape(targets_, 2);
  ASSERT_NE(signals_.worker_load("trt"), nullptr);
  EXPECT_EQ(signals_.worker_load("trt")->running, (planner::Reading{3, 2}));
}

// Given a worker whose queue becomes NaN and which then falls silent; expects earlier readings to stay and age, and a worker
// that never answered to have none: stale and missing are different.
TEST_F(SignalsTest, FreshStaleAndMissingDiffer) {
  worker("a", "VLLM");
  worker("never", "VLLM");
  serve("a:8000/metrics", "vllm:num_requests_running 1\nvllm:num_requests_waiting 2\n");
  signals_.scrape(targets_, 10);
  silence("a:8000/metrics");
  serve("a:8000/metrics", "vllm:num_requests_running 5\nvllm:num_requests_waiting NaN\n");
  signals_.scrape(targets_, 20);
  const WorkerLoad* load = signals_.worker_load("a");
  ASSERT_NE(load, nullptr);
  EXPECT_EQ(load->running, (planner::Reading{5, 20}));
  EXPECT_EQ(load->waiting, (planner::Reading{2, 10}));
  EXPECT_EQ(load->requests(), (planner::Reading{7, 10}));
  silence("a:8000/metrics");
  signals_.scrape(targets_, 90);
  EXPECT_EQ(signals_.worker_load("a")->running, (planner::Reading{5, 20}));
  EXPECT_EQ(signals_.worker_load("never"), nullptr);
  EXPECT_EQ(scrape_errors("worker"), 1 + 1 + 2);
}

// Given two gateways of which one restarts and later one leaves; expects arrivals_total to continue and never to fall.
TEST_F(SignalsTest, ArrivalsSurviveTheGateways) {
  gateway("g1");
  gateway("g2");
  auto one = std::make_unique<metrics::Registry>();
  metrics::Registry two;
  auto gateway_one = std::make_unique<metrics::GatewayMetrics>(*one);
  metrics::GatewayMetrics gateway_two(two);
  lists_tiny(*gateway_one);
  lists_tiny(gateway_two);
  gateway_page("g1", *one);
  gateway_page("g2", two);
  EXPECT_EQ(at(1).arrivals_total, (planner::Reading{0, 1}));
  gateway_one->requests_started.with({{"model", "tiny"}}).add(10);
  gateway_two.requests_started.with({{"model", "tiny"}}).add(5);
  gateway_page("g1", *one);
  gateway_page("g2", two);
  EXPECT_EQ(at(2).arrivals_total, (planner::Reading{15, 2}));

  one = std::make_unique<metrics::Registry>();  // g1 restarts, and has counted three since
  gateway_one = std::make_unique<metrics::GatewayMetrics>(*one);
  lists_tiny(*gateway_one);
  gateway_one->requests_started.with({{"model", "tiny"}}).add(3);
  gateway_page("g1", *one);
  EXPECT_EQ(at(3).arrivals_total, (planner::Reading{18, 3}));

  targets_.gateways.pop_back();  // g2 is scaled away
  EXPECT_EQ(at(4).arrivals_total, (planner::Reading{18, 4}));
  gateway_one->requests_started.with({{"model", "tiny"}}).add(2);
  gateway_page("g1", *one);
  EXPECT_EQ(at(5).arrivals_total, (planner::Reading{20, 5}));
}

// Given two gateways of which one cannot be read from the start; expects no demand instead of half of it. Once both were read
// and one falls silent, the demand is as old as that one's last page.
TEST_F(SignalsTest, HalfTheGatewaysGiveNoDemand) {
  gateway("g1");
  gateway("g2");
  metrics::Registry registry;
  metrics::GatewayMetrics bundle(registry);
  lists_tiny(bundle);
  gateway_page("g1", registry);
  static_cast<void>(at(1));
  EXPECT_FALSE(at(2).arrivals_per_s);
  EXPECT_FALSE(at(2).queued);
  gateway_page("g2", registry);
  static_cast<void>(at(3));
  static_cast<void>(at(4));
  silence("g2:1/metrics");
  const planner::Demand demand = at(60);
  ASSERT_TRUE(demand.queued);
  EXPECT_EQ(demand.queued->at_s, 4);
  ASSERT_TRUE(demand.arrivals_total);
  EXPECT_EQ(demand.arrivals_total->at_s, 4);
  ASSERT_TRUE(demand.arrivals_per_s);  // stale, not missing
  EXPECT_EQ(demand.arrivals_per_s->at_s, 4);
}

// Given a gateway page with a malformed line, then one whose counters are NaN; expects neither to be read as 0: readings keep
// their age.
TEST_F(SignalsTest, ABrokenGatewayPageIsNotZeroLoad) {
  gateway("g1");
  metrics::Registry registry;
  metrics::GatewayMetrics bundle(registry);
  bundle.requests_started.with({{"model", "tiny"}}).add(100);
  bundle.queue_length.with({{"model", "tiny"}}).set(7);
  gateway_page("g1", registry);
  static_cast<void>(at(1));
  static_cast<void>(at(2));
  silence("g1:1/metrics");
  serve("g1:1/metrics", registry.exposition() + "windlass_gateway_queue_length{model=tiny} 0\n");
  planner::Demand demand = at(3);
  EXPECT_EQ(demand.queued, (planner::Reading{7, 2}));
  silence("g1:1/metrics");
  serve("g1:1/metrics",
        "windlass_gateway_requests_started_total{model=\"tiny\"} NaN\nwindlass_gateway_queue_length{model=\"tiny\"} NaN\n"
        "windlass_gateway_requests_in_flight{model=\"tiny\",chain=\"c\"} NaN\n");
  demand = at(4);
  EXPECT_EQ(demand.queued, (planner::Reading{7, 2}));
  ASSERT_TRUE(demand.arrivals_total);
  EXPECT_EQ(demand.arrivals_total->at_s, 2);
  EXPECT_FALSE(signals_.in_flight(targets_.gateways, "c"));  // not a number is not 0: a drain keeps waiting
}

// Given an objective over an hour and ten minutes of misses that then end; expects the last minute's attainment to be 1 a
// minute after that, whatever the hour's is.
TEST_F(SignalsTest, LongWindowsReportTheLastMinuteToo) {
  gateway("g1");
  metrics::Registry registry;
  metrics::GatewayMetrics bundle(registry);
  lists_tiny(bundle);
  targets_.models = {{"tiny", 3600, 95}};
  std::optional<planner::Reading> hour, minute;
  for (int second = 0; second <= 665; ++second) {
    bundle.requests_judged.with({{"model", "tiny"}}).add();
    bundle.requests_attained.with({{"model", "tiny"}}).add(second > 600 ? 1 : 0);
    gateway_page("g1", registry);
    signals_.scrape(targets_, second);
    const planner::Demand demand = signals_.demand(targets_.models[0], second);
    hour = demand.attainment;
    minute = demand.recent_attainment;
  }
  ASSERT_TRUE(hour && minute);
  EXPECT_EQ(minute->value, 1);
  EXPECT_LT(hour->value, 0.2);
}

// Given two gateways with the fine bins of an overload whose client latencies are known; expects the percentile of both
// together to match the client's within 2 %, despite a gateway's restart and one failed page.
TEST_F(SignalsTest, PercentilesMatchTheClients) {
  gateway("g1");
  gateway("g2");
  metrics::LatencyBins one, two;
  const auto show = [&](const std::string& id, const metrics::LatencyBins& bins, double start_s) {
    metrics::Registry registry;
    metrics::GatewayMetrics bundle(registry);
    lists_tiny(bundle);
    bundle.process.start_time.set(start_s);
    bundle.time_to_first_token.with({{"model", "tiny"}}).observe(9);  // a bucket from 5 s to 10 s, which is not used
    gateway_page(id, registry);
    std::string page;
    bins.write(page, metrics::kGatewayTtft, "tiny");
    silence(id + ":1/latencies");
    serve(id + ":1/latencies", page);
  };
  one.observe(100);  // before the first reading: not part of the window
  show("g1", one, 1);
  show("g2", two, 1);
  EXPECT_FALSE(at(1).ttft_s);
  std::vector<double> client;
  for (int i = 0; i < 200; ++i) client.push_back(0.1 + (12.6 - 0.1) * i / 199);
  for (int i = 0; i < 100; ++i) (i % 2 == 0 ? one : two).observe(client[i]);
  show("g1", one, 1);
  show("g2", two, 1);
  static_cast<void>(at(2));
  serve("g2:1/latencies", "", 503);
  static_cast<void>(at(3));
  EXPECT_EQ(scrape_errors("gateway"), 1);
  metrics::LatencyBins restarted;
  for (int i = 100; i < 200; ++i) (i % 2 == 0 ? restarted : two).observe(client[i]);
  show("g1", restarted, 4);
  show("g2", two, 1);
  const planner::Demand demand = at(5);
  ASSERT_TRUE(demand.ttft_s);
  EXPECT_EQ(demand.ttft_s->bound, Bound::kNone);
  EXPECT_NEAR(demand.ttft_s->value / client[189], 1, 0.02);  // the 190th of 200
  EXPECT_EQ(demand.ttft_s->at_s, 5);
}

// Given a gateway of an older version that shows only a histogram; expects its percentiles to be limits, not bucket bounds
// presented as measurements.
TEST_F(SignalsTest, AnOlderGatewaysPercentileIsALimit) {
  gateway("g1");
  serve("g1:1/latencies", "allowed are /metrics, /health and /ready\n", 404);
  const auto page = [&](int fast, int beyond) {
    std::string text =
        "windlass_gateway_requests_started_total{model=\"tiny\"} 1\nwindlass_gateway_queue_length{model=\"tiny\"} 0\n";
    for (const auto& [most, count] : {std::pair{"0.01", fast}, {"+Inf", fast + beyond}}) {
      text +=
          fmt::format("windlass_gateway_time_per_output_token_seconds_bucket{{model=\"tiny\",le=\"{}\"}} {}\n", most, count);
    }
    silence("g1:1/metrics");
    serve("g1:1/metrics", text);
  };
  page(0, 0);
  static_cast<void>(at(1));
  page(100, 0);
  EXPECT_EQ(at(2).tpot_s, (planner::Reading{0.01, 2, Bound::kBelow}));
  page(100, 100);
  EXPECT_EQ(at(3).tpot_s, (planner::Reading{0.01, 3, Bound::kAbove}));
  EXPECT_EQ(scrape_errors("gateway"), 0);
}

// Given 400 seeded corruptions (bytes changed, cut or duplicated) of every recorded page and of a gateway's; expects no crash,
// every reading to be a non-negative number, and the neighbour's intact page to be read each time.
TEST_F(SignalsTest, CorruptPagesDoNotAffectOthers) {
  Rng rng(20261121, "damaged pages");
  worker("a", "VLLM");
  worker("whole", "VLLM");
  gateway("g1");
  serve("whole:8000/metrics", "vllm:num_requests_running 2\n");
  metrics::Registry registry;
  metrics::GatewayMetrics bundle(registry);
  bundle.requests_started.with({{"model", "tiny"}}).add(100);
  bundle.queue_length.with({{"model", "tiny"}}).set(7);
  bundle.time_to_first_token.with({{"model", "tiny"}}).observe(0.5);
  metrics::LatencyBins bins;
  for (const double seconds : {0.1, 0.5, 0.7}) bins.observe(seconds);
  std::string latencies;
  bins.write(latencies, metrics::kGatewayTtft, "tiny");
  metrics::Registry own;
  metrics::WorkerMetrics own_bundle(own, "tiny");
  const std::vector<std::string> originals = {pages::kVllmOldKvName, pages::kVllmTwoEngines, pages::kSglangOld,
                                              pages::kSglangRanks,   pages::kTritonOld,      pages::kLlamaCppNew,
                                              own.exposition()};
  const auto damaged = [&](std::string text) {
    const int count = static_cast<int>(rng.integer(1, 4));
    for (int i = 0; i < count && !text.empty(); ++i) {
      const auto at = static_cast<std::size_t>(rng.integer(0, static_cast<std::int64_t>(text.size()) - 1));
      switch (rng.integer(0, 3)) {
        case 0: text[at] = static_cast<char>(rng.integer(0, 255)); break;
        case 1: text.erase(at, static_cast<std::size_t>(rng.integer(1, 40))); break;
        case 2: text.insert(at, text.substr(at, static_cast<std::size_t>(rng.integer(1, 40)))); break;
        default: text.resize(at); break;
      }
    }
    return text;
  };
  int read = 0;
  for (int round = 1; round <= 400; ++round) {
    SCOPED_TRACE(round);
    for (const char* path : {"a:8000/metrics", "a:8000/prometheus/metrics", "g1:1/metrics", "g1:1/latencies"}) silence(path);
    const std::string page = damaged(originals[static_cast<std::size_t>(rng.integer(0, 6))]);
    serve("a:8000/metrics", page);
    serve("a:8000/prometheus/metrics", page);
    serve("g1:1/metrics", damaged(registry.exposition()));
    serve("g1:1/latencies", damaged(latencies));
    const planner::Demand demand = at(round);
    for (const auto& reading :
         {demand.arrivals_per_s, demand.arrivals_total, demand.queued, demand.attainment, demand.ttft_s}) {
      if (reading) {
        ASSERT_TRUE(std::isfinite(reading->value) && reading->value >= 0) << reading->value;
      }
    }
    if (const WorkerLoad* load = signals_.worker_load("a")) {
      for (const auto& reading : {load->running, load->waiting, load->kv_use}) {
        if (reading) {
          ASSERT_TRUE(std::isfinite(reading->value) && reading->value >= 0) << reading->value;
        }
      }
      read += load->running && load->running->at_s == round ? 1 : 0;
    }
    ASSERT_NE(signals_.worker_load("whole"), nullptr);
    ASSERT_EQ(signals_.worker_load("whole")->running, (planner::Reading{2, 1.0 * round}));
  }
  EXPECT_GT(read, 50);  // corruption elsewhere on the page leaves intact values
}

// Given more workers than one scrape reads, one of which drains and one of which never answers; expects every scrape to read
// the draining one, the others to take turns, and the silent one not to take others' turns.
TEST_F(SignalsTest, VeryManyWorkersAreReadInTurn) {
  SignalOptions options;
  options.max_workers_per_scrape = 2;
  Signals signals(*wire_, metrics_, options);
  constexpr const char* kPage = "windlass_worker_requests_running 1\nwindlass_worker_requests_waiting 0\n";
  for (const char* uid : {"a", "b", "c", "d", "silent", "drains"}) {
    worker(uid, "Windlass");
    if (std::string(uid) != "silent") serve(std::string(uid) + ":8000/metrics", kPage);
  }
  targets_.workers.back().draining_since_s = 1;
  std::map<std::string, int> read;
  for (int i = 1; i <= 10; ++i) {
    signals.scrape(targets_, i);
    for (const Worker& one : targets_.workers) {
      const WorkerLoad* load = signals.worker_load(one.uid);
      if (load != nullptr && load->running && load->running->at_s == i) ++read[one.uid];
    }
  }
  EXPECT_EQ(read["drains"], 10);
  for (const char* uid : {"a", "b", "c", "d"}) EXPECT_GE(read[uid], 3) << uid;
  EXPECT_EQ(read.count("silent"), 0U);
}

}  // namespace
}  // namespace windlass::controller
