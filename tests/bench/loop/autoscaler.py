"""KEDA's rule on requests in flight. Pure: the caller brings the time and the metric.

As in tests/reference/autoscalers/baseline_keda.h: between one and the most workers KEDA leaves the work to a HorizontalPodAutoscaler with the
trigger's threshold as AverageValue, so that KEDA's own polling (30 s) and cooldown (300 s), which go to zero and back, have
nothing to do here. The defaults of that autoscaler: every 15 s, a tolerance of 0.1, up at once, down to the most that was
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
        """The workers that should be there. Workers that start count as there."""
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
