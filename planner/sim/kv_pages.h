// KvPages: the pages of one engine's KV cache: how many are free, and which prefixes of prompts stay cached.
//
// vLLM's automatic prefix caching (block hashes), reduced to leading prefixes that callers name by an id: two prompts of one id
// agree in the tokens that both call prefix, so the longer one goes on where the shorter one ends. Only full pages are cached.
// A cached page is counted once however many reference it; when nobody does it stays, counts as free, and is evicted when pages
// are needed: whose last reference ended first, of those a prefix's last pages first. O(1) for pages without a prefix, else
// O(log n) in prefixes and references. Pure, not thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <unordered_map>

namespace windlass::sim {

class KvPages {
 public:
  explicit KvPages(std::int64_t pages) : free_(pages) {}

  // Pages that can be taken, cached ones that nobody references among them.
  [[nodiscard]] std::int64_t free() const { return free_; }

  // Pages of one sequence alone. REQUIRES: 0 <= pages <= free().
  void take(std::int64_t pages) {
    free_ -= pages;
    if (unreferenced_ > free_) evict();
  }
  void give(std::int64_t pages) { free_ += pages; }

  // The leading pages of a prefix that are cached.
  [[nodiscard]] std::int64_t cached(int prefix) const;
  // Of its first `pages`, those that nobody references: reference() takes them out of free(). REQUIRES: pages <= cached().
  [[nodiscard]] std::int64_t unreferenced(int prefix, std::int64_t pages) const;

  // A sequence uses the first `pages` of a prefix. REQUIRES: 1 <= pages <= cached(), unreferenced() <= free().
  void reference(int prefix, std::int64_t pages);
  void release(int prefix, std::int64_t pages);

  // A sequence that references the first `from` pages (0: none) has computed those up to `to` in pages of its own: they become
  // the prefix's, and it references them. REQUIRES: from < to, from == cached().
  void publish(int prefix, std::int64_t from, std::int64_t to);

 private:
  // Pages that lost their last reference together: from `begin` to the next deeper run's begin, or the prefix's end.
  struct Run {
    std::int64_t begin;
    std::int64_t released;  // the release's number
  };
  struct Prefix {
    std::int64_t pages = 0;
    std::map<std::int64_t, int> references;  // by depth: how many use just so many pages
    std::deque<Run> runs;                    // unreferenced, the deepest and oldest first

    [[nodiscard]] std::int64_t referenced() const { return references.empty() ? 0 : references.rbegin()->first; }
  };

  void evict();

  std::int64_t free_;
  std::int64_t unreferenced_ = 0;  // cached pages that nobody references
  std::unordered_map<int, Prefix> prefixes_;
  std::map<std::int64_t, int> released_;  // release's number: prefix; one for each run
  std::int64_t next_release_ = 0;
};

}  // namespace windlass::sim
