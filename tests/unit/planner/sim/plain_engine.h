// PlainEngine implements the engine's rules sequence by sequence, token by token and page by page, as a reference for
// planner/sim/simulated_engine.h. Every page has an identity, and every list is walked every time.
#pragma once

#include <algorithm>
#include <deque>
#include <optional>
#include <stdexcept>
#include <tuple>
#include <utility>
#include <vector>

#include "planner/sim/simulated_engine.h"

namespace windlass::sim {

class PlainEngine {
 public:
  explicit PlainEngine(const planner::EngineSettings& options)
      : options_(options), pages_(static_cast<std::size_t>(options.kv_blocks)), host_free_(options.host_blocks) {}

  void enqueue(const SequenceSpec& spec) {
    Item item = item_of(spec);
    item.serial = next_serial_++;
    (working_ && options_.schedules_ahead ? late_ : seen()).push_back(item);
  }

  [[nodiscard]] bool has_room(const SequenceSpec& spec) const {
    if (held() >= options_.max_sequences || !swapped_.empty()) return false;
    const Item item = item_of(spec);
    const std::int64_t whole = blocks_of(spec.prompt_tokens + spec.output_tokens);
    if (reserves()) return whole <= free_blocks();
    // The page that the next token starts, whatever is predicted.
    if (std::min(whole, blocks_of(spec.prompt_tokens) + 1) > free_blocks()) return false;
    return blocks_of(spec.prompt_tokens) + growth(spec.prompt_tokens, item.predicted - 1) <= free_blocks();
  }

  void reserve(const SequenceSpec& spec) {
    Item item = item_of(spec);
    item.serial = next_serial_++;
    item.made = 1;
    item.started = item.on_way = true;
    item.prefilled = item.prompt;
    item.cached = item.prompt;
    allocate(item, blocks_of(reserves() ? item.prompt + item.output : item.prompt));
    item.predicted_left = item.predicted - 1;
    kept_.push_back(item);
  }
  void join(int request) { busy_ ? joining_.push_back(take_kept(request)) : start(take_kept(request)); }
  void release(int request) {
    Item item = take_kept(request);
    let_go(item);
  }

  std::optional<planner::Batch> begin() {
    batch_ = planner::Batch{};
    started.clear();
    swapped_tokens = 0;
    preempted_ = false;
    form();
    const bool late = !late_.empty();
    for (; !late_.empty(); late_.pop_front()) seen().push_back(late_.front());
    if (late && batch_.empty()) form();
    busy_ = working_ = !batch_.empty();
    return busy_ ? std::optional(batch_) : std::nullopt;
  }

  void form() {
    const planner::Batching b = options_.batching;
    const bool chunked = b == planner::Batching::kSarathi || b == planner::Batching::kVllmV1;
    // If there is no static batch, the waiting requests form one, until something other than the budget ends its prompts.
    if (fixed() && decoding_.empty() && forming_.empty()) {
      for (const Item& item : waiting_) forming_.push_back(item.serial);
      for (const Item& item : arrived_) forming_.push_back(item.serial);
    }
    if (!chunked && !(fixed() && forming_.empty())) {
      if (!admit(options_.max_batch_tokens, false)) forming_.clear();
    }
    if (batch_.prefill_sequences == 0 || (b != planner::Batching::kVllm && !fixed())) {
      take_pages();
      if (!preempted_) swap_in();
      for (Item& item : decoding_) batch_.add_decode(item.cached);
      decodes_ = !decoding_.empty();
    }
    if (chunked) admit(options_.max_batch_tokens - batch_.decode_sequences, true);
  }

