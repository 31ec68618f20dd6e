// Byte-pair training on a short text. Ties go to the pair of lower ids, so the result does not depend on hash order.
#include "worker/model/vocabulary_init.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <unordered_set>

#include "planner/base/rng.h"

namespace windlass::worker {
namespace {

constexpr std::string_view kText =
    "the windlass stands on the foredeck of the ship and hauls the anchor chain link by link from the water when the crew "
    "wants to "
    "leave the harbour . every link of the chain carries the weight of all the links below it , and the slowest pawl sets the "
    "pace "
    "of the whole crew . when the wind is fair and the sea is calm a single hand can turn the drum , but in a storm they need "
    "every "
    "sailor that they can find , and the captain calls them from their bunks one after another until the work goes fast enough "
    ". "
    "then the storm passes , the sails are set again , and those who are no longer needed go back to sleep . a good captain "
    "does not "
    "wake the whole ship for a light breeze , nor does she wait until the anchor drags before she calls for help . she watches "
    "the "
    "sky , counts the waves , remembers what happened the last time , and decides before it is too late . there is no more to "
    "it "
    "than that : look , think , act , and look again . the number of hands is small , the sea is large , and the night is long "
    "; "
    "so the work must be shared out among the people where it can be done best , with some kept ready and some at rest . in "
    "the "
    "morning the ship reports to the port : how far it has come , how much it has carried , what it has cost , and whether "
    "every "
    "promise about time was kept . if it was not , the log says why , and what would have been needed . The ship is old . The "
    "water is deep . We have time . It will not be the last voyage , and there is much to learn from this one . You and I "
    "should "
    "ask more questions than we answer , and answer more than we forget .";

using Ids = std::vector<std::int32_t>;
using Pair = std::pair<std::int32_t, std::int32_t>;

// Words with the space before them, as byte-level pretokenizers split them.
std::map<Ids, std::int64_t> words_of(std::string_view text) {
  std::map<Ids, std::int64_t> words;
  Ids word;
  for (const char c : text) {
    if (c == ' ' && !word.empty()) {
      ++words[word];
      word.clear();
    }
    word.push_back(static_cast<unsigned char>(c));
  }
  ++words[word];
  return words;
}

void join(Ids& word, const Pair& pair, std::int32_t result) {
  std::size_t to = 0;
  for (std::size_t i = 0; i < word.size(); ++i) {
    const bool here = i + 1 < word.size() && word[i] == pair.first && word[i + 1] == pair.second;
    word[to++] = here ? result : word[i];
    if (here) ++i;
  }
  word.resize(to);
}

}  // namespace

InitVocabulary make_vocabulary(std::int64_t merges, std::uint64_t seed) {
  InitVocabulary out;
  std::unordered_set<std::string> known;
  for (int byte = 0; byte < 256; ++byte) out.tokens.emplace_back(1, static_cast<char>(byte));
  known.insert(out.tokens.begin(), out.tokens.end());
  const auto add = [&](const Pair& pair) {
    out.tokens.push_back(out.tokens[static_cast<std::size_t>(pair.first)] + out.tokens[static_cast<std::size_t>(pair.second)]);
    known.insert(out.tokens.back());
    out.merges.push_back(pair);
  };

  const auto counted = words_of(kText);
  std::vector<std::pair<Ids, std::int64_t>> words(counted.begin(), counted.end());
  while (static_cast<std::int64_t>(out.merges.size()) < merges) {
    std::map<Pair, std::int64_t> counts;
    for (const auto& [word, count] : words) {
      for (std::size_t i = 0; i + 1 < word.size(); ++i) counts[{word[i], word[i + 1]}] += count;
    }
    const auto best =
        std::max_element(counts.begin(), counts.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
    if (best == counts.end()) break;
    const Pair pair = best->first;
    const auto& joined = out.tokens[static_cast<std::size_t>(pair.first)] + out.tokens[static_cast<std::size_t>(pair.second)];
    const bool fresh = known.count(joined) == 0;
    if (fresh) add(pair);
    // Two pairs can form the same text; the second pair then reuses the existing token, in this training only.
    const auto id =
        fresh ? static_cast<std::int32_t>(out.tokens.size() - 1)
              : static_cast<std::int32_t>(std::find(out.tokens.begin(), out.tokens.end(), joined) - out.tokens.begin());
    for (auto& [word, count] : words) join(word, pair, id);
  }

  // Beyond what the text can teach: invented words, each a token that may begin with a space followed by one that does not.
  Rng rng(seed, "vocabulary");
  const auto letters = [&](std::int32_t id, bool may_begin_with_space) {
    const std::string& token = out.tokens[static_cast<std::size_t>(id)];
    for (std::size_t i = 0; i < token.size(); ++i) {
      const bool lower = token[i] >= 'a' && token[i] <= 'z';
      if (!lower && !(i == 0 && token[i] == ' ' && may_begin_with_space)) return false;
    }
    return true;
  };
  std::vector<std::int32_t> firsts;
  std::vector<std::int32_t> seconds;
  const auto classify = [&](std::int32_t id) {
    if (letters(id, true)) firsts.push_back(id);
    if (letters(id, false)) seconds.push_back(id);
  };
  for (std::int32_t id = 0; id < static_cast<std::int32_t>(out.tokens.size()); ++id) classify(id);
  while (static_cast<std::int64_t>(out.merges.size()) < merges) {
    const Pair pair{firsts[static_cast<std::size_t>(rng.integer(0, static_cast<std::int64_t>(firsts.size()) - 1))],
                    seconds[static_cast<std::size_t>(rng.integer(0, static_cast<std::int64_t>(seconds.size()) - 1))]};
    const auto joined = out.tokens[static_cast<std::size_t>(pair.first)] + out.tokens[static_cast<std::size_t>(pair.second)];
    if (known.count(joined) != 0 || joined.size() > 24) continue;
    add(pair);
    classify(static_cast<std::int32_t>(out.tokens.size() - 1));
  }
  return out;
}

}  // namespace windlass::worker
