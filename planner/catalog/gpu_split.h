// GpuSplit: how the GPUs of one worker share a model.
#pragma once

namespace windlass::planner {

struct GpuSplit {
  int tensor_parallel = 1;  // GPUs of one node that compute each layer together
  // Servers that follow each other, each with a range of layers and tensor_parallel GPUs, on any nodes of the class. More than
  // one: the worker is a chain.
  int stages = 1;

  GpuSplit() = default;
  // Implicit: a number of GPUs without stages is all of most workers' split.
  GpuSplit(int tensor_parallel_gpus, int of_stages = 1) : tensor_parallel(tensor_parallel_gpus), stages(of_stages) {}

  [[nodiscard]] int gpus() const { return tensor_parallel * stages; }

  bool operator==(const GpuSplit&) const = default;
};

}  // namespace windlass::planner
