// Files that are nearly right, of every kind that DeAR reads: each is read, or refused with one sentence, and
// neither takes long nor fills the memory.

#include "tests/readers/readers.h"

#include "tests/readers/mutator.h"
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "dear/base/os/testing/rounds.h"
#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/printable.h"

namespace dear::readers_test {
namespace {

constexpr std::uint64_t kSeed = 32;  // that many more by --gtest_random_seed=N
constexpr std::size_t kMutants = 2'000;
constexpr int kMostProcessorSeconds = 5;
constexpr rlim_t kMostBytes = rlim_t{512} << 20;

constexpr bool kMeasuresMemory = !testing::kSanitizer;  // a sanitizer's shadow is larger than any limit

volatile std::sig_atomic_t under_way = 0;  // the mutant

extern "C" void say_that_it_takes_too_long(int) {
  char text[64];
  const int length =
      std::snprintf(text, sizeof text, "mutant %d takes too long\n", static_cast<int>(under_way));
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, text, static_cast<std::size_t>(length));
  ::_exit(1);
}

// Of the address space of this process, above what it has now.
class MemoryLimit {
 public:
  MemoryLimit() {
    ::getrlimit(RLIMIT_AS, &before_);
    std::size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const rlimit limit{.rlim_cur = pages * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE)) + kMostBytes,
                       .rlim_max = before_.rlim_max};
    if (kMeasuresMemory) ::setrlimit(RLIMIT_AS, &limit);
  }
  ~MemoryLimit() { ::setrlimit(RLIMIT_AS, &before_); }
  MemoryLimit(const MemoryLimit&) = delete;
  MemoryLimit& operator=(const MemoryLimit&) = delete;

 private:
  rlimit before_{};
};

void set_timer(int seconds) {
  const itimerval timer{.it_interval = {}, .it_value = {.tv_sec = seconds, .tv_usec = 0}};
  ::setitimer(ITIMER_VIRTUAL, &timer, nullptr);
}

// What is wrong with how it ends; "" for a file that is read, or refused with one sentence.
std::string fault_of(const Reader& reader, const std::string& mutant) {
  try {
    set_timer(kMostProcessorSeconds);
    reader.use(mutant);
    set_timer(0);
    return "";
  } catch (const ConfigError& error) {
    set_timer(0);
    const std::string said = error.what();
    if (said.empty() || said.size() > 10'000) return "says " + std::to_string(said.size()) + " characters";
    return is_printable(said) ? "" : "says what a terminal obeys: " + printable(said);
  } catch (const std::exception& error) {
    set_timer(0);
    return std::string("ends otherwise: ") + error.what();
  }
}

class Readers : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(folder_);
    std::signal(SIGVTALRM, say_that_it_takes_too_long);
  }
  void TearDown() override {
    std::signal(SIGVTALRM, SIG_DFL);
    std::filesystem::remove_all(folder_);
  }
  const std::string folder_ =
      (std::filesystem::temp_directory_path() / ("dear-readers-" + std::to_string(::getpid()))).string();
};

TEST_F(Readers, ReadWhatIsGood) {
  for (const Reader& reader : readers(folder_)) EXPECT_NO_THROW(reader.use(reader.good)) << reader.name;
}

TEST_F(Readers, RefuseWhatIsNearlyGoodWithOneSentence) {
  const std::vector<Reader> all = readers(folder_);
  Mutator mutator(kSeed + static_cast<std::uint64_t>(GTEST_FLAG_GET(random_seed)));
  const MemoryLimit limit;
  for (std::size_t m = 0; m < kMutants; ++m) {
    const Reader& reader = all[m % all.size()];
    const std::string mutant = mutator.mutant_of(reader.good, reader.json);
    under_way = static_cast<int>(m);
    EXPECT_EQ(fault_of(reader, mutant), "") << "mutant " << m << ", " << reader.name;
  }
}

}  // namespace
}  // namespace dear::readers_test
