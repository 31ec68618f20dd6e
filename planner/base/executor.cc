// The executor without threads; see executor.h.
#include "planner/base/executor.h"

namespace windlass {

void SerialExecutor::run(std::size_t count, const std::function<void(std::size_t)>& task) {
  for (std::size_t index = 0; index < count; ++index) task(index);
}

}  // namespace windlass
