// Tests of percent-encoding in URLs.
#include "planner/base/percent.h"

#include <gtest/gtest.h>

namespace windlass {
namespace {

// Given every byte; expects it back. Given an invalid encoding; expects none.
TEST(Percent, EncodesAndDecodes) {
  std::string all;
  for (int c = 0; c < 256; ++c) all += static_cast<char>(c);
  EXPECT_EQ(percent_decoded(percent_encoded(all)), all);
  EXPECT_EQ(percent_encoded("a-._~/ +"), "a-._~%2F%20%2B");
  EXPECT_EQ(percent_decoded("%41%4a%4B+"), "AJK+");
  EXPECT_EQ(percent_decoded("a+b%2B", true), "a b+");
  for (const char* broken : {"%", "%4", "a%4", "%zz", "%4z", "%%41"}) EXPECT_FALSE(percent_decoded(broken)) << broken;
}

}  // namespace
}  // namespace windlass