  struct Outcome {
    std::vector<int> first_tokens, finished, prefilled;
    int decoded = 0;
    std::vector<std::pair<int, int>> made;  // tokens of those that finished
  };
  Outcome end() {
    Outcome outcome;
    busy_ = false;
    if (std::exchange(decodes_, false)) {
      std::vector<Item> left;
      for (Item& item : decoding_) {
        ++item.cached;
        if (item.made >= item.output) continue;  // padding of a static batch
        ++outcome.decoded;
        ++item.made;
        --item.predicted_left;
        if (item.made < item.output || fixed()) {
          left.push_back(item);
        } else {
          outcome.finished.push_back(item.request);
          outcome.made.emplace_back(item.request, item.made);
        }
      }
      if (!fixed()) {
        by_serial(decoding_);
        for (Item& item : decoding_) {
          if (item.made >= item.output) let_go(item);
        }
        decoding_ = left;
      }
    }
    for (Item& item : joining_) start(item);
    joining_.clear();
    std::vector<Item> left;
    for (Item& item : prefilling_) {
      item.prefilled += std::exchange(item.chunk, 0);
      publish(item);
      if (item.prefilled < item.prompt) {
        left.push_back(item);
        continue;
      }
      if (item.made == 0) outcome.first_tokens.push_back(item.request);
      ++item.made;
      item.cached = item.prompt;
      item.predicted_left = item.predicted - item.made;
      if (item.made >= item.output && !fixed()) {
        outcome.finished.push_back(item.request);
        outcome.made.emplace_back(item.request, item.made);
        let_go(item);
      } else if (item.hand_over) {
        outcome.prefilled.push_back(item.request);
        kept_.push_back(item);
      } else {
        start(item);
      }
    }
    prefilling_ = left;
    const auto done = [](const Item& item) { return item.made >= item.output; };
    if (fixed() && forming_.empty() && std::all_of(decoding_.begin(), decoding_.end(), done)) {
      by_serial(decoding_);
      for (Item& item : decoding_) {
        outcome.finished.push_back(item.request);
        outcome.made.emplace_back(item.request, item.made);
        let_go(item);
      }
      decoding_.clear();
    }
    return outcome;
  }

  [[nodiscard]] std::int64_t free_blocks() const {
    return std::count_if(pages_.begin(), pages_.end(), [](const Page& page) { return page.references == 0; });
  }
  [[nodiscard]] std::int64_t host_free_blocks() const { return host_free_; }
  [[nodiscard]] int waiting() const { return static_cast<int>(late_.size() + arrived_.size() + waiting_.size()); }
  [[nodiscard]] int swapped() const { return static_cast<int>(swapped_.size()); }
  [[nodiscard]] int running() const { return static_cast<int>(decoding_.size() + prefilling_.size()); }
  [[nodiscard]] int held() const { return waiting() + swapped() + holding(); }
  [[nodiscard]] std::int64_t pending_tokens() const {
    std::int64_t tokens = static_cast<std::int64_t>(decoding_.size());
    for (const Item& item : late_) tokens += item.prompt;
    for (const Item& item : arrived_) tokens += item.prompt;
    for (const Item& item : waiting_) tokens += item.prompt;
    for (const Item& item : prefilling_) tokens += item.prompt - item.prefilled;
    return tokens;
  }

  std::vector<int> started;  // result of the last begin()
  std::int64_t swapped_tokens = 0;
  std::int64_t preemptions = 0;
  std::int64_t prefix_hit_tokens = 0;

 private:
  struct Page {
    int references = 0;
    int prefix = -1;  // its prefix, if it is cached
    int index = 0;
    std::int64_t released = 0;
  };
  struct Item {
    int serial = 0;  // by arrival or preemption: sequences that end together leave in this order
    int request = 0, prompt = 0, output = 0, predicted = 0, prefix = -1, prefix_tokens = 0;
    bool hand_over = false, started = false;
    bool on_way = false;  // its cache is being transferred; it will decode here
    int made = 0, prefilled = 0, chunk = 0, cached = 0;
    int predicted_left = 0;
    std::vector<int> pages;  // in the order of the tokens
  };

