#include "dear/train/announcement.h"

#include <chrono>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "dear/base/deadline.h"
#include "dear/base/error.h"

namespace dear::train {
namespace {

constexpr std::chrono::milliseconds kLook{20};  // for a failure

}  // namespace

Announcement::Announcement(Group group) : group_(std::move(group)), buffer_(group_.allocate(sizeof(Words))) {}

void Announcement::promise(const Words& words) {
  const std::lock_guard lock(mutex_);
  if (group_.rank() == 0) std::memcpy(buffer_.data(), words.data(), sizeof(Words));
  promised_ = true;
}

void Announcement::send() {
  const std::lock_guard lock(mutex_);
  if (!promised_) return;
  promised_ = false;
  pending_ = group_.broadcast({.buffer = buffer_, .count = Words().size(), .dtype = DType::f64}, 0);
  sent_.notify_all();
}

Announcement::Words Announcement::receive(const std::function<void()>& throw_if_failed) {
  const Deadline deadline = Deadline::after(group_.timeout());
  std::unique_lock lock(mutex_);
  while (!pending_) {
    lock.unlock();
    throw_if_failed();
    lock.lock();
    if (sent_.wait_for(lock, kLook, [this] { return pending_.has_value(); })) break;
    if (deadline.expired())
      throw TimeoutError(
          fmt::format("rank {} could not send a decision of tuning in {:.3g} s: the first reduction of the "
                      "last iteration "
                      "has not begun",
                      group_.rank(), group_.timeout().count()));
  }
  const Pending pending = *std::exchange(pending_, std::nullopt);
  lock.unlock();
  pending.wait();
  Words words;
  std::memcpy(words.data(), buffer_.data(), sizeof(Words));
  return words;
}

}  // namespace dear::train
