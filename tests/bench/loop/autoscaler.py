"""KEDA's rule on requests in flight. Pure: the caller passes the time and the metric.

As in tests/reference/autoscalers/baseline_keda.h: between one worker and the maximum KEDA delegates to a HorizontalPodAutoscaler with the
trigger's threshold as AverageValue. KEDA's own polling (30 s) and cooldown (300 s) only matter for scaling to zero and back, so they have
no effect here. That autoscaler's defaults: every 15 s, a tolerance of 0.1, up immediately, down to the largest count
recommended in the last 300 s.
"""

import math

SYNC_S = 15
TOLERANCE = 0.1
SCALE_DOWN_WINDOW_S = 300


class ConcurrencyRule:
    def __init__(self, target, least, most):
        self.target, self.least, self.most = target, least, most
        self.recommended = []  # (time, workers) within the window
        self.next_s = 0.0

    def decide(self, now_s, workers, in_flight):
        """Returns the desired number of workers. Starting workers count as present."""
        if now_s < self.next_s:
            return workers
        self.next_s = now_s + SYNC_S
        if not self.recommended:
            self.recommended.append((now_s, workers))
        desired = workers
        if abs(in_flight / (self.target * workers) - 1) > TOLERANCE:
            desired = min(self.most, max(self.least, math.ceil(in_flight / self.target)))
        self.recommended = [one for one in self.recommended if one[0] > now_s - SCALE_DOWN_WINDOW_S] + [(now_s, desired)]
        return desired if desired > workers else min(workers, max(count for _, count in self.recommended))
