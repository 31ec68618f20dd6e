// Says(pattern): a matcher for messages. The message contains the texts between the asterisks of `pattern`, in this order:
// Says("flag: must be a number*(got 'x')") does not repeat the whole rule.
#pragma once

#include <string>
#include <string_view>

#include <gmock/gmock.h>

namespace windlass {

MATCHER_P(Says, pattern, "says " + ::testing::PrintToString(pattern)) {
  const std::string_view message = arg;
  std::string_view rest = pattern;
  std::size_t at = 0;
  while (true) {
    const std::size_t star = rest.find('*');
    const std::string_view text = rest.substr(0, star);
    at = message.find(text, at);
    if (at == std::string_view::npos) return false;
    at += text.size();
    if (star == std::string_view::npos) return true;
    rest.remove_prefix(star + 1);
  }
}

}  // namespace windlass
