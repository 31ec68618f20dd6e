// HexGen-2's results (Jiang, Yan, Yuan, ICLR 2025), for docs/algorithms/hexgen2.md.
#include "tests/bench/heterogeneous/experiments.h"

namespace windlass::bench {

Result<std::vector<HeterogeneousTable>> hexgen2_tables(const HeterogeneousOptions&) {
  return std::vector<HeterogeneousTable>{};
}

}  // namespace windlass::bench
