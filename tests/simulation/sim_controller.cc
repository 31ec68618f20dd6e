// Implements sim_controller.h, wired like controller/app/app.cc.
#include "tests/simulation/sim_controller.h"

#include <algorithm>
#include <tuple>
#include <utility>
#include <variant>

#include <fmt/format.h>

namespace windlass::simulation {
namespace {

constexpr double kTickS = 1;         // the app's default
constexpr double kLeastGapS = 0.02;  // the app's value
constexpr double kApiTimeoutS = 4;

}  // namespace

SimController::SimController(Timeline& timeline, fakes::FakeApiServer& api, Journal& journal, std::string name,
                             std::uint64_t seed, const FaultPlan& faults)
    : timeline_(timeline),
      api_(api),
      journal_(journal),
      name_(std::move(name)),
      faults_(faults),
      random_(seed, "process " + name_),
      troubles_(seed, "troubles of " + name_),
      skew_s_(random_.uniform(0, 5000)) {}

SimController::~SimController() = default;

void SimController::start() {
  // Objects that refer to others are destroyed first.
  core_.reset();
  offers_ = std::make_shared<controller::OfferQuestions>();
  publisher_.reset();
  metrics_.reset();
  registry_.reset();
  runtime_.reset();
  store_.reset();
  leadership_.reset();
  client_.reset();
  started_s_ = timeline_.now_s();
  dies_before_next_write_ = false;
  identity_ = fmt::format("{}_{:08x}", name_, random_.bits() & 0xffffffff);
  journal_.note(timeline_.now_s(), "{} starts as {}", name_, identity_);
  wire_ = api_.connect(name_);
  wire_->drop_request = [this](const kube::HttpRequest& request) {
    before_request(request);
    return false;
  };
  scraper_ = api_.connect(name_ + "-scraper");
  scraper_->route("http://", [this](const kube::HttpRequest& request) { return scrape(request); });
  set_faults(faults_on_);
  partition(partitioned_);
  credentials_ = kube::no_credentials();
  kube::KubeClientOptions client;
  client.wall_clock = [this] { return wall_s(); };
  client.field_manager = "windlass-controller";
  client.timeout_s = kApiTimeoutS;
  client_ = std::make_unique<kube::KubeClient>(*wire_, api_.url(), *credentials_, client);
  kube::LeaseOptions lease;
  lease.name_space = kLeaseNamespace;
  lease.identity = identity_;
  lease.seed = random_.bits();
  leadership_ = std::make_unique<controller::LeaseLeadership>(*client_, lease);
  client_->set_write_gate([this] {
    sent_while_leading_ = leading();
    sent_s_ = timeline_.now_s();
    return sent_while_leading_;
  });
  store_ = std::make_unique<controller::KubernetesStore>(*client_, identity_, random_.bits());
  runtime_ = std::make_unique<controller::KubernetesRuntime>(*client_, controller::PodDefaults{"windlass-worker:test", ""},
                                                             random_.bits());
  registry_ = std::make_unique<metrics::Registry>();
  metrics_ = std::make_unique<metrics::ControllerMetrics>(*registry_);
  publisher_ = std::make_unique<controller::RoutingPublisher>();
  controller::ControllerOptions options;
  options.stopwatch = [this] { return monotonic_s(); };
  options.offers = offers_.get();
  options.on_question = [this] { answer_offers(); };
  core_ =
      std::make_unique<controller::Controller>(*store_, *runtime_, *leadership_, *scraper_, *publisher_, *metrics_, options);
  next_step_s_ = timeline_.now_s();
}

// Stands in for the slow search: split phases with prompts on the first class that exists and answers on the last one; or whole
// workers on the first.
void SimController::answer_offers() {
  timeline_.after(troubles_.uniform(0.2, 5), [this, questions = offers_] {
    while (const auto question = questions->next()) {
      std::vector<std::string> classes;
      for (const planner::AllowedAccelerator& allowed : question->service.accelerators) {
        for (const planner::AcceleratorState& there : question->classes) {
          if (there.spec.name == allowed.accelerator) classes.push_back(allowed.accelerator);
        }
      }
      planner::Offers offers;
      offers.requests_per_s = question->service.workload.requests_per_s;
      offers.complete = true;
      offers.why = "no class has GPUs";
      const bool split = question->service.scaling.strategy == planner::Family::kDisaggregated;
      if (!classes.empty()) {
        planner::Offer offer;
        offer.strategy = "canned";
        offer.requests_per_s = offers.requests_per_s;
        offer.capacity_per_s = 6;
        offer.attainment = offer.cost_per_hour = 1;
        if (split) {
          offer.pools = {{{classes.back(), 1}, dispatch::Role::kDecode, 2, 1, 3},
                         {{classes.front(), 1}, dispatch::Role::kPrefill, 1, 1, 6}};
        } else {
          offer.pools = {{{classes.front(), 1}, dispatch::Role::kUnified, 2, 1, 3, 0, 1.2}};
        }
        offers.confirmed.push_back(offer);
      }
      questions->answer(*question, offers);
    }
  });
}

void SimController::set_faults(bool on) {
  faults_on_ = on;
  wire_->faults = on ? faults_.wire : fakes::FaultRates{};
  scraper_->faults = {};
  if (on) scraper_->faults.drop_before = faults_.wire.drop_before;
}

void SimController::partition(bool on) {
  partitioned_ = on;
  wire_->partitioned = on;
}

void SimController::steady() {
  set_faults(false);
  partition(false);
  paused_until_s_ = 0;
  dies_before_next_write_ = false;
}

TableSource SimController::table_source() const {
  if (!answers() || publisher_ == nullptr) return {};
  return {publisher_.get(), monotonic_s()};
}

void SimController::before_request(const kube::HttpRequest& request) {
  if (!faults_on_ || !busy_ || request.method == "GET") return;
  if (dies_before_next_write_) throw Death{};
  dies_before_next_write_ = troubles_.uniform() < faults_.crash_between_writes;
  if (troubles_.uniform() < faults_.pause_before_write) {
    const double seconds = troubles_.uniform(1, 35);
    journal_.note(timeline_.now_s(), "{} pauses for {:.1f} s before {} {}", name_, seconds, request.method, request.url);
    const auto sent = std::pair(sent_while_leading_, sent_s_);
    timeline_.run_until(timeline_.now_s() + seconds);
    std::tie(sent_while_leading_, sent_s_) = sent;
    journal_.note(timeline_.now_s(), "{} continues", name_);
  }
}

double SimController::due_s() const { return std::max({next_step_s_, paused_until_s_, timeline_.now_s() + kLeastGapS}); }

void SimController::run() {
  const double now_s = timeline_.now_s();
  if (busy_ || now_s < paused_until_s_ || now_s < next_step_s_) return;
  busy_ = true;
  step_began_s_ = now_s;
  try {
    const controller::Outcome outcome = core_->step({wall_s(), monotonic_s()});
    busy_ = false;
    double wait_s = kTickS;
    if (const auto* requeue = std::get_if<controller::RequeueAfter>(&outcome)) wait_s = std::min(wait_s, requeue->seconds);
    if (const auto* terminal = std::get_if<controller::Terminal>(&outcome)) on_violation("loop-survives", terminal->reason);
    const double renew_s = leadership_->next_step_at() - monotonic_s();
    next_step_s_ = timeline_.now_s() + std::max(kLeastGapS, std::clamp(renew_s, 0.0, wait_s));
    if (const auto* retry = std::get_if<controller::Retry>(&outcome))
      journal_.note(timeline_.now_s(), "{} will retry: {}", name_, retry->reason.substr(0, 160));
    after_step(*this);
  } catch (const Death&) {
    busy_ = false;
    journal_.note(timeline_.now_s(), "{} dies between two writes", name_);
    start();
  } catch (const std::exception& error) {
    busy_ = false;
    on_violation("loop-survives", std::string("an exception came out of a step: ") + error.what());
    start();
  }
}

}  // namespace windlass::simulation