  [[nodiscard]] std::deque<Item>& seen() {
    return options_.prompt_order == planner::PromptOrder::kArrival ? waiting_ : arrived_;
  }
  [[nodiscard]] bool fixed() const { return options_.batching == planner::Batching::kStatic; }
  [[nodiscard]] bool reserves() const { return fixed() || options_.batching == planner::Batching::kOrca; }
  [[nodiscard]] std::int64_t blocks_of(int tokens) const {
    return (tokens + options_.block_tokens - 1) / options_.block_tokens;
  }
  [[nodiscard]] static Item item_of(const SequenceSpec& spec) {
    Item item;
    item.request = spec.request;
    item.prompt = spec.prompt_tokens;
    item.output = spec.output_tokens;
    item.predicted = spec.predicted_output_tokens > 0 ? spec.predicted_output_tokens : spec.output_tokens;
    item.prefix = spec.prefix;
    item.prefix_tokens = spec.prefix_tokens;
    item.hand_over = spec.hand_over;
    return item;
  }
  [[nodiscard]] int holding() const {
    return static_cast<int>(prefilling_.size() + decoding_.size() + kept_.size() + joining_.size());
  }
  [[nodiscard]] std::int64_t watermark() const {
    return holding() == 0 ? 0 : static_cast<std::int64_t>(options_.admission_reserve * static_cast<double>(options_.kv_blocks));
  }

  // Individual pages.
  [[nodiscard]] int find(int prefix, int index) const {
    for (std::size_t p = 0; p < pages_.size(); ++p) {
      if (pages_[p].prefix == prefix && pages_[p].index == index) return static_cast<int>(p);
    }
    return -1;
  }
  void allocate(Item& item, std::int64_t blocks) {
    while (static_cast<std::int64_t>(item.pages.size()) < blocks) {
      int best = -1;
      for (std::size_t p = 0; p < pages_.size(); ++p) {
        if (pages_[p].references > 0) continue;
        if (best >= 0) {
          const Page& a = pages_[p];
          const Page& b = pages_[static_cast<std::size_t>(best)];
          // An empty page before a cached one; among cached ones the earliest release, within a release the deepest.
          const auto rank = [](const Page& page) {
            return std::make_tuple(page.prefix >= 0, page.prefix >= 0 ? page.released : 0, page.prefix >= 0 ? -page.index : 0);
          };
          if (rank(a) >= rank(b)) continue;
        }
        best = static_cast<int>(p);
      }
      if (best < 0) throw std::logic_error("no page is free");
      pages_[static_cast<std::size_t>(best)] = Page{1, -1, 0, 0};
      item.pages.push_back(best);
    }
  }
  void let_go(Item& item) {
    ++releases_;
    for (const int p : item.pages) {
      Page& page = pages_[static_cast<std::size_t>(p)];
      if (--page.references == 0) page.released = releases_;
    }
    item.pages.clear();
  }
  // Its leading cached pages, at most all but the last token's.
  [[nodiscard]] std::vector<int> hits(const Item& item) const {
    std::vector<int> found;
    if (!options_.prefix_caching || item.prefix < 0) return found;
    for (int i = 0; (i + 1) * options_.block_tokens <= std::min(item.prefix_tokens, item.prompt - 1); ++i) {
      const int p = find(item.prefix, i);
      if (p < 0) break;
      found.push_back(p);
    }
    return found;
  }
  // Publishes its computed full pages of the prefix, from where its shared ones end, unless others published them already.
  void publish(const Item& item) {
    if (!options_.prefix_caching || item.prefix < 0) return;
    for (int i = 0; (i + 1) * options_.block_tokens <= std::min(item.prefix_tokens, item.prefilled); ++i) {
      Page& page = pages_[static_cast<std::size_t>(item.pages[static_cast<std::size_t>(i)])];
      if (page.prefix >= 0) continue;
      if (find(item.prefix, i) >= 0) return;
      page.prefix = item.prefix;
      page.index = i;
    }
  }

