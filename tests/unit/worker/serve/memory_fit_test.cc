// Memory before loading: what is left below the limits that files name, and whether a model fits, or what would.
#include "worker/serve/memory_fit.h"

#include <regex>

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/unit/worker/model_files.h"

namespace windlass::worker {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using testing::TemporaryFolder;

// A root folder with such files.
class HostFiles : public ::testing::Test {
 protected:
  void write(const std::string& file, const std::string& text) {
    const auto path = root_.path() / file;
    std::filesystem::create_directories(path.parent_path());
    testing::write_bytes(path, text);
  }
  [[nodiscard]] HostMemory found() const { return host_memory(root_.path()); }

  TemporaryFolder root_;
};

// Given no files, nothing limits; given a machine's alone, what is available and the swap space.
TEST_F(HostFiles, TheMachine) {
  EXPECT_FALSE(found().shared.has_value());
  EXPECT_FALSE(found().address_space.has_value());
  write("proc/meminfo", "MemTotal: 900 kB\nMemAvailable:     500 kB\nSwapTotal: 9 kB\nSwapFree:  4 kB\n");
  EXPECT_EQ(found().shared, (MemoryRoom{504 * 1024, "MemAvailable"}));
}

// Given groups of version 2 within each other, the least of them counts, without pages of files that can be dropped, and with
// the swap space that the group may use; a group without a limit does not.
TEST_F(HostFiles, ControlGroupsOfVersion2) {
  write("proc/meminfo", "MemAvailable: 1000000 kB\nSwapFree: 2 kB\n");
  write("proc/self/cgroup", "0::/pods/one\n");
  write("sys/fs/cgroup/pods/one/memory.max", "max\n");
  write("sys/fs/cgroup/pods/one/memory.current", "700000\n");
  EXPECT_EQ(found().shared->limit, "MemAvailable");
  write("sys/fs/cgroup/pods/memory.max", "900000\n");
  write("sys/fs/cgroup/pods/memory.current", "800000\n");
  write("sys/fs/cgroup/pods/memory.stat", "anon 1\nfile 9\nactive_file 100\ninactive_file 200\nslab_reclaimable 300\n");
  EXPECT_EQ(found().shared, (MemoryRoom{100600 + 2048, "/sys/fs/cgroup/pods/memory.max"}));
  write("sys/fs/cgroup/pods/memory.swap.max", "1000\n");
  write("sys/fs/cgroup/pods/memory.swap.current", "400\n");
  EXPECT_EQ(found().shared->bytes, 100600 + 600);
  write("sys/fs/cgroup/pods/one/memory.max", "750000\n");
  EXPECT_EQ(found().shared, (MemoryRoom{50000 + 2048, "/sys/fs/cgroup/pods/one/memory.max"}));
}

// Given a container of version 1 that sees the host's path but its own group alone, that group's limit counts; a number that
// stands for none does not.
TEST_F(HostFiles, ControlGroupsOfVersion1) {
  write("proc/self/cgroup", "5:cpu,cpuacct:/docker/x\n4:hugetlb,memory:/docker/x\n0::/\n");
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  write("sys/fs/cgroup/memory/memory.usage_in_bytes", "5000\n");
  EXPECT_FALSE(found().shared.has_value());
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "8000\n");
  write("sys/fs/cgroup/memory/memory.stat", "cache 9\ntotal_active_file 500\ntotal_inactive_file 700\n");
  EXPECT_EQ(found().shared, (MemoryRoom{4200, "/sys/fs/cgroup/memory/memory.limit_in_bytes"}));
  write("sys/fs/cgroup/memory/memory.usage_in_bytes", "100000\n");
  EXPECT_EQ(found().shared->bytes, 0);
}

