// Handles the requests of a simulation run: their arrival and their assignment to workers. See serving_run.h.
#include <algorithm>
#include <cassert>

#include "planner/dispatch/mixed_pool.h"
#include "planner/sim/event_time.h"
#include "planner/sim/length_prediction.h"
#include "planner/sim/serving_run.h"

namespace windlass::sim {

WorkerChooser::Choice ServingRun::route(const LiveRequest& of, WorkerChooser& own, WorkerChooser& other, std::int64_t tokens) {
  const ServiceState& in = service(of.service);
  const auto admits = [&](const ServingWorker& w) { return w.can_hold(of.input, of.output); };
  const auto threshold = in.options->dispatch.mixed_pool_threshold_tokens;
  const dispatch::RequestLengths lengths = lengths_of(of);
  const double now_s = seconds_between(0, now_ns_);
  if (!threshold || other.empty()) return own.choose(workers_, lengths, now_s, !in.two_roles, admits);
  const auto pool = [&](WorkerChooser& chooser) { return RolePool{chooser, workers_, lengths, now_s}; };
  return {dispatch::machine_by_queue(pool(own), pool(other), tokens, *threshold, admits), false};
}

int ServingRun::least_memory(const LiveRequest& of) {
  ServiceState& in = service(of.service);
  const auto admits = [&](const ServingWorker& w) { return w.can_hold(of.input, of.output); };
  const auto pool = [&](WorkerChooser& chooser) { return RolePool{chooser, workers_}; };
  const bool mixed_pool = in.options->dispatch.mixed_pool_threshold_tokens.has_value();
  return dispatch::machine_by_memory(pool(in.second), pool(in.first), std::int64_t{of.input} + of.output, mixed_pool, admits);
}

int ServingRun::partner_of(int prefill) const {
  const auto of = partners_.find(prefill);
  return of == partners_.end() ? -1 : of->second;
}

int ServingRun::choose_decode(int request) {
  const LiveRequest& of = live(request);
  ServiceState& in = service(of.service);
  switch (in.options->dispatch.decode_choice) {
    case dispatch::DecodeChoice::kAtArrival: return route(of, in.second, in.first, 1).worker;
    case dispatch::DecodeChoice::kLeastMemory: return least_memory(of);
    case dispatch::DecodeChoice::kPartner: {
      const int partner = partner_of(of.prefill_worker);
      const bool takes = partner >= 0 && worker(partner).takes_requests() && worker(partner).can_hold(of.input, of.output);
      return takes ? partner : route(of, in.second, in.first, 1).worker;
    }
    case dispatch::DecodeChoice::kPairs: {
      const PairedWorkers chosen = choose_pair(of);
      if (chosen.pair >= 0) live(request).pair = chosen.pair;
      return chosen.decode;
    }
    case dispatch::DecodeChoice::kTwoChoice:
      return two_choice(workers_, in.second.candidates(), spec_of(request), of.heavy, in.choice);
  }
  return -1;
}

ServingRun::PairedWorkers ServingRun::choose_pair(const LiveRequest& of) {
  ServiceState& in = service(of.service);
  const std::vector<PoolPair>& pairs = in.options->pairs;
  const auto holds = [&](const ServingWorker& w) {
    return w.can_hold(of.input, w.role == dispatch::Role::kPrefill ? 1 : of.output);
  };
  // In each pool, the worker with the fewest pending tokens that can hold the request.
  std::vector<int> best(in.options->pools.size(), -1);
  const auto place = [](int index) { return static_cast<std::size_t>(index); };
  for (const WorkerChooser* chooser : {&in.first, &in.second}) {
    for (const int w : chooser->candidates()) {
      int& so_far = best[place(pool_of(worker(w)))];
      if (holds(worker(w)) && (so_far < 0 || worker(w).pending() < worker(so_far).pending())) so_far = w;
    }
  }
  const bool prefilled = of.prefill_worker >= 0;
  if (prefilled) {
    const int own = pool_of(worker(of.prefill_worker));
    for (std::size_t pool = 0; pool < best.size(); ++pool) {
      if (in.options->pools[pool].role == dispatch::Role::kPrefill) best[pool] = -1;
    }
    best[place(own)] = of.prefill_worker;
  }
  const auto turn = in.turns.next(
      [&](std::size_t pair) { return best[place(pairs[pair].prefill)] >= 0 && best[place(pairs[pair].decode)] >= 0; });
  PairedWorkers chosen;
  if (turn) {
    chosen.pair = static_cast<int>(*turn);
    chosen.prefill = best[place(pairs[*turn].prefill)];
    chosen.decode = best[place(pairs[*turn].decode)];
    return chosen;
  }
  std::vector<bool> could(best.size(), false);
  for (const auto& at : workers_) {
    if (at->service == of.service && holds(*at)) could[place(pool_of(*at))] = true;
  }
  chosen.wait = std::any_of(pairs.begin(), pairs.end(),
                            [&](const PoolPair& pair) { return could[place(pair.prefill)] && could[place(pair.decode)]; });
  return chosen;
}

void ServingRun::arrive(const Arrival& arrival) {
  const workload::Request& request = arrival.request;
  assert(request.model >= 0 && request.model < static_cast<int>(services_.size()));
  ServiceState& in = service(request.model);
  ++in.figures.counts.requests;
  in.last_arrival_ns = now_ns_;
  const int number = new_live();
  LiveRequest& of = live(number);
  of.number = arrived_total_++;
  of.arrival_ns = now_ns_;
  of.service = request.model;
  of.input = request.input_tokens;
  of.output = request.output_tokens;
  of.prefix = request.prefix;
  of.prefix_tokens = request.prefix_tokens;
  of.stage = RequestStage::kQueued;
  predict(of);
  ++in_system_;
  if (!in.queue.empty() || !dispatch(number)) wait(number);
}

void ServingRun::wait(int request) {
  const LiveRequest& of = live(request);
  ServiceState& in = service(of.service);
  in.queue.join(static_cast<std::uint64_t>(of.number), static_cast<std::uint64_t>(request),
                seconds_between(0, of.arrival_ns) + in.ttft_objective_s());
}

void ServingRun::predict(LiveRequest& of) {
  ServiceState& in = service(of.service);
  int expected = of.output;
  if (const auto& prediction = in.options->dispatch.prediction) {
    const PredictedLength predicted = predict_length(*prediction, of.output, in.prediction);
    of.predicted = predicted.at_least;
    expected = predicted.middle;
  }
  of.heavy = expected > in.options->dispatch.heavy_decode_tokens;
}

bool ServingRun::dispatch(int request) {
  LiveRequest& of = live(request);
  ServiceState& in = service(of.service);
  if (in.first.empty() || (in.two_roles && in.second.empty())) return false;
  const auto holds = [&](const ServingWorker& w) { return w.can_hold(of.input, of.output); };
  WorkerChooser::Choice prefill, decode;
  bool decode_later = false;
  if (in.options->dispatch.decode_choice == dispatch::DecodeChoice::kPairs) {
    const PairedWorkers chosen = choose_pair(of);
    if (chosen.wait) return false;
    of.pair = chosen.pair;
    prefill.worker = chosen.prefill;
    decode.worker = of.output == 1 ? chosen.prefill : chosen.decode;  // a single token needs no decode worker
  } else if (in.two_roles) {
    prefill = route(of, in.first, in.second, of.input);
    of.prefill_worker = prefill.worker;
    if (of.output == 1) {  // a single token needs no decode worker
      decode = prefill;
    } else if (in.options->dispatch.decode_choice == dispatch::DecodeChoice::kTwoChoice) {
      decode_later = in.second.any(workers_, holds);
    } else {
      decode.worker = choose_decode(request);
    }
  } else {
    prefill = decode = in.first.choose(workers_, lengths_of(of), seconds_between(0, now_ns_), true, holds);
    if (prefill.wait) return false;
  }
  if (prefill.worker < 0 || (decode.worker < 0 && !decode_later)) {
    refuse(request);
    return true;
  }
  of.stage = RequestStage::kPrefill;
  of.prefill_worker = prefill.worker;
  of.dispatched_ns = now_ns_;
  ServingWorker& at = worker(prefill.worker);
  ++at.prompts;
  if (in.two_roles) {
    in.first.changed(prefill.worker, 1);
    in.first.placed(prefill.worker, lengths_of(of));
  }
  if (decode.worker >= 0) join_decode_worker(request, decode.worker);
  of.lane = at.lane_for_prompt();
  SequenceSpec spec = spec_of(request);
  spec.hand_over = prefill.worker != decode.worker;
  const SimulatedEngine::Sequence sequence = engine(prefill.worker, of.lane).enqueue(spec);
  at.count_waiting();
  if (spec.hand_over) {
    of.held = sequence;
    at.promised_tokens += of.input;
  }
  start(prefill.worker);
  return true;
}

dispatch::RequestLengths ServingRun::lengths_of(const LiveRequest& of) {
  const ServingService& options = *service(of.service).options;
  const int known = options.dispatch.learns_lengths ? 0 : of.output;
  return {static_cast<std::uint64_t>(of.number), of.input, options.dispatch.prediction ? of.predicted : known};
}

SequenceSpec ServingRun::spec_of(int request) {
  const LiveRequest& of = live(request);
  SequenceSpec spec;
  spec.request = request;
  spec.prompt_tokens = of.input;
  spec.output_tokens = of.output;
  spec.predicted_output_tokens = of.predicted;
  spec.prefix = of.prefix;
  spec.prefix_tokens = of.prefix_tokens;
  return spec;
}

void ServingRun::serve_queue(int s) {
  ServiceState& in = service(s);
  while (const auto next = in.queue.next(seconds_between(0, now_ns_), in.first_token.margin_s(in.ttft_objective_s()))) {
    if (!dispatch(static_cast<int>(next->id))) return;
    in.queue.take(next->place);
  }
}

void ServingRun::end_unanswered(int request, std::int64_t ServingResult::*count, bool ServedRequest::*what) {
  const LiveRequest& of = live(request);
  ++(service(of.service).figures.counts.*count);
  if (options_.observer != nullptr) {
    ServedRequest ended = described(of);
    ended.*what = true;
    options_.observer->on_request(ended);
  }
  forget(request);
}

ServedRequest ServingRun::described(const LiveRequest& of) {
  ServedRequest request;
  request.number = of.number;
  request.service = of.service;
  request.arrival_s = seconds_between(0, of.arrival_ns);
  request.input_tokens = of.input;
  request.output_tokens = of.output;
  return request;
}

}  // namespace windlass::sim