  // Pages predicted for all sequences that will decode here beyond what they hold, with one more that starts with `tokens`.
  [[nodiscard]] std::int64_t growth(int tokens, int tokens_left) const {
    if (reserves() || options_.admission == planner::DecodeAdmission::kGreedy) return 0;
    std::vector<std::pair<int, int>> members;  // tokens in the cache and predicted tokens left, after the current iteration
    for (const Item& item : decoding_)
      members.emplace_back(item.cached + (decodes_ ? 1 : 0), item.predicted_left - (decodes_ ? 1 : 0));
    // During an iteration, a sequence predicted to end with it has 0 left and counts; afterwards it has outlived the
    // prediction.
    std::vector<bool> known(members.size());
    for (std::size_t i = 0; i < members.size(); ++i) known[i] = members[i].second >= (decodes_ ? 0 : 1);
    const auto on_way = [&](const Item& item, int left) {
      members.emplace_back(item.prompt, left);
      known.push_back(left > 0);
    };
    for (const Item& item : prefilling_) {
      if (!item.hand_over) on_way(item, item.predicted - item.made - 1);
    }
    for (const Item& item : kept_) {
      if (item.on_way) on_way(item, item.predicted_left);
    }
    for (const Item& item : joining_) {
      if (item.on_way) on_way(item, item.predicted_left);
    }
    if (members.empty()) return 0;
    const auto grows = [&](int from, int by) { return blocks_of(from + std::max(0, by)) - blocks_of(from); };
    std::int64_t pages = 0;
    if (options_.admission == planner::DecodeAdmission::kReserveStatic) {
      for (std::size_t i = 0; i < members.size(); ++i) pages += known[i] ? grows(members[i].first, members[i].second) : 0;
      return pages + grows(tokens, tokens_left);
    }
    std::optional<int> shortest;
    if (tokens_left > 0) shortest = tokens_left;
    for (std::size_t i = 0; i < members.size(); ++i) {
      if (known[i] && (!shortest || members[i].second < *shortest)) shortest = members[i].second;
    }
    for (const auto& [cached, left] : members) pages += grows(cached, shortest.value_or(0));
    return pages + grows(tokens, shortest.value_or(0));
  }

  static void by_serial(std::vector<Item>& items) {
    std::stable_sort(items.begin(), items.end(), [](const Item& a, const Item& b) { return a.serial < b.serial; });
  }
  void start(Item item) {
    item.hand_over = false;
    decoding_.push_back(item);
  }
  Item take_kept(int request) {
    const auto found = std::find_if(kept_.begin(), kept_.end(), [&](const Item& item) { return item.request == request; });
    Item item = *found;
    kept_.erase(found);
    return item;
  }

  void take_pages() {
    if (reserves()) return;
    const auto needed = [&] {
      return std::count_if(decoding_.begin(), decoding_.end(),
                           [&](const Item& item) { return item.cached % options_.block_tokens == 0; });
    };
    while (needed() > free_blocks()) preempt();
    for (Item& item : decoding_) allocate(item, blocks_of(item.cached + 1));
  }

  void preempt() {
    ++preemptions;
    preempted_ = true;
    if (options_.batching == planner::Batching::kVllmV1 && !prefilling_.empty()) {
      Item item = prefilling_.back();
      prefilling_.pop_back();
      let_go(item);
      item.prefilled = 0;
      waiting_.push_front(item);
      return;
    }
    Item item = decoding_.back();
    decoding_.pop_back();
    let_go(item);
    item.serial = next_serial_++;
    if (options_.preemption == planner::Preemption::kSwap && blocks_of(item.cached) <= host_free_) {
      host_free_ -= blocks_of(item.cached);
      swapped_tokens += item.cached;
      swapped_.push_back(item);
    } else {
      item.prompt = item.cached + 1;
      item.prefilled = 0;
      waiting_.push_front(item);
    }
  }

