// endpoints.json: what `windlass up` leaves for the other commands.
#include "controller/cli/endpoints.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "controller/cli/local_stack.h"
#include "controller/cli/service_name.h"

namespace windlass::cli {
namespace {

using testing::HasSubstr;

// Given endpoints: they come back from their JSON as they were.
TEST(Endpoints, RoundTrip) {
  const Endpoints endpoints{"http://127.0.0.1:9401", "http://127.0.0.1:8080", {"http://127.0.0.1:8081"}};
  const auto back = endpoints_from_json(to_json(endpoints));
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(*back, endpoints);
}

// Given texts that are no endpoints: an error each, no crash.
TEST(Endpoints, BadTextIsRefused) {
  for (const char* text : {"", "{}", "[]", "{\"controller\": 1}", "{\"controller\": \"x\", \"gateway\": \"y\"}"}) {
    EXPECT_FALSE(endpoints_from_json(text).ok()) << text;
  }
}

// Given a folder where nothing runs: the error says how to start something.
TEST(Endpoints, MissingFolderSaysWhatToDo) {
  EndpointOptions options;
  options.directory = "/nonexistent-windlass";
  const auto endpoints = options.resolve();
  ASSERT_FALSE(endpoints.ok());
  EXPECT_THAT(endpoints.error().message, HasSubstr("windlass up -f FILE --dir /nonexistent-windlass"));
}

// Given names as people type them: a ModelService's kind may stand before, another kind may not.
TEST(ServiceName, KindsAreChecked) {
  EXPECT_EQ(service_name_from("tiny").value_or(""), "tiny");
  EXPECT_EQ(service_name_from("ms/tiny").value_or(""), "tiny");
  EXPECT_EQ(service_name_from("modelservice/tiny").value_or(""), "tiny");
  for (const char* bad : {"pod/tiny", "ms/", "a/b/c", ""}) EXPECT_FALSE(service_name_from(bad).ok()) << bad;
}

// Given a request for a free port twice: each is a port that a program may use.
TEST(LocalStack, FreePortsAreUsable) {
  const auto port = free_port();
  ASSERT_TRUE(port.ok());
  EXPECT_GT(*port, 1023);
  EXPECT_LT(*port, 65536);
}

}  // namespace
}  // namespace windlass::cli
