// Addresses in flags.
#include "metrics/net/host_port.h"

#include <gtest/gtest.h>

namespace windlass::net {
namespace {

// Given addresses of each kind; expects them to be printed as they were written. Given anything else; expects an error.
TEST(HostPorts, AreReadAndWritten) {
  for (const char* text : {"127.0.0.1:8080", "[::1]:8080", "gateway.default:0"}) {
    const auto parsed = parse_host_port(text);
    ASSERT_TRUE(parsed.ok()) << text;
    EXPECT_EQ(to_string(*parsed), text);
  }
  for (const char* text : {"", ":80", "a", "a:", "a:x", "a:65536", "a:-1", "::1:80", "[::1:80", "a b:1", "a/b:1"}) {
    EXPECT_FALSE(parse_host_port(text).ok()) << text;
  }
}

// Given brackets around a pod's IP, expects the same address of either family.
TEST(HostPorts, MayHaveBracketsAroundEitherFamily) {
  EXPECT_EQ(parse_host_port("[10.1.2.3]:8000").value(), (HostPort{"10.1.2.3", "8000"}));
  EXPECT_EQ(parse_host_port("[fd00::5]:8000").value(), (HostPort{"fd00::5", "8000"}));
}

// Given addresses with and without a port, as in URLs; expects the default port if there is none.
TEST(HostPorts, HaveADefaultPort) {
  EXPECT_EQ(parse_host_port("a:1", 80).value(), (HostPort{"a", "1"}));
  EXPECT_EQ(parse_host_port("a", 80).value(), (HostPort{"a", "80"}));
  EXPECT_EQ(parse_host_port("[::1]:1", 80).value(), (HostPort{"::1", "1"}));
  EXPECT_EQ(parse_host_port("[::1]", 443).value(), (HostPort{"::1", "443"}));
  for (const char* text : {"", "a:", "::1", "[::1]:x"}) EXPECT_FALSE(parse_host_port(text, 80).ok()) << text;
}

}  // namespace
}  // namespace windlass::net
