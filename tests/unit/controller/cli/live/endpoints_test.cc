// Tests endpoints.json, which `windlass up` writes for the other commands.
#include "controller/cli/live/endpoints.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "controller/cli/console/service_name.h"
#include "tests/unit/controller/cli/example_objects.h"

namespace windlass::cli {
namespace {

using testing::HasSubstr;

// Given endpoints; expects the same after a round trip through JSON.
TEST(Endpoints, RoundTrip) {
  const Endpoints endpoints{"http://127.0.0.1:9401", "http://127.0.0.1:8080", {"http://127.0.0.1:8081"}};
  const auto back = endpoints_from_json(to_json(endpoints));
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(*back, endpoints);
}

// Given texts that are not endpoints; expects an error for each, and no crash.
TEST(Endpoints, BadTextIsRefused) {
  for (const char* text : {"", "{}", "[]", "{\"controller\": 1}", "{\"controller\": \"x\", \"gateway\": \"y\"}"}) {
    EXPECT_FALSE(endpoints_from_json(text).ok()) << text;
  }
}

// Given a folder where nothing runs; expects an error that says how to start something.
TEST(Endpoints, MissingFolderSaysWhatToDo) {
  EndpointOptions options;
  options.directory = "/nonexistent-windlass";
  const auto endpoints = options.resolve();
  ASSERT_FALSE(endpoints.ok());
  EXPECT_THAT(endpoints.error().message, HasSubstr("windlass up -f FILE --dir /nonexistent-windlass"));
}

// Given a token file with a line end, an empty one, one of two lines, and a missing CA file.
// Expected: the token without its line end; errors that name the other files. No secret is written to endpoints.json.
TEST(Endpoints, AccessIsReadFromFiles) {
  const TempFolder folder;
  EndpointOptions options;
  options.controller_url = "https://127.0.0.1:9401";
  options.server_name = "windlass-controller";
  options.token_file = folder.file("token", "0123456789abcdef\n");
  options.ca_file = folder.file("ca.pem", "-----BEGIN CERTIFICATE-----\n");
  const auto endpoints = options.resolve();
  ASSERT_TRUE(endpoints.ok()) << endpoints.error().message;
  EXPECT_EQ(endpoints->access.token, "0123456789abcdef");
  EXPECT_EQ(endpoints->access.server_name, "windlass-controller");
  EXPECT_THAT(to_json(*endpoints), testing::Not(HasSubstr("0123456789abcdef")));
  for (const char* bad : {"", "\n", "two words", "two\nlines\n"}) {
    options.token_file = folder.file("bad", bad);
    const auto refused = options.resolve();
    ASSERT_FALSE(refused.ok()) << bad;
    EXPECT_THAT(refused.error().message, HasSubstr("bad"));
  }
  options.token_file.clear();
  options.ca_file = (folder.path() / "absent.pem").string();
  EXPECT_FALSE(options.resolve().ok());
}

// Given names on the command line; expects the ModelService's kind to be optional, and other kinds to be rejected.
TEST(ServiceName, KindsAreChecked) {
  EXPECT_EQ(service_name_from("tiny").value_or(""), "tiny");
  EXPECT_EQ(service_name_from("ms/tiny").value_or(""), "tiny");
  EXPECT_EQ(service_name_from("modelservice/tiny").value_or(""), "tiny");
  for (const char* bad : {"pod/tiny", "ms/", "a/b/c", ""}) EXPECT_FALSE(service_name_from(bad).ok()) << bad;
}

}  // namespace
}  // namespace windlass::cli