// Given a limit on the address space, what is mapped already is taken off; without one nothing limits.
TEST_F(HostFiles, TheAddressSpace) {
  const std::int64_t page = ::sysconf(_SC_PAGESIZE);
  const auto limits = [](const std::string& soft) {
    return "Limit                     Soft Limit           Hard Limit           Units     \nMax address space         " + soft +
           "           unlimited            bytes     \n";
  };
  write("proc/self/statm", "30 5 4 1 0 2 0\n");
  write("proc/self/limits", limits("unlimited"));
  EXPECT_FALSE(found().address_space.has_value());
  write("proc/self/limits", limits(std::to_string(100 * page)));
  EXPECT_EQ(found().address_space, (MemoryRoom{70 * page, "ulimit -v"}));
}

// Given this machine itself, there is some memory.
TEST(HostMemory, OfThisMachine) {
  const HostMemory memory = host_memory();
  ASSERT_TRUE(memory.shared.has_value());
  EXPECT_GT(memory.shared->bytes, 1'000'000);
}

// One and a half billion numbers, of which two thirds are in matrices: 6 GB, 4 as BF16, about 3 with eight bits.
HostMemoryNeed large_model() {
  HostMemoryNeed need;
  need.weights = {1'000'000'000, 1'000'000, 500'000'000, 6'000'000'000, 0};
  need.rank_weights = need.weights;
  need.kv_bytes_per_token = 100'000;
  need.kv_tokens = 16'000;
  need.max_context_tokens = 4'000;
  return need;
}

HostMemory with_room(std::int64_t bytes) { return {MemoryRoom{bytes, "MemAvailable"}, std::nullopt}; }

std::string refusal(const HostMemoryNeed& need, const HostMemory& memory) {
  const auto checked = check_memory(need, memory);
  EXPECT_FALSE(checked.ok());
  if (checked.ok()) return "";
  EXPECT_EQ(checked.error().code, ErrorCode::kResourceExhausted);
  return checked.error().message;
}

