// Files written atomically, and what remains after a failure.
#include "metrics/host/whole_file.h"

#include <fstream>
#include <iterator>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

namespace windlass {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class WholeFile : public testing::Test {
 protected:
  WholeFile() { fs::create_directories(folder_); }
  ~WholeFile() override { fs::remove_all(folder_); }
  static std::string text_of(const fs::path& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  }
  [[nodiscard]] std::size_t entries() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }

  fs::path folder_ = fs::path(testing::TempDir()) / ("windlass-whole-file-" + std::to_string(::getpid()));
};

// Given a missing and then an existing file, and any bytes; expects exactly these bytes each time, in a new file, with the
// umask's mode, and no other file.
TEST_F(WholeFile, HoldsExactlyTheBytes) {
  const fs::path file = folder_ / "a";
  for (const std::string& bytes : {std::string("one\0\n\xff", 6), std::string(5'000'000, 'x'), std::string()}) {
    ASSERT_TRUE(write_whole_file(file, bytes).ok());
    EXPECT_EQ(text_of(file), bytes);
  }
  EXPECT_EQ(entries(), 1U);
  const mode_t mask = ::umask(077);
  EXPECT_TRUE(write_whole_file(file, "secret").ok());
  EXPECT_EQ(fs::status(file).permissions(), fs::perms(0600));
  fs::create_hard_link(file, folder_ / "before");
  ::umask(022);
  EXPECT_TRUE(write_whole_file(file, "public").ok());
  ::umask(mask);
  EXPECT_EQ(fs::status(file).permissions(), fs::perms(0644));
  EXPECT_EQ(text_of(folder_ / "before"), "secret");  // an open reader still reads the old contents
}

// Given a folder at the path, and a missing folder; expects the reason of the failure, and nothing left behind.
TEST_F(WholeFile, SaysWhyItCannotBeWritten) {
  fs::create_directory(folder_ / "taken");
  EXPECT_THAT(write_whole_file(folder_ / "taken", "x").error().message, HasSubstr("taken: cannot be written: Is a directory"));
  EXPECT_THAT(write_whole_file(folder_ / "none/a", "x").error().message, HasSubstr("none/a: cannot be written: No such file"));
  EXPECT_EQ(entries(), 1U);
}

// Given a draft left by a killed writer, and then two threads that write alternately; expects only complete texts at any time,
// and no draft at the end.
TEST_F(WholeFile, HasOneWriterAtATime) {
  const fs::path file = folder_ / "a";
  std::ofstream(folder_ / "a.new") << std::string(100'000, 'z');
  const std::string one(20'000, 'x'), other(10'000, 'y');
  ASSERT_TRUE(write_whole_file(file, one).ok());
  const auto write = [&](const std::string& text) {
    for (int i = 0; i < 200; ++i) EXPECT_TRUE(write_whole_file(file, text).ok());
  };
  std::thread first(write, one), second(write, other);
  for (int i = 0; i < 200; ++i) {
    const std::string seen = text_of(file);
    EXPECT_TRUE(seen == one || seen == other) << seen.size();
  }
  first.join();
  second.join();
  EXPECT_EQ(entries(), 1U);
}

}  // namespace
}  // namespace windlass