  void swap_in() {
    while (!swapped_.empty() && running() < options_.max_sequences) {
      Item item = swapped_.front();
      const std::int64_t room = std::min(blocks_of(item.cached) + 1, blocks_of(item.cached + item.output - item.made));
      if (room + watermark() > free_blocks()) return;
      swapped_.pop_front();
      host_free_ += blocks_of(item.cached);
      swapped_tokens += item.cached;
      item.prompt = item.cached;
      allocate(item, blocks_of(item.cached + 1));
      start(item);
    }
  }

  void sort_window() {
    for (int i = 0; i < options_.prompt_order_window && !arrived_.empty(); ++i) {
      if (fixed() && std::count(forming_.begin(), forming_.end(), arrived_.front().serial) == 0) return;
      // After those that go before it or arrived before it.
      const Item item = arrived_.front();
      arrived_.pop_front();
      auto place = waiting_.end();
      while (place != waiting_.begin()) {
        const int before = std::prev(place)->prompt;
        if (options_.prompt_order == planner::PromptOrder::kShortestFirst ? before <= item.prompt : before >= item.prompt)
          break;
        --place;
      }
      waiting_.insert(place, item);
    }
  }

  // Returns whether the budget kept the next one out.
  bool admit(int budget, bool chunked) {
    const auto take = [&](Item& item, int tokens) {
      item.chunk = tokens;
      batch_.add_prefill(tokens, item.prefilled);
      budget -= tokens;
    };
    for (Item& item : prefilling_) {
      if (budget <= 0) return true;
      take(item, std::min(budget, item.prompt - item.prefilled));
    }
    if (!swapped_.empty() || (options_.batching == planner::Batching::kVllmV1 && preempted_)) return false;
    for (bool first = true; running() < options_.max_sequences; first = false) {
      if (chunked && budget <= 0) return true;
      if (waiting_.empty()) sort_window();
      if (waiting_.empty()) return false;
      Item item = waiting_.front();
      if (fixed() && std::count(forming_.begin(), forming_.end(), item.serial) == 0) return false;
      const std::vector<int> shared = hits(item);
      const int skipped = static_cast<int>(shared.size()) * options_.block_tokens;
      const std::int64_t blocks =
          blocks_of(reserves() && !item.hand_over ? item.prompt + item.output - item.made : item.prompt);
      const auto idle = std::count_if(shared.begin(), shared.end(),
                                      [&](int p) { return pages_[static_cast<std::size_t>(p)].references == 0; });
      std::int64_t needed = blocks - static_cast<std::int64_t>(shared.size()) + idle;
      needed += std::max(watermark(), item.hand_over ? 0 : growth(item.prompt, item.predicted - item.made - 1));
      if (needed > free_blocks()) return false;
      if (!chunked && item.prompt - skipped > budget && !first) return true;
      waiting_.pop_front();
      std::erase(forming_, item.serial);
      for (const int p : shared) ++pages_[static_cast<std::size_t>(p)].references;
      item.pages = shared;
      allocate(item, blocks);
      item.prefilled = skipped;
      prefix_hit_tokens += skipped;
      if (!std::exchange(item.started, true)) started.push_back(item.request);
      prefilling_.push_back(item);
      take(prefilling_.back(), chunked ? std::min(budget, item.prompt - skipped) : item.prompt - skipped);
    }
    return false;
  }

  planner::EngineSettings options_;
  std::vector<Page> pages_;
  std::int64_t host_free_;
  std::int64_t releases_ = 0;
  int next_serial_ = 0;
  std::deque<Item> late_, arrived_, waiting_, swapped_;
  std::vector<Item> prefilling_, decoding_, kept_, joining_;  // kept: handed over, or incoming
  std::vector<int> forming_;  // serials of those that may still join the static batch being formed
  planner::Batch batch_;
  bool decodes_ = false, busy_ = false, preempted_ = false;
  bool working_ = false;
};

}  // namespace windlass::sim
