#pragma once

#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <system_error>
#include <thread>
#include <unistd.h>

namespace dear::os::testing {

// The letter of /proc/PID/task/TID/stat that says what a thread does: R runs or is ready to, S sleeps. A
// space for a thread that has ended.
inline char state_of_thread(const std::filesystem::path& thread) {
  std::ifstream file(thread / "stat");
  std::string text;
  std::getline(file, text);
  const std::size_t name_end = text.rfind(')');  // the thread's name may hold anything
  return name_end == std::string::npos || name_end + 2 >= text.size() ? ' ' : text[name_end + 2];
}

// Returns once each thread that a process of this host now has, but for the calling thread, was found asleep
// 100 times or has ended. A thread that spins is never found asleep. No clock is read, so a busy machine
// delays the answer and does not change it.
inline void await_sleep_of(pid_t process) {
  constexpr int kTimes = 100;
  const std::string calling = std::to_string(::gettid());
  std::map<std::filesystem::path, int> times;
  std::error_code gone;
  for (const auto& thread :
       std::filesystem::directory_iterator("/proc/" + std::to_string(process) + "/task", gone)) {
    if (thread.path().filename() != calling) times[thread.path()] = 0;
  }
  while (!times.empty()) {
    for (auto& [thread, found] : times) {
      const char state = state_of_thread(thread);
      if (state == 'S') ++found;
      if (state == ' ') found = kTimes;
    }
    std::erase_if(times, [](const auto& one) { return one.second >= kTimes; });
    std::this_thread::yield();
  }
}

}  // namespace dear::os::testing
