#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "dear/base/vocabulary/deadline.h"
#include "dear/platform/algorithm/chunk_plan.h"

namespace dear::grid {

// The lanes of a chunk plan on this rank. Each serves its phases in the order of the plan, a phase as soon as
// the one before it in its chunk and the one before it on its lane are done here; no rank is asked. The first
// lane is the thread that calls, each further one has a thread of its own.
class Lanes {
 public:
  explicit Lanes(int most);
  Lanes(const Lanes&) = delete;
  Lanes& operator=(const Lanes&) = delete;
  ~Lanes();

  // Does a phase, and returns when it is done. `ready` is when the phase before it in its chunk was, or
  // run() was called.
  using Serve = std::function<void(algorithm::ChunkPhase phase, SteadyTime ready)>;
  // Is told the first error, on the thread that met it: makes the others end what they are at.
  using Fail = std::function<void(const std::exception& error)>;

  // Does all phases of a valid plan of at most so many lanes. Returns, or throws the first error, when no
  // thread is at work any more. A plan of one chunk or of one lane runs on the calling thread alone.
  void run(const algorithm::ChunkPlan& plan, const Serve& serve, const Fail& fail);

 private:
  struct Lane {
    std::condition_variable changed;
    bool begins = false;
    std::thread thread;
  };
  struct Job {
    const algorithm::ChunkPlan& plan;
    const Serve& serve;
    const Fail& fail;
    std::vector<int> done;          // steps, by chunk
    std::vector<SteadyTime> ready;  // by chunk, since when the next may begin
    int at_work = 0;                // lanes
    std::exception_ptr error{};
  };
  void wait_for_jobs(int number);
  void serve_lane(Job& job, int number);
  void fail(Job& job, std::exception_ptr error);

  std::mutex mutex_;
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::condition_variable finished_;
  Job* job_ = nullptr;
  bool stopping_ = false;
};

}  // namespace dear::grid
