// Instruments on top of prometheus-cpp; the only file that includes its headers.
#include "metrics/registry.h"

#include <cmath>
#include <iterator>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

namespace windlass::metrics {
namespace {

// Writes the text format, 0.0.4. The library's own writer is too slow: it uses streams, which take most of the time for a page
// of a thousand models that is scraped every second.
void append_number(std::string& page, double value) {
  if (std::isnan(value)) {
    page += "NaN";
  } else if (std::isinf(value)) {
    page += value < 0 ? "-Inf" : "+Inf";
  } else {
    fmt::format_to(std::back_inserter(page), "{}", value);
  }
}

void append_escaped(std::string& page, std::string_view text, bool quotes) {
  for (const char c : text) {
    if (c == '\n') {
      page += "\\n";
      continue;
    }
    if (c == '\\' || (quotes && c == '"')) page += '\\';
    page += c;
  }
}

// Writes a series up to its value. `bound` is the bound of a histogram's bucket.
void append_series(std::string& page, const std::string& name, const char* suffix, const prometheus::ClientMetric& series,
                   const double* bound = nullptr) {
  page += name;
  page += suffix;
  char before = '{';
  for (const prometheus::ClientMetric::Label& label : series.label) {
    page += std::exchange(before, ',');
    page += label.name;
    page += "=\"";
    append_escaped(page, label.value, true);
    page += '"';
  }
  if (bound != nullptr) {
    page += std::exchange(before, ',');
    page += "le=\"";
    append_number(page, *bound);
    page += '"';
  }
  page += before == '{' ? " " : "} ";
}

void append_line(std::string& page, const std::string& name, const char* suffix, const prometheus::ClientMetric& series,
                 double value, const double* bound = nullptr) {
  append_series(page, name, suffix, series, bound);
  append_number(page, value);
  page += '\n';
}

void append(std::string& page, const prometheus::MetricFamily& family) {
  const bool histogram = family.type == prometheus::MetricType::Histogram;
  const bool counter = family.type == prometheus::MetricType::Counter;
  page += "# HELP " + family.name + ' ';
  append_escaped(page, family.help, false);
  page += "\n# TYPE " + family.name + (histogram ? " histogram\n" : counter ? " counter\n" : " gauge\n");
  for (const prometheus::ClientMetric& series : family.metric) {
    if (!histogram) {
      append_line(page, family.name, "", series, counter ? series.counter.value : series.gauge.value);
      continue;
    }
    append_line(page, family.name, "_count", series, static_cast<double>(series.histogram.sample_count));
    append_line(page, family.name, "_sum", series, series.histogram.sample_sum);
    for (const prometheus::ClientMetric::Bucket& bucket : series.histogram.bucket)
      append_line(page, family.name, "_bucket", series, static_cast<double>(bucket.cumulative_count), &bucket.upper_bound);
  }
}

}  // namespace

void Counter::add(double amount) const {
  if (amount > 0) impl_->Increment(amount);
}
double Counter::value() const { return impl_->Value(); }

void Gauge::set(double value) const { impl_->Set(value); }
void Gauge::add(double amount) const { impl_->Increment(amount); }
double Gauge::value() const { return impl_->Value(); }

void Histogram::observe(double value) const { impl_->Observe(value); }

Counter CounterFamily::with(const Labels& labels) const { return Counter(&impl_->Add(labels)); }
// Add() returns the existing series; creating one just to remove it is harmless.
void CounterFamily::remove(const Labels& labels) const { impl_->Remove(&impl_->Add(labels)); }

Gauge GaugeFamily::with(const Labels& labels) const { return Gauge(&impl_->Add(labels)); }
void GaugeFamily::remove(const Labels& labels) const { impl_->Remove(&impl_->Add(labels)); }

Histogram HistogramFamily::with(const Labels& labels) const { return Histogram(&impl_->Add(labels, bounds_)); }
void HistogramFamily::remove(const Labels& labels) const { impl_->Remove(&impl_->Add(labels, bounds_)); }

// Throw instead of merging: two owners of one name would silently share a series.
struct Registry::Impl {
  prometheus::Registry registry{prometheus::Registry::InsertBehavior::Throw};
};

Registry::Registry() : impl_(std::make_unique<Impl>()) {}
Registry::~Registry() = default;

CounterFamily Registry::counters(const std::string& name, const std::string& help) {
  return CounterFamily(&prometheus::BuildCounter().Name(name).Help(help).Register(impl_->registry));
}

GaugeFamily Registry::gauges(const std::string& name, const std::string& help) {
  return GaugeFamily(&prometheus::BuildGauge().Name(name).Help(help).Register(impl_->registry));
}

HistogramFamily Registry::histograms(const std::string& name, const std::string& help, std::vector<double> bounds) {
  return HistogramFamily(&prometheus::BuildHistogram().Name(name).Help(help).Register(impl_->registry), std::move(bounds));
}

std::string Registry::exposition() const {
  std::string page;
  for (const prometheus::MetricFamily& family : impl_->registry.Collect()) append(page, family);
  return page;
}

std::string exposition(const Registry& registry) { return registry.exposition(); }

}  // namespace windlass::metrics
