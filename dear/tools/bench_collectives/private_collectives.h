#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <sys/mman.h>

#include "dear/base/os/huge_pages.h"
#include "dear/tools/bench_collectives/collectives.h"

namespace dear::bench_collectives {

struct Free {
  void operator()(std::byte* memory) const { std::free(memory); }
};
using PrivateMemory = std::unique_ptr<std::byte, Free>;

enum class Pages : std::uint8_t {
  usual,  // as malloc gives them
  huge    // where the kernel has some, as DeAR's buffers are (base/os/huge_pages.h)
};

// Memory of one process, on page boundaries and touched. bad_alloc when there is none.
inline PrivateMemory allocate_private(std::int64_t bytes, Pages pages = Pages::usual) {
  const bool huge = pages == Pages::huge && bytes >= os::kHugePageBytes;
  const auto page = static_cast<std::size_t>(huge ? os::kHugePageBytes : 4096);
  const std::size_t rounded = (static_cast<std::size_t>(bytes) + page - 1) / page * page;
  PrivateMemory memory(static_cast<std::byte*>(std::aligned_alloc(page, rounded)));
  if (!memory) {
    throw std::bad_alloc();
  }
  if (huge) madvise(memory.get(), rounded, MADV_HUGEPAGE);
  std::memset(memory.get(), 0, rounded);
  return memory;
}

// Collectives on vectors in memory of this process alone. The shard of a rank is one of as many equal blocks
// as there are ranks.
class PrivateCollectives : public Collectives {
 public:
  explicit PrivateCollectives(int ranks) : ranks_(ranks) {}

  [[nodiscard]] Range shard(const Call& call, int rank) const override {
    const std::int64_t block = call.count / ranks_;
    return {rank * block, (rank + 1) * block};
  }
  [[nodiscard]] const std::byte* reduced_shard(const Call&) const override { return nullptr; }
  void prepare(std::int64_t bytes, std::int64_t output_bytes) override {
    data_ = allocate_private(bytes);
    if (output_bytes > 0) output_ = allocate_private(output_bytes);
  }
  [[nodiscard]] std::byte* data() const override { return data_.get(); }
  [[nodiscard]] std::byte* output() const override { return output_.get(); }

 protected:
  PrivateMemory data_, output_;

 private:
  int ranks_;
};

}  // namespace dear::bench_collectives
