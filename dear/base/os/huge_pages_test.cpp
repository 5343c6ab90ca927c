#include "dear/base/os/huge_pages.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <string>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "dear/base/os/file_descriptor.h"
#include "dear/base/os/segment.h"

namespace dear::os::huge_pages_test {
namespace {

bool begins_a_huge_page(const void* memory) {
  return reinterpret_cast<std::uintptr_t>(memory) % kHugePageBytes == 0;
}

bool is_zero(const std::byte* data, std::int64_t bytes) {
  return std::all_of(data, data + bytes, [](std::byte value) { return value == std::byte{0}; });
}

// KiB of shared memory that the mapping at this address has in huge pages.
long huge_kib_at(const std::byte* data) {
  std::ifstream maps("/proc/self/smaps");
  char begin[32];
  std::snprintf(begin, sizeof begin, "%lx-", reinterpret_cast<unsigned long>(data));
  bool found = false;
  for (std::string line; std::getline(maps, line);) {
    found = found || line.starts_with(begin);
    if (found && line.starts_with("ShmemPmdMapped:")) return std::stol(line.substr(15));
  }
  return -1;
}

TEST(HugePages, EveryMappingOfTheirSizeBeginsWhereOneCan) {
  for (const std::int64_t bytes : {std::int64_t{1}, std::int64_t{4096}, kHugePageBytes - 1, kHugePageBytes,
                                   kHugePageBytes + 1, 3 * kHugePageBytes + 4097}) {
    void* const memory = map_for_huge_pages(-1, bytes);
    ASSERT_NE(memory, MAP_FAILED);
    EXPECT_TRUE(bytes < kHugePageBytes || begins_a_huge_page(memory)) << bytes;
    EXPECT_TRUE(is_zero(static_cast<std::byte*>(memory), bytes));
    std::memset(memory, 1, static_cast<std::size_t>(bytes));
    munmap(memory, static_cast<std::size_t>(bytes));
  }
}

TEST(HugePages, LeaveNothingMappedBesides) {
  const auto address_space_bytes = [] {
    std::int64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    return pages * sysconf(_SC_PAGESIZE);
  };
  const std::int64_t bytes = 2 * kHugePageBytes + 4096;
  const std::int64_t before = address_space_bytes();
  for (int i = 0; i < 20; ++i) munmap(map_for_huge_pages(-1, bytes), static_cast<std::size_t>(bytes));
  EXPECT_LT(address_space_bytes() - before, 4 * kHugePageBytes);
}

TEST(HugePages, OfAFileThatIsNoneAreRefused) {
  EXPECT_EQ(map_for_huge_pages(1 << 20, kHugePageBytes), MAP_FAILED);
  EXPECT_EQ(errno, EBADF);
}

// What two mappings of a segment see is the same, whether the kernel had huge pages or not.
TEST(HugePages, OfASegmentAreZeroAndShared) {
  for (const std::int64_t bytes : {kHugePageBytes - 4096, kHugePageBytes, 5 * kHugePageBytes + 12345}) {
    const auto segment = Segment::create(bytes, "a test");
    EXPECT_TRUE(is_zero(segment->data(), bytes));
    const auto other = Segment::map(FileDescriptor(dup(segment->file())), bytes);
    ASSERT_NE(segment->data(), other->data());
    segment->data()[bytes - 1] = std::byte{7};
    other->data()[0] = std::byte{8};
    EXPECT_EQ(other->data()[bytes - 1], std::byte{7});
    EXPECT_EQ(segment->data()[0], std::byte{8});
  }
}

TEST(HugePages, AreThoseOfEveryMapping) {
  FileDescriptor file(memfd_create("test", MFD_CLOEXEC));
  const std::int64_t bytes = 2 * kHugePageBytes + 4096;
  ASSERT_EQ(ftruncate(file.get(), bytes), 0);
  auto* const data = static_cast<std::byte*>(map_for_huge_pages(file.get(), bytes));
  auto* const other = static_cast<std::byte*>(map_for_huge_pages(file.get(), bytes));
  ASSERT_NE(data, MAP_FAILED);
  ASSERT_NE(other, MAP_FAILED);
  const bool made = make_huge_pages(file.get(), data, bytes);
  EXPECT_TRUE(is_zero(data, bytes));
  EXPECT_TRUE(is_zero(other, bytes));
  const long kib = huge_kib_at(data);
  if (made && kib >= 0) {
    EXPECT_EQ(kib, 2 * kHugePageBytes / 1024);
    EXPECT_EQ(huge_kib_at(other), 2 * kHugePageBytes / 1024);
  }
  munmap(data, static_cast<std::size_t>(bytes));
  munmap(other, static_cast<std::size_t>(bytes));
  EXPECT_FALSE(make_huge_pages(-1, data, kHugePageBytes));
}

}  // namespace
}  // namespace dear::os::huge_pages_test
