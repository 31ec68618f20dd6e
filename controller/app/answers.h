// Answers questions of the main loop that take seconds, on another thread: what the strategies offer a service, and how fast a
// new worker is.
#pragma once

#include "controller/app/side_thread.h"
#include "controller/kube/http_transport.h"
#include "controller/reconcile/offer_questions.h"
#include "controller/reconcile/probe_questions.h"

namespace windlass::controller {

// Each answers the next question and returns whether there was one.
bool answer_offers(OfferQuestions& questions, const SideThread::Stop& stop);
bool answer_probe(ProbeQuestions& questions, kube::HttpTransport& transport, const SideThread::Stop& stop);

}  // namespace windlass::controller
