// Registry and instruments: wraps prometheus-cpp so that its headers stay out of all other code.
//
// One Registry per program, created in the composition root and passed by reference; nothing is global. Families create
// instruments: cheap, copyable handles that point into the registry. REQUIRES: a handle does not outlive its Registry and is
// not used after its labels were removed from the family. Instruments and exposition() may be used from any thread.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace prometheus {
class Counter;
class Gauge;
class Histogram;
template <typename T>
class Family;
}  // namespace prometheus

namespace windlass::metrics {

using Labels = std::map<std::string, std::string>;

// Only grows. A negative or NaN amount is ignored.
class Counter {
 public:
  explicit Counter(prometheus::Counter* impl) : impl_(impl) {}
  void add(double amount = 1) const;
  [[nodiscard]] double value() const;

 private:
  prometheus::Counter* impl_;
};

class Gauge {
 public:
  explicit Gauge(prometheus::Gauge* impl) : impl_(impl) {}
  void set(double value) const;
  void add(double amount) const;
  [[nodiscard]] double value() const;

 private:
  prometheus::Gauge* impl_;
};

class Histogram {
 public:
  explicit Histogram(prometheus::Histogram* impl) : impl_(impl) {}
  void observe(double value) const;

 private:
  prometheus::Histogram* impl_;
};

// All series of one metric name. with() finds or creates the series; keep its handle on a hot path, because the lookup takes a
// lock.
class CounterFamily {
 public:
  explicit CounterFamily(prometheus::Family<prometheus::Counter>* impl) : impl_(impl) {}
  [[nodiscard]] Counter with(const Labels& labels) const;
  void remove(const Labels& labels) const;

 private:
  prometheus::Family<prometheus::Counter>* impl_;
};

class GaugeFamily {
 public:
  explicit GaugeFamily(prometheus::Family<prometheus::Gauge>* impl) : impl_(impl) {}
  [[nodiscard]] Gauge with(const Labels& labels) const;
  void remove(const Labels& labels) const;

 private:
  prometheus::Family<prometheus::Gauge>* impl_;
};

class HistogramFamily {
 public:
  HistogramFamily(prometheus::Family<prometheus::Histogram>* impl, std::vector<double> bounds)
      : impl_(impl), bounds_(std::move(bounds)) {}
  [[nodiscard]] Histogram with(const Labels& labels) const;
  void remove(const Labels& labels) const;

 private:
  prometheus::Family<prometheus::Histogram>* impl_;
  std::vector<double> bounds_;
};

class Registry {
 public:
  Registry();
  ~Registry();
  Registry(const Registry&) = delete;
  Registry& operator=(const Registry&) = delete;

  // A name may be registered once; a bad or repeated name is a bug of ours and ends the program.
  [[nodiscard]] CounterFamily counters(const std::string& name, const std::string& help);
  [[nodiscard]] GaugeFamily gauges(const std::string& name, const std::string& help);
  // bounds: upper bounds of the buckets, strictly increasing; +Inf is implied.
  [[nodiscard]] HistogramFamily histograms(const std::string& name, const std::string& help, std::vector<double> bounds);

  // All metrics in Prometheus text format 0.0.4 (kExpositionContentType).
  [[nodiscard]] std::string exposition() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

inline constexpr const char* kExpositionContentType = "text/plain; version=0.0.4; charset=utf-8";

// The same as registry.exposition().
[[nodiscard]] std::string exposition(const Registry& registry);

}  // namespace windlass::metrics
