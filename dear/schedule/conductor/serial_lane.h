#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace dear::conductor {

// A thread that runs jobs one after another, in the order in which they are posted.
class SerialLane {
 public:
  // `first` runs on the thread before any job: to name or set up the thread. TransportError when the system
  // starts no more threads.
  explicit SerialLane(std::function<void()> first = {});
  ~SerialLane();  // runs the jobs that were posted, then ends the thread
  SerialLane(const SerialLane&) = delete;
  SerialLane& operator=(const SerialLane&) = delete;

  void post(std::function<void()> job);  // any thread; the job must not throw

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace dear::conductor
