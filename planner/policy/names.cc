// Gives the policy's enumerations their names, and sums the workers of a plan.
#include "planner/policy/plan.h"

namespace windlass::planner {

const char* to_string(Family strategy) {
  switch (strategy) {
    case Family::kAuto: return "Auto";
    case Family::kReplicated: return "Replicated";
    case Family::kDisaggregated: return "Disaggregated";
    case Family::kChained: return "Chained";
  }
  return "Unknown";
}

const char* to_string(Mode mode) {
  switch (mode) {
    case Mode::kApply: return "Apply";
    case Mode::kRecommend: return "Recommend";
    case Mode::kPaused: return "Paused";
  }
  return "Unknown";
}

const char* to_string(WorkerState state) {
  switch (state) {
    case WorkerState::kStarting: return "Starting";
    case WorkerState::kReady: return "Ready";
    case WorkerState::kDraining: return "Draining";
    case WorkerState::kFailed: return "Failed";
    case WorkerState::kUnschedulable: return "Unschedulable";
  }
  return "Unknown";
}

const char* to_string(WorkerTrouble trouble) {
  switch (trouble) {
    case WorkerTrouble::kNone: return "None";
    case WorkerTrouble::kUnschedulable: return "Unschedulable";
    case WorkerTrouble::kImagePull: return "ImagePull";
    case WorkerTrouble::kCrashLoop: return "CrashLoop";
    case WorkerTrouble::kOutOfMemory: return "OutOfMemory";
    case WorkerTrouble::kNodeLost: return "NodeLost";
    case WorkerTrouble::kFailed: return "Failed";
  }
  return "";
}

const char* to_string(CapacityMode mode) {
  switch (mode) {
    case CapacityMode::kObserved: return "Observed";
    case CapacityMode::kElastic: return "Elastic";
  }
  return "Unknown";
}

const char* to_string(Direction direction) {
  switch (direction) {
    case Direction::kUp: return "Up";
    case Direction::kDown: return "Down";
  }
  return "Unknown";
}

const char* to_string(Truth truth) {
  switch (truth) {
    case Truth::kTrue: return "True";
    case Truth::kFalse: return "False";
    case Truth::kUnknown: return "Unknown";
  }
  return "Unknown";
}

int ServicePlan::desired_workers() const {
  int workers = 0;
  for (const Pool& pool : pools) workers += pool.workers;
  return workers;
}

}  // namespace windlass::planner