// Given room for all, or for nearly all, or limits that nobody names, it is let try.
TEST(MemoryFit, WhatFitsIsNotRefused) {
  EXPECT_TRUE(check_memory(large_model(), with_room(7'600'000'000)).ok());
  EXPECT_TRUE(check_memory(large_model(), with_room(7'240'000'000)).ok());
  EXPECT_FALSE(check_memory(large_model(), with_room(7'230'000'000)).ok());
  EXPECT_TRUE(check_memory(large_model(), {}).ok());
  HostMemoryNeed huge = large_model();
  huge.kv_tokens = 1LL << 40U;
  EXPECT_FALSE(check_memory(huge, with_room(7'600'000'000)).ok());
  EXPECT_TRUE(check_growth(-5, with_room(0)).ok());
  EXPECT_TRUE(check_growth(1050, with_room(1000)).ok());
  EXPECT_EQ(check_growth(3'000'000'000, with_room(1'000'000'000)).error().message,
            "memory: 2.00 GB are missing: 3.00 GB more are needed, of 1.00 GB that are left (MemAvailable)");
}

// Given room for the weights alone, the message says what is missing and the largest cache that fits, with a smaller context
// where it is less than one; given room for the weights of fewer bits, the first format; given too little for any, that.
TEST(MemoryFit, SaysWhatWouldFit) {
  EXPECT_EQ(refusal(large_model(), with_room(7'000'000'000)),
            "memory: 0.60 GB are missing: weights take 6.00 GB as fp32, a KV cache of 16000 tokens 1.60 GB and buffers "
            "0.00 GB, of 7.00 GB that are left (MemAvailable); --kv-cache-tokens 6496 would fit");
  EXPECT_THAT(refusal(large_model(), with_room(6'500'000'000)),
              HasSubstr("; --max-context-tokens 1744 --kv-cache-tokens 1744 would fit"));
  EXPECT_THAT(refusal(large_model(), with_room(6'100'000'000)), HasSubstr("; --weights bf16 (4.00 GB) would fit"));
  EXPECT_THAT(refusal(large_model(), with_room(6'100'000'000)), Not(HasSubstr("would fit with")));
  EXPECT_THAT(refusal(large_model(), with_room(5'000'000'000)),
              HasSubstr("; --weights bf16 (4.00 GB) would fit with --kv-cache-tokens 7488"));
  EXPECT_THAT(refusal(large_model(), with_room(4'000'000'000)), HasSubstr("; --weights int8 (3.00 GB) would fit with"));
  EXPECT_THAT(refusal(large_model(), with_room(1'000'000'000)), HasSubstr("; no format of --weights would fit"));
  HostMemoryNeed small = large_model();
  HostMemoryNeed quantised = large_model();
  quantised.weights.block_bytes = quantised.rank_weights.block_bytes = 1'200'000'000;
  EXPECT_THAT(refusal(quantised, with_room(4'000'000'000)), HasSubstr("; --weights blocks (1.20 GB) would fit"));
  small.format = WeightFormat::kInt8;
  EXPECT_THAT(refusal(small, with_room(2'000'000'000)), HasSubstr("; no format of --weights would fit"));
}

// Given two ranks and a limit on the address space of each, one rank's weights count there, and all ranks' where the machine's
// memory is what limits.
TEST(MemoryFit, RanksShareTheMachine) {
  HostMemoryNeed need = large_model();
  need.rank_weights = {500'000'000, 500'000, 250'000'000, 3'000'000'000, 0};
  EXPECT_TRUE(check_memory(need, {std::nullopt, MemoryRoom{4'700'000'000, "ulimit -v"}}).ok());
  EXPECT_THAT(refusal(need, {std::nullopt, MemoryRoom{4'000'000'000, "ulimit -v"}}), HasSubstr("weights take 3.00 GB as fp32"));
  EXPECT_THAT(refusal(need, with_room(4'700'000'000)), HasSubstr("weights take 6.00 GB as fp32"));
}

// Given a small room, advice leaves what requests and threads may need, and the buffers of a step; of one rank where its
// address space is what limits.
TEST(MemoryFit, AdviceLeavesRoomForRequests) {
  HostMemoryNeed need;
  need.weights = {100'000'000, 0, 0, 400'000'000, 0};
  need.rank_weights = {50'000'000, 0, 0, 200'000'000, 0};
  need.step_bytes = 20'000'000;
  need.rank_step_bytes = 10'000'000;
  need.kv_bytes_per_token = 10'000;
  need.kv_tokens = 160'000;
  need.max_context_tokens = 160;
  const std::int64_t weights = need.weights.bytes(need.format);
  EXPECT_THAT(refusal(need, with_room(weights + 20'000'000 + 64'000'000 + 10'000'000)),
              HasSubstr("and buffers 0.02 GB, of 0.49 GB"));
  EXPECT_THAT(refusal(need, with_room(weights + 20'000'000 + 64'000'000 + 10'000'000)),
              HasSubstr("--kv-cache-tokens 992 would"));
  EXPECT_THAT(refusal(need, {std::nullopt, MemoryRoom{weights / 2 + 10'000'000 + 64'000'000 + 10'000'000, "ulimit -v"}}),
              HasSubstr("--kv-cache-tokens 992 would"));
}

// Given any room, what the message advises is not refused.
TEST(MemoryFit, AdviceFits) {
  for (std::int64_t room = 3'300'000'000; room < 7'000'000'000; room += 37'000'000) {
    HostMemoryNeed need = large_model();
    const std::string message = refusal(need, with_room(room));
    std::smatch found;
    if (std::regex_search(message, found, std::regex("--kv-cache-tokens ([0-9]+)"))) need.kv_tokens = std::stoll(found[1]);
    if (std::regex_search(message, found, std::regex("--weights ([a-z0-9]+) \\(")))
      need.format = weight_format_from_string(found[1].str()).value();
    EXPECT_TRUE(check_memory(need, with_room(room)).ok()) << message;
  }
}

}  // namespace
}  // namespace windlass::worker
