// KvPages manages the pages of one engine's KV cache: how many are free, and which prompt prefixes stay cached.
//
// vLLM's automatic prefix caching (block hashes), reduced to leading prefixes with an id: two prompts with the same id agree on
// the tokens that both call prefix, so the longer one continues where the shorter one ends. Only full pages are cached. A
// cached page counts once, however many sequences reference it. Without references it stays, counts as free, and is evicted
// when pages are needed: least recently referenced first, and within a prefix the last pages first. O(1) for pages without a
// prefix, otherwise O(log n) in prefixes and references. Pure; not thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <unordered_map>

namespace windlass::sim {

class KvPages {
 public:
  explicit KvPages(std::int64_t pages) : free_(pages) {}

  // Pages that can be taken, including cached pages without references.
  [[nodiscard]] std::int64_t free() const { return free_; }

  // Takes pages that belong to one sequence alone. REQUIRES: 0 <= pages <= free().
  void take(std::int64_t pages) {
    free_ -= pages;
    if (unreferenced_ > free_) evict();
  }
  void give(std::int64_t pages) { free_ += pages; }

  // Number of leading pages of a prefix that are cached.
  [[nodiscard]] std::int64_t cached(int prefix) const;
  // How many of its first `pages` have no reference; reference() takes them out of free(). REQUIRES: pages <= cached().
  [[nodiscard]] std::int64_t unreferenced(int prefix, std::int64_t pages) const;

  // A sequence uses the first `pages` of a prefix. REQUIRES: 1 <= pages <= cached(), unreferenced() <= free().
  void reference(int prefix, std::int64_t pages);
  void release(int prefix, std::int64_t pages);

  // A sequence that references the first `from` pages (0: none) has computed the ones up to `to` in its own pages. They become
  // the prefix's, and the sequence references them. REQUIRES: from < to, from == cached().
  void publish(int prefix, std::int64_t from, std::int64_t to);

 private:
  // Pages that lost their last reference together: from `begin` to the begin of the next deeper run, or the prefix's end.
  struct Run {
    std::int64_t begin;
    std::int64_t released;  // number of the release
  };
  struct Prefix {
    std::int64_t pages = 0;
    std::map<std::int64_t, int> references;  // by depth: how many sequences use exactly this many pages
    std::deque<Run> runs;                    // without references; deepest and oldest first

    [[nodiscard]] std::int64_t referenced() const { return references.empty() ? 0 : references.rbegin()->first; }
  };

  void evict();

  std::int64_t free_;
  std::int64_t unreferenced_ = 0;  // cached pages without references
  std::unordered_map<int, Prefix> prefixes_;
  std::map<std::int64_t, int> released_;  // prefix by release number; one entry per run
  std::int64_t next_release_ = 0;
};

}  // namespace windlass::sim
