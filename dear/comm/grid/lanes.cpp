#include "dear/comm/grid/lanes.h"

#include <algorithm>
#include <pthread.h>
#include <utility>

#include "dear/base/os/prompt_thread.h"
#include "dear/base/os/start_thread.h"
#include "dear/base/vocabulary/ids.h"

namespace dear::grid {
Lanes::Lanes(int most) {
  for (int number = 0; number < most; ++number) lanes_.push_back(std::make_unique<Lane>());
}

Lanes::~Lanes() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  for (const auto& lane : lanes_) {
    lane->changed.notify_all();
    if (lane->thread.joinable()) lane->thread.join();
  }
}

void Lanes::run(const algorithm::ChunkPlan& plan, const Serve& serve, const Fail& fail) {
  Job job{.plan = plan,
          .serve = serve,
          .fail = fail,
          .done = std::vector<int>(index_of(plan.chunks()), 0),
          .ready = std::vector<SteadyTime>(index_of(plan.chunks()), SteadyClock::now())};
  std::vector<int> busy;
  for (int number = 0; index_of(number) < plan.service.size(); ++number) {
    if (!plan.service[index_of(number)].empty()) busy.push_back(number);
  }
  if (busy.empty()) return;
  if (plan.chunks() == 1 || busy.size() == 1) {
    for (const algorithm::ChunkPhase& phase : algorithm::in_order(plan)) {
      try {
        serve(phase, job.ready[index_of(phase.chunk)]);
      } catch (const std::exception& error) {
        fail(error);
        throw;
      }
      job.ready[index_of(phase.chunk)] = SteadyClock::now();
    }
    return;
  }
  for (auto other = busy.begin() + 1; other != busy.end(); ++other) {
    Lane& lane = *lanes_[index_of(*other)];
    if (lane.thread.joinable()) continue;
    lane.thread = os::start_thread("of a lane", [this, number = *other] {
      os::make_this_thread_prompt();
      wait_for_jobs(number);
    });
    pthread_setname_np(lane.thread.native_handle(), "dear-lane");
  }
  {
    const std::lock_guard lock(mutex_);
    job_ = &job;
    job.at_work = static_cast<int>(busy.size()) - 1;
    for (auto other = busy.begin() + 1; other != busy.end(); ++other) lanes_[index_of(*other)]->begins = true;
  }
  for (auto other = busy.begin() + 1; other != busy.end(); ++other)
    lanes_[index_of(*other)]->changed.notify_one();
  serve_lane(job, busy.front());
  {
    std::unique_lock lock(mutex_);
    finished_.wait(lock, [&] { return job.at_work == 0; });
    job_ = nullptr;
  }
  if (job.error) std::rethrow_exception(job.error);
}

void Lanes::wait_for_jobs(int number) {
  Lane& lane = *lanes_[index_of(number)];
  for (;;) {
    Job* job = nullptr;
    {
      std::unique_lock lock(mutex_);
      lane.changed.wait(lock, [&] { return stopping_ || lane.begins; });
      if (stopping_) return;
      lane.begins = false;
      job = job_;
    }
    serve_lane(*job, number);
    const std::lock_guard lock(mutex_);
    if (--job->at_work == 0) finished_.notify_one();
  }
}

void Lanes::serve_lane(Job& job, int number) {
  for (const algorithm::ChunkPhase& phase : job.plan.service[index_of(number)]) {
    const std::size_t chunk = index_of(phase.chunk);
    SteadyTime ready;
    {
      std::unique_lock lock(mutex_);
      lanes_[index_of(number)]->changed.wait(lock,
                                             [&] { return job.error || job.done[chunk] == phase.step; });
      if (job.error) return;
      ready = job.ready[chunk];
    }
    try {
      job.serve(phase, ready);
    } catch (const std::exception&) {
      fail(job, std::current_exception());
      return;
    }
    const algorithm::ChunkPhase next{.chunk = phase.chunk, .step = phase.step + 1};
    const std::lock_guard lock(mutex_);
    job.done[chunk] = next.step;
    job.ready[chunk] = SteadyClock::now();
    if (next.step < job.plan.steps()) {
      lanes_[index_of(job.plan.lanes[index_of(job.plan.dimension_of(next))])]->changed.notify_one();
    }
  }
}

void Lanes::fail(Job& job, std::exception_ptr error) {
  {
    const std::lock_guard lock(mutex_);
    if (job.error) return;
    job.error = error;
  }
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& first) {
    job.fail(first);
  }
  for (const auto& lane : lanes_) lane->changed.notify_one();
}

}  // namespace dear::grid
