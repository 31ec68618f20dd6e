// See table_transfer.h.
#include "planner/perf/table_transfer.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace windlass::planner {
namespace {

double roofline_of(const GpuTables& gpu, const GemmRow& row) {
  return gemm_roofline_s(gpu.hardware, gpu.efficiency, row.kind, row.m, row.n, row.k);
}
double roofline_of(const GpuTables& gpu, AttentionPhase phase, const AttentionRow& row) {
  const auto price = phase == AttentionPhase::kContext ? context_attention_roofline_s : generation_attention_roofline_s;
  return price(gpu.hardware, gpu.efficiency, row.key, row.batch, row.length, row.heads, row.kv_heads);
}

GemmRow moved(GemmRow row, const GpuTables& from, const GpuTables& to) {
  row.time_s *= roofline_of(to, row) / roofline_of(from, row);
  return row;
}
AttentionRow moved(AttentionRow row, AttentionPhase phase, const GpuTables& from, const GpuTables& to) {
  row.time_s *= roofline_of(to, phase, row) / roofline_of(from, phase, row);
  return row;
}

// Whether nothing can be slower on `gpu` than on `other`, by their data sheets.
bool dominates(const OperatorHardware& gpu, const OperatorHardware& other) {
  return gpu.memory_bandwidth_bytes_per_s >= other.memory_bandwidth_bytes_per_s && gpu.flops_16bit >= other.flops_16bit &&
         gpu.flops_8bit >= other.flops_8bit;
}

using Size = std::tuple<AttentionKey, double, double, double, double>;
Size size_of(const AttentionRow& row) { return {row.key, row.batch, row.length, row.heads, row.kv_heads}; }

std::string name_of(AttentionPhase phase, const AttentionKey& key) {
  std::string name =
      fmt::format("{} attention of {}-wide heads", phase == AttentionPhase::kContext ? "context" : "generation", key.head_dim);
  if (key.float8_cache) name += ", FP8 cache";
  if (key.window_tokens > 0) name += fmt::format(", window of {}", key.window_tokens);
  return name;
}

std::map<AttentionKey, std::vector<AttentionRow>> by_kernel(const std::vector<AttentionRow>& rows) {
  std::map<AttentionKey, std::vector<AttentionRow>> kernels;
  for (const AttentionRow& row : rows) kernels[row.key].push_back(row);
  return kernels;
}

std::vector<AttentionRow> completed(const GpuTables& gpu, const std::vector<AttentionRow>& own, const GpuTables& reference,
                                    const std::vector<AttentionRow>& others, AttentionPhase phase,
                                    std::vector<Replaced>* replaced) {
  const auto tell = [&](const AttentionKey& key, std::size_t rows, std::size_t of, const char* why) {
    if (replaced != nullptr && rows > 0) replaced->push_back({name_of(phase, key), rows, of, why});
  };
  std::map<AttentionKey, std::vector<AttentionRow>> kernels = by_kernel(own);
  for (const auto& [key, rows] : by_kernel(others)) {
    std::vector<AttentionRow>& mine = kernels[key];
    const bool impossible = impossible_share(mine, phase, gpu.hardware) > kMaxImpossibleRows;
    if (mine.empty() || impossible) {
      tell(key, impossible ? mine.size() : rows.size(), impossible ? mine.size() : rows.size(),
           impossible ? "needs more FLOP/s than the data sheet has" : "was not measured");
      mine.clear();
      for (const AttentionRow& row : rows) mine.push_back(moved(row, phase, reference, gpu));
      continue;
    }
    if (!dominates(gpu.hardware, reference.hardware)) continue;
    std::map<Size, const AttentionRow*> theirs;
    for (const AttentionRow& row : rows) theirs[size_of(row)] = &row;
    std::size_t slower = 0;
    for (AttentionRow& row : mine) {
      const auto other = theirs.find(size_of(row));
      if (other == theirs.end() || row.time_s <= kSlowerBy * other->second->time_s) continue;
      row = moved(*other->second, phase, reference, gpu);
      ++slower;
    }
    tell(key, slower, mine.size(), "slower than on a GPU with less bandwidth");
  }
  std::vector<AttentionRow> all;
  for (const auto& [key, rows] : kernels) all.insert(all.end(), rows.begin(), rows.end());
  return all;
}

}  // namespace

OperatorTables completed_from(const GpuTables& gpu, const GpuTables& reference, std::vector<Replaced>* replaced) {
  OperatorTables result = gpu.tables;
  std::set<GemmKind> kinds;
  for (const GemmRow& row : gpu.tables.gemm) kinds.insert(row.kind);
  std::map<GemmKind, std::size_t> taken;
  for (const GemmRow& row : reference.tables.gemm) {
    if (kinds.contains(row.kind)) continue;
    result.gemm.push_back(moved(row, reference, gpu));
    ++taken[row.kind];
  }
  for (const auto& [kind, rows] : taken) {
    if (replaced != nullptr)
      replaced->push_back({fmt::format("products in {}", to_string(kind)), rows, rows, "was not measured"});
  }
  result.context_attention = completed(gpu, gpu.tables.context_attention, reference, reference.tables.context_attention,
                                       AttentionPhase::kContext, replaced);
  result.generation_attention = completed(gpu, gpu.tables.generation_attention, reference,
                                          reference.tables.generation_attention, AttentionPhase::kGeneration, replaced);
  if (result.collectives.empty()) result.collectives = reference.tables.collectives;
  return result;
}

}  // namespace windlass::planner
