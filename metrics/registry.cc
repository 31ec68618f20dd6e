// Instruments over prometheus-cpp: the one file that includes its headers.
#include "metrics/registry.h"

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

namespace windlass::metrics {

void Counter::add(double amount) const {
  if (amount > 0) impl_->Increment(amount);
}
double Counter::value() const { return impl_->Value(); }

void Gauge::set(double value) const { impl_->Set(value); }
void Gauge::add(double amount) const { impl_->Increment(amount); }
double Gauge::value() const { return impl_->Value(); }

void Histogram::observe(double value) const { impl_->Observe(value); }

Counter CounterFamily::with(const Labels& labels) const { return Counter(&impl_->Add(labels)); }
// Add() returns the series that is there; making one only to remove it would be harmless too.
void CounterFamily::remove(const Labels& labels) const { impl_->Remove(&impl_->Add(labels)); }

Gauge GaugeFamily::with(const Labels& labels) const { return Gauge(&impl_->Add(labels)); }
void GaugeFamily::remove(const Labels& labels) const { impl_->Remove(&impl_->Add(labels)); }

Histogram HistogramFamily::with(const Labels& labels) const { return Histogram(&impl_->Add(labels, bounds_)); }
void HistogramFamily::remove(const Labels& labels) const { impl_->Remove(&impl_->Add(labels, bounds_)); }

// Throw, not Merge: two owners of one name would silently share a series.
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

std::string Registry::exposition() const { return prometheus::TextSerializer().Serialize(impl_->registry.Collect()); }

std::string exposition(const Registry& registry) { return registry.exposition(); }

}  // namespace windlass::metrics
