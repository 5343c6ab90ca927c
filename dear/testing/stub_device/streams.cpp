#include "dear/testing/stub_device/streams.h"

#include <algorithm>
#include <pthread.h>
#include <sstream>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/record_function.h>
#include <c10/util/Exception.h>

namespace dear::stub_device {
namespace {

constexpr std::chrono::minutes kDeadline(2);

}  // namespace

Queue::Queue(Streams& streams, c10::DeviceIndex device, c10::StreamId stream)
    : streams_(streams), device_(device), stream_(stream) {
  seed();
  thread_ = std::thread([this] { loop(); });
  pthread_setname_np(thread_.native_handle(), "stub-stream");
}

void Queue::seed() {
  const auto own = static_cast<std::uint64_t>(device_) * 1000 + static_cast<std::uint64_t>(stream_);
  random_.seed(
      static_cast<std::uint32_t>((streams_.delays_.seed * 2654435761U + own * 40503U + 1) & 0x7fffffffU));
}

bool Queue::ready() const {
  if (items_.empty() || held_before_.contains("")) return false;
  const Item& first = items_.front();
  if (held_before_.contains(first.what)) return false;
  return first.run || first.ticket->done || streams_.error_;
}

void Queue::loop() {
  // A kernel is the CPU's, below autograd, and no observer of the program's operators sees it.
  const at::AutoDispatchBelowADInplaceOrView below;
  const at::RecordFunctionGuard unobserved(/*is_enabled=*/false);
  Streams::Lock lock(streams_.mutex_);
  for (;;) {
    while (!streams_.stopping_ && !ready()) {
      if (!items_.empty() && !items_.front().run) items_.front().ticket->waiting.push_back(this);
      wake_.wait(lock);
    }
    if (streams_.stopping_) return;
    running_ = true;
    if (streams_.delays_.largest.count() > 0 && items_.front().run &&
        random_() % streams_.delays_.one_in == 0) {
      const auto most = static_cast<std::uint64_t>(streams_.delays_.largest.count());
      const auto rest = std::chrono::microseconds(random_() % (most + 1));
      lock.unlock();
      std::this_thread::sleep_for(rest);
      lock.lock();
    }
    Item item = std::move(items_.front());
    items_.pop_front();
    if (streams_.recording_) streams_.record_.push_back({device_, stream_, item.what});
    if (item.run && !streams_.error_) {
      lock.unlock();
      std::exception_ptr error;
      try {
        item.run();
      } catch (...) {
        error = std::current_exception();
      }
      item.run = nullptr;  // lets go of tensors here, outside the lock
      lock.lock();
      if (error && !streams_.error_) streams_.error_ = error;
      if (error)
        for (const auto& [name, queue] : streams_.queues_) queue->wake_.notify_all();
      if (item.ticket) streams_.complete_locked(*item.ticket);
    } else if (item.run) {
      if (item.ticket) streams_.complete_locked(*item.ticket);
      lock.unlock();
      item.run = nullptr;
      lock.lock();
    }
    running_ = false;
    if (streams_.monitoring_ > 0) streams_.changed_.notify_all();
  }
}

Streams& Streams::all() {
  static auto* const streams = new Streams;  // for ever: memory and events may outlive everything else
  static const struct Stop {
    ~Stop() { streams->stop(); }
  } stop;
  return *streams;
}

void Streams::stop() {
  {
    const Lock lock(mutex_);
    stopping_ = true;
    for (const auto& [name, queue] : queues_) queue->wake_.notify_all();
  }
  for (const auto& [name, queue] : queues_) queue->join();
}

Queue& Streams::queue(c10::Stream stream) {
  std::unique_ptr<Queue>& queue = queues_[{stream.device_index(), stream.id()}];
  if (!queue) queue = std::make_unique<Queue>(*this, stream.device_index(), stream.id());
  return *queue;
}

void Streams::run(c10::Stream stream, std::string what, std::function<void()> task) {
  const Lock lock(mutex_);
  if (stopping_) return;
  Queue& to = queue(stream);
  to.items_.push_back({std::move(what), std::move(task), nullptr});
  to.wake_.notify_all();
}

TicketPtr Streams::record(c10::Stream stream) {
  auto ticket = std::make_shared<Ticket>();
  const Lock lock(mutex_);
  if (stopping_) {
    ticket->done = true;
    return ticket;
  }
  Queue& to = queue(stream);
  to.items_.push_back({"record", [] {}, ticket});
  to.wake_.notify_all();
  return ticket;
}

void Streams::wait(c10::Stream stream, TicketPtr ticket, std::string what) {
  const Lock lock(mutex_);
  if (stopping_) return;
  Queue& to = queue(stream);
  to.items_.push_back({std::move(what), nullptr, std::move(ticket)});
  to.wake_.notify_all();
}

void Streams::complete_locked(Ticket& ticket) {
  ticket.done = true;
  ticket.when = std::chrono::steady_clock::now();
  for (Queue* const queue : ticket.waiting) queue->wake_.notify_all();
  ticket.waiting.clear();
  if (monitoring_ > 0) changed_.notify_all();
}

void Streams::complete(const TicketPtr& ticket) {
  const Lock lock(mutex_);
  complete_locked(*ticket);
}

bool Streams::is_done(const TicketPtr& ticket) {
  const Lock lock(mutex_);
  return ticket->done;
}

double Streams::milliseconds(const TicketPtr& from, const TicketPtr& to) {
  const Lock lock(mutex_);
  TORCH_CHECK(from->done && to->done,
              "the time between events of the stub device is known once both have happened");
  return std::chrono::duration<double, std::milli>(to->when - from->when).count();
}

std::string Streams::stuck() const {
  std::ostringstream said;
  for (const auto& [name, queue] : queues_) {
    if (queue->items_.empty() && !queue->running_) continue;
    said << " stream " << queue->stream_ << " of device " << static_cast<int>(queue->device_) << ": "
         << (!queue->held_before_.empty() ? "held"
             : queue->items_.empty()      ? "runs"
                                          : "at '" + queue->items_.front().what + "'")
         << ";";
  }
  return said.str();
}

void Streams::await(Lock& lock, const std::function<bool()>& done, const char* what) {
  ++monitoring_;
  const bool in_time = changed_.wait_for(lock, kDeadline, done);
  --monitoring_;
  TORCH_CHECK(in_time, what, " was not over within two minutes:", stuck());
}

void Streams::synchronize(const TicketPtr& ticket) {
  Lock lock(mutex_);
  ++host_waits_;
  await(lock, [&] { return ticket->done; }, "a wait of the host for the stub device");
  if (error_) std::rethrow_exception(error_);
}

void Streams::synchronize_device(c10::DeviceIndex device) {
  Lock lock(mutex_);
  ++host_waits_;
  await(
      lock,
      [&] {
        return std::ranges::all_of(queues_, [&](const auto& entry) {
          return entry.first.first != device || (entry.second->items_.empty() && !entry.second->running_);
        });
      },
      "a wait of the host for the stub device");
  if (error_) std::rethrow_exception(error_);
}

bool Streams::is_idle(c10::Stream stream) {
  const Lock lock(mutex_);
  const Queue& of = queue(stream);
  return of.items_.empty() && !of.running_;
}

void Streams::count_wait() {
  const Lock lock(mutex_);
  ++host_waits_;
}

std::int64_t Streams::host_waits() {
  const Lock lock(mutex_);
  return host_waits_;
}

void Streams::hold(c10::Stream stream, const std::string& before) {
  const Lock lock(mutex_);
  if (stopping_) return;
  queue(stream).held_before_.insert(before);
  if (monitoring_ > 0) changed_.notify_all();
}

void Streams::let_go(c10::Stream stream, const std::string& before) {
  const Lock lock(mutex_);
  if (stopping_) return;
  Queue& of = queue(stream);
  of.held_before_.extract(before);
  of.wake_.notify_all();
}

void Streams::set_capturing(c10::Stream stream, bool capturing) {
  const Lock lock(mutex_);
  if (!stopping_) queue(stream).capturing_ = capturing;
}

bool Streams::is_capturing(c10::Stream stream) {
  const Lock lock(mutex_);
  return !stopping_ && queue(stream).capturing_;
}

void Streams::settle() {
  Lock lock(mutex_);
  await(
      lock,
      [&] { return std::ranges::all_of(queues_, [](const auto& entry) { return entry.second->settled(); }); },
      "settle()");
}

void Streams::finish() {
  Lock lock(mutex_);
  await(
      lock,
      [&] {
        return std::ranges::all_of(queues_, [](const auto& entry) {
          return entry.second->items_.empty() && !entry.second->running_;
        });
      },
      "finish()");
  if (error_) std::rethrow_exception(error_);
}

void Streams::reset() {
  try {
    finish();
  } catch (...) {
    // is forgotten below
  }
  const Lock lock(mutex_);
  error_ = nullptr;
  delays_ = {};
  recording_ = false;
  record_.clear();
}

void Streams::set_delays(Delays delays) {
  const Lock lock(mutex_);
  delays_ = delays;
  for (const auto& [name, queue] : queues_) queue->seed();
}

void Streams::start_record() {
  const Lock lock(mutex_);
  recording_ = true;
  record_.clear();
}

std::vector<Ran> Streams::take_record() {
  const Lock lock(mutex_);
  recording_ = false;
  return std::exchange(record_, {});
}

void Streams::fail(const std::exception_ptr& error) {
  const Lock lock(mutex_);
  if (!error_) error_ = error;
  for (const auto& [name, queue] : queues_) queue->wake_.notify_all();
}

Held::Held(c10::Stream stream, std::string before) : stream_(stream), before_(std::move(before)) {
  Streams::all().hold(stream_, before_);
}
void Held::release() {
  if (std::exchange(held_, false)) Streams::all().let_go(stream_, before_);
}

Capture::Capture(c10::Stream stream) : stream_(stream) { Streams::all().set_capturing(stream_, true); }
Capture::~Capture() { Streams::all().set_capturing(stream_, false); }

std::int64_t host_waits() { return Streams::all().host_waits(); }
void set_delays(Delays delays) { Streams::all().set_delays(delays); }
void settle() { Streams::all().settle(); }
void finish() { Streams::all().finish(); }
void reset() { Streams::all().reset(); }
void start_record() { Streams::all().start_record(); }
std::vector<Ran> take_record() { return Streams::all().take_record(); }
void enqueue(c10::Stream stream, std::string what, std::function<void()> task) {
  Streams::all().run(stream, std::move(what), std::move(task));
}

}  // namespace dear::stub_device
