#include "studies/training/threads.h"

#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace dear::studies::training {

void for_each_in_threads(std::size_t count, const std::function<void(std::size_t)>& work,
                         std::string_view name, const studies::Progress& progress) {
  studies::Pieces pieces(progress, name, count);
  std::atomic<std::size_t> next = 0;
  std::mutex mutex;
  std::exception_ptr error;
  const auto take_turns = [&] {
    for (std::size_t i = next++; i < count; i = next++) {
      try {
        work(i);
        pieces.done_one();
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!error) error = std::current_exception();
        next = count;
      }
    }
  };
  {
    std::vector<std::jthread> threads;
    for (unsigned i = 1; i < std::thread::hardware_concurrency(); ++i) threads.emplace_back(take_turns);
    take_turns();
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace dear::studies::training
