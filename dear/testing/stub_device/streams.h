#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "dear/testing/stub_device/stub_device.h"

// The queues behind streams and events. [Note: one lock]: queues, tickets and meetings of ranks change under
// one mutex, so that settle() can tell that nothing will happen any more. Tasks run without it.
namespace dear::stub_device {

class Queue;

// A moment in a queue: what the record of an event stands for.
struct Ticket {
  bool done = false;
  std::chrono::steady_clock::time_point when;
  std::vector<Queue*> waiting;  // queues whose first item waits for it
};
using TicketPtr = std::shared_ptr<Ticket>;

class Streams {
 public:
  // The streams of the process. Their threads end when the process does, and what is enqueued after that is
  // dropped.
  static Streams& all();

  void run(c10::Stream stream, std::string what, std::function<void()> task);
  TicketPtr record(c10::Stream stream);
  void wait(c10::Stream stream, TicketPtr ticket, std::string what = "wait");
  void complete(const TicketPtr& ticket);
  [[nodiscard]] bool is_done(const TicketPtr& ticket);
  [[nodiscard]] double milliseconds(const TicketPtr& from, const TicketPtr& to);

  // Waits of the host. All but those of stub_device.h are counted. They throw what ended the device.
  void synchronize(const TicketPtr& ticket);
  void synchronize(c10::Stream stream) { synchronize(record(stream)); }
  void synchronize_device(c10::DeviceIndex device);
  [[nodiscard]] bool is_idle(c10::Stream stream);
  void count_wait();

  // `before`: see Held.
  void hold(c10::Stream stream, const std::string& before);
  void let_go(c10::Stream stream, const std::string& before);
  void set_capturing(c10::Stream stream, bool capturing);
  [[nodiscard]] bool is_capturing(c10::Stream stream);
  void settle();
  void finish();
  void reset();
  void set_delays(Delays delays);
  void start_record();
  std::vector<Ran> take_record();
  [[nodiscard]] std::int64_t host_waits();
  // Ends the device, as an exception of a kernel does.
  void fail(const std::exception_ptr& error);

 private:
  friend class Queue;
  void stop();
  using Lock = std::unique_lock<std::mutex>;
  Queue& queue(c10::Stream stream);
  void complete_locked(Ticket& ticket);
  void await(Lock& lock, const std::function<bool()>& done, const char* what);
  [[nodiscard]] std::string stuck() const;

  std::mutex mutex_;
  std::condition_variable changed_;  // for threads of the host that wait
  int monitoring_ = 0;               // so many of them
  std::map<std::pair<c10::DeviceIndex, c10::StreamId>, std::unique_ptr<Queue>> queues_;
  std::exception_ptr error_;
  Delays delays_;
  std::int64_t host_waits_ = 0;
  bool recording_ = false, stopping_ = false;
  std::vector<Ran> record_;
};

class Queue {
 public:
  Queue(Streams& streams, c10::DeviceIndex device, c10::StreamId stream);
  void join() { thread_.join(); }

 private:
  friend class Streams;
  struct Item {
    std::string what;
    std::function<void()> run;  // null: waits for the ticket
    TicketPtr ticket;           // to wait for, or to complete once `run` has run
  };
  void loop();
  void seed();
  [[nodiscard]] bool ready() const;
  [[nodiscard]] bool settled() const { return !running_ && (items_.empty() || !ready()); }

  Streams& streams_;
  const c10::DeviceIndex device_;
  const c10::StreamId stream_;
  std::deque<Item> items_;
  std::condition_variable wake_;
  std::minstd_rand random_;
  std::multiset<std::string> held_before_;  // "": any task
  bool capturing_ = false;
  bool running_ = false;
  std::thread thread_;
};

}  // namespace dear::stub_device
