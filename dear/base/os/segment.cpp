#include "dear/base/os/segment.h"

#include <cerrno>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <utility>

#include <fmt/format.h>

#include "dear/base/os/huge_pages.h"
#include "dear/base/os/memory.h"
#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/units.h"

namespace dear::os {
namespace {

[[noreturn]] void refuse(std::int64_t bytes, const std::string& purpose, const char* remedy,
                         int error_number) {
  throw TransportError(with_errno(
      fmt::format("cannot allocate {} of shared memory for {} ({})", format_bytes(bytes), purpose, remedy),
      error_number));
}

// Growing a file past this limit does not fail; it sends SIGXFSZ, which kills.
void respect_file_size_limit(std::int64_t bytes, const std::string& purpose) {
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
      static_cast<rlim_t>(bytes) > limit.rlim_cur) {
    refuse(bytes, purpose, "raise the limit on file size: ulimit -f unlimited", EFBIG);
  }
}

}  // namespace

Segment::Segment(FileDescriptor file, std::int64_t bytes) : file_(std::move(file)), bytes_(bytes) {
  void* memory = map_for_huge_pages(file_.get(), bytes);
  if (memory == MAP_FAILED) {
    refuse(bytes, "a mapping", "too many mappings, or a limit on address space: see ulimit -v", errno);
  }
  data_ = static_cast<std::byte*>(memory);
}

Segment::~Segment() { munmap(data_, static_cast<std::size_t>(bytes_)); }

std::shared_ptr<Segment> Segment::create(std::int64_t bytes, const std::string& purpose) {
  require_memory(bytes, purpose);
  respect_file_size_limit(bytes, purpose);
  FileDescriptor file(memfd_create("dear", MFD_CLOEXEC));
  if (!file.is_open()) {
    refuse(bytes, purpose, "see ulimit -n", errno);
  }
  if (fchmod(file.get(), S_IRUSR | S_IWUSR) != 0 || ftruncate(file.get(), bytes) != 0) {
    refuse(bytes, purpose, "the kernel refused the segment", errno);
  }
  auto segment = std::shared_ptr<Segment>(new Segment(std::move(file), bytes));
  make_huge_pages(segment->file(), segment->data(), bytes);
  int failed = 0;
  do {
    failed = fallocate(segment->file(), 0, 0, bytes);
  } while (failed != 0 && errno == EINTR);
  if (failed != 0) {
    refuse(bytes, purpose, "use fewer ranks, a smaller model or more memory", errno);
  }
  return segment;
}

std::shared_ptr<Segment> Segment::map(FileDescriptor file, std::int64_t bytes) {
  auto segment = std::shared_ptr<Segment>(new Segment(std::move(file), bytes));
  segment->close_file();
  return segment;
}

}  // namespace dear::os
