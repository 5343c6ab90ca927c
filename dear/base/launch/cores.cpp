#include "dear/base/launch/cores.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <sched.h>
#include <string_view>

#include <fmt/format.h>

#include "dear/base/launch/launcher.h"
#include "dear/base/vocabulary/error.h"

namespace dear::launch {
namespace {

// The number of cores in a set; more than Linux can be built for.
constexpr int kMostCores = 1 << 14;
using CoreSet = std::array<cpu_set_t, kMostCores / CPU_SETSIZE>;

}  // namespace

std::vector<int> usable_cores() {
  CoreSet set{};
  std::vector<int> cores;
  if (::sched_getaffinity(0, sizeof set, set.data()) == 0) {
    for (int core = 0; core < kMostCores; ++core) {
      if (CPU_ISSET_S(static_cast<std::size_t>(core), sizeof set, set.data())) {
        cores.push_back(core);
      }
    }
  }
  return cores.empty() ? std::vector{0} : cores;
}

std::vector<int> cores_of_rank(const std::vector<int>& cores, int ranks, int rank) {
  const auto count = static_cast<std::int64_t>(cores.size());
  const std::int64_t begin = rank * count / ranks;
  const std::int64_t end = std::max(begin + 1, (rank + 1) * count / ranks);
  return {cores.begin() + begin, cores.begin() + end};
}

int bind_to(const std::vector<int>& cores) noexcept {
  CoreSet set{};
  for (const int core : cores) {
    CPU_SET_S(static_cast<std::size_t>(core), sizeof set, set.data());
  }
  return ::sched_setaffinity(0, sizeof set, set.data()) == 0 ? 0 : errno;
}

std::optional<int> threads_of_environment() {
  const char* const text = std::getenv("OMP_NUM_THREADS");
  if (text == nullptr || *text == '\0') {
    return std::nullopt;
  }
  // A list such as "4,2" gives nested regions a number of their own; the first number counts here.
  const std::string_view first = std::string_view(text).substr(0, std::string_view(text).find(','));
  int threads = 0;
  const auto [end, error] = std::from_chars(first.data(), first.data() + first.size(), threads);
  if (error != std::errc() || end != first.data() + first.size() || threads < 1 || threads > kMostRanks) {
    throw ConfigError(fmt::format(
        "OMP_NUM_THREADS is '{}', but must be a number from 1 to {}; set one or unset it", text, kMostRanks));
  }
  return threads;
}

}  // namespace dear::launch
