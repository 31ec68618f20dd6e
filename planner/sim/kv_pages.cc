// See kv_pages.h.
#include "planner/sim/kv_pages.h"

#include <algorithm>
#include <cassert>

namespace windlass::sim {

std::int64_t KvPages::cached(int prefix) const {
  const auto found = prefixes_.find(prefix);
  return found == prefixes_.end() ? 0 : found->second.pages;
}

std::int64_t KvPages::unreferenced(int prefix, std::int64_t pages) const {
  const auto found = prefixes_.find(prefix);
  return found == prefixes_.end() ? 0 : std::max<std::int64_t>(0, pages - found->second.referenced());
}

void KvPages::reference(int prefix, std::int64_t pages) {
  assert(pages >= 1 && pages <= cached(prefix));
  Prefix& of = prefixes_.find(prefix)->second;
  const std::int64_t fresh = std::max<std::int64_t>(0, pages - of.referenced());
  assert(fresh <= free_);
  free_ -= fresh;
  unreferenced_ -= fresh;
  while (!of.runs.empty() && of.runs.back().begin < pages) {
    const std::int64_t end = of.runs.size() > 1 ? of.runs[of.runs.size() - 2].begin : of.pages;
    if (end > pages) {  // keep the deeper part
      of.runs.back().begin = pages;
      break;
    }
    released_.erase(of.runs.back().released);
    of.runs.pop_back();
  }
  ++of.references[pages];
}

void KvPages::release(int prefix, std::int64_t pages) {
  const auto found = prefixes_.find(prefix);
  assert(found != prefixes_.end());
  Prefix& of = found->second;
  const auto depth = of.references.find(pages);
  assert(depth != of.references.end());
  const std::int64_t before = of.referenced();
  if (--depth->second == 0) of.references.erase(depth);
  const std::int64_t left = of.referenced();
  if (left == before) return;
  free_ += before - left;
  unreferenced_ += before - left;
  of.runs.push_back(Run{left, next_release_});
  released_.emplace(next_release_++, prefix);
}

void KvPages::publish(int prefix, std::int64_t from, std::int64_t to) {
  Prefix& of = prefixes_[prefix];
  assert(from < to && from == of.pages);
  if (from > 0) {
    const auto depth = of.references.find(from);
    assert(depth != of.references.end());
    if (--depth->second == 0) of.references.erase(depth);
  }
  of.pages = to;
  ++of.references[to];
}

void KvPages::evict() {
  while (unreferenced_ > free_) {
    const auto oldest = released_.begin();
    const auto found = prefixes_.find(oldest->second);
    Prefix& of = found->second;
    const std::int64_t pages = std::min(of.pages - of.runs.front().begin, unreferenced_ - free_);
    of.pages -= pages;
    unreferenced_ -= pages;
    if (of.pages > of.runs.front().begin) continue;
    released_.erase(oldest);
    of.runs.pop_front();
    if (of.pages == 0) prefixes_.erase(found);
  }
}

}  // namespace windlass::sim
