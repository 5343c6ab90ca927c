#include "dear/transport/shm/ends.h"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

#include "dear/base/error.h"
#include "dear/base/units.h"

namespace dear::transport {
namespace {

// Between two looks at what the other end has done: it works on one part while this end is at the next.
constexpr std::int64_t kStretch = 16 * kKiB;

void check_length(const Transfer& receive, std::int64_t sent) {
  if (receive.bytes != sent) {
    throw TransportError(fmt::format(
        "a message with tag {} has {} bytes where {} are expected: every rank must issue the same "
        "collectives",
        receive.tag, sent, receive.bytes));
  }
}

}  // namespace

Step SendEnd::advance() {
  Step step;
  while (!queue_.empty()) {
    Transfer& transfer = *queue_.front();
    const bool begins = !framed_;
    if (begins) {
      if (ring_.room(Ring::kGrain) < Ring::kGrain) {
        break;
      }
      const ReceiveEnd::Frame frame{.bytes = transfer.bytes, .tag = transfer.tag};
      static_assert(sizeof frame == Ring::kGrain);
      ring_.write(&frame, sizeof frame);
      framed_ = true;
      at_ = 0;
    }
    const std::int64_t most = std::min(transfer.bytes - at_, kStretch);
    const std::int64_t stretch = std::min(most, ring_.room(most));
    if (stretch > 0) {
      ring_.write(transfer.data + at_, stretch);
      at_ += stretch;
    }
    if (!begins && stretch == 0) {
      break;
    }
    step.moved = true;
    step.rings |= ring_.publish();
    if (at_ == transfer.bytes) {
      queue_.pop_front();
      framed_ = false;
      transfer.done = true;
      step.completed = true;
    }
  }
  return step;
}

void SendEnd::wish() {
  if (busy()) {
    ring_.wish_for_room(framed_ ? queue_.front()->bytes - at_ : Ring::kGrain);
  }
}

Step ReceiveEnd::advance() {
  Step step;
  step.completed = !strays_.empty() && deliver_strays();
  while (busy()) {
    const bool begins = !framed_;
    if (begins && !open_next()) {
      break;
    }
    const std::int64_t most = std::min(frame_.bytes - at_, kStretch);
    const std::int64_t stretch = std::min(most, ring_.available(most));
    if (stretch > 0) {
      ring_.read((into_ != nullptr ? into_->data : strays_.back().bytes.data()) + at_, stretch);
      at_ += stretch;
    }
    if (!begins && stretch == 0) {
      break;
    }
    step.moved = true;
    step.rings |= ring_.release();
    if (at_ == frame_.bytes) {
      framed_ = false;
      if (into_ != nullptr) {
        into_->done = true;
        step.completed = true;
      } else {
        step.completed |= deliver_strays();
      }
    }
  }
  return step;
}

bool ReceiveEnd::open_next() {
  if (ring_.available(Ring::kGrain) < Ring::kGrain) {
    return false;
  }
  ring_.read(&frame_, sizeof frame_);
  framed_ = true;
  at_ = 0;
  const auto receive = find_receive(frame_.tag);
  if (receive == queue_.end()) {
    into_ = nullptr;
    strays_.push_back({.tag = frame_.tag, .bytes = {}});
    strays_.back().bytes.resize(static_cast<std::size_t>(frame_.bytes));
    return true;
  }
  into_ = *receive;
  queue_.erase(receive);
  check_length(*into_, frame_.bytes);
  return true;
}

// To receives that were started since. The last stray may be on its way in still.
bool ReceiveEnd::deliver_strays() {
  const auto end = framed_ && into_ == nullptr ? std::prev(strays_.end()) : strays_.end();
  bool completed = false;
  for (auto stray = strays_.begin(); stray != end;) {
    const auto receive = find_receive(stray->tag);
    if (receive == queue_.end()) {
      ++stray;
      continue;
    }
    Transfer& transfer = **receive;
    check_length(transfer, static_cast<std::int64_t>(stray->bytes.size()));
    std::copy(stray->bytes.begin(), stray->bytes.end(), transfer.data);
    transfer.done = true;
    completed = true;
    queue_.erase(receive);
    stray = strays_.erase(stray);
  }
  return completed;
}

std::deque<Transfer*>::iterator ReceiveEnd::find_receive(Tag tag) {
  return std::find_if(queue_.begin(), queue_.end(), [&](const Transfer* one) { return one->tag == tag; });
}

void ReceiveEnd::wish() {
  if (busy()) {
    ring_.wish_for(framed_ ? frame_.bytes - at_ : Ring::kGrain);
  }
}

}  // namespace dear::transport
