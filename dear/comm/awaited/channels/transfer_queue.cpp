#include "dear/comm/awaited/channels/transfer_queue.h"

#include <cstring>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "dear/base/os/prompt_thread.h"
#include "dear/base/os/start_thread.h"
#include "dear/base/vocabulary/error.h"

namespace dear::channels {

TransferQueue::TransferQueue(PointToPoint& point_to_point, int peer, Transfer::Direction direction,
                             CompletionQueue& completions, Broken broken)
    : point_to_point_(point_to_point),
      peer_(peer),
      direction_(direction),
      completions_(completions),
      broken_(std::move(broken)) {
  thread_ = os::start_thread(fmt::format("of rank {} for messages of rank {}", point_to_point_.rank(), peer_),
                             [this] {
                               os::make_this_thread_prompt();
                               run();
                             });
}

std::unique_ptr<Posted> TransferQueue::post(void* data, std::int64_t bytes, int tag) {
  return direction_ == Transfer::Direction::send ? point_to_point_.send(data, bytes, peer_, tag)
                                                 : point_to_point_.receive(data, bytes, peer_, tag);
}

void TransferQueue::start(Transfer& transfer) {
  Item item{.transfer = &transfer};
  const bool is_inline = transfer.bytes <= kInlineBytes;
  if (is_inline || !transfer.agreed) {
    item.frame = take_frame();
    if (direction_ == Transfer::Direction::send) {
      item.frame->bytes = transfer.bytes;
      if (is_inline && transfer.bytes > 0) {
        std::memcpy(item.frame->content.data(), transfer.data, static_cast<std::size_t>(transfer.bytes));
      }
    }
    item.posted_frame = post(item.frame.get(), sizeof(Frame), frame_tag(transfer.tag));
  }
  if (!is_inline) {
    try {
      item.posted_content = post(transfer.data, transfer.bytes, content_tag(transfer.tag, transfer.bytes));
    } catch (...) {
      if (item.posted_frame && !point_to_point_.forgets_memory()) static_cast<void>(item.frame.release());
      throw;
    }
  }
  const std::lock_guard lock(mutex_);
  items_.push_back(std::move(item));
  if (interrupted_) interrupt(items_.back());
  changed_.notify_one();
}

std::unique_ptr<Frame> TransferQueue::take_frame() {
  const std::lock_guard lock(mutex_);
  if (spare_.empty()) return std::make_unique<Frame>();
  std::unique_ptr<Frame> frame = std::move(spare_.back());
  spare_.pop_back();
  return frame;
}

bool TransferQueue::busy() const {
  const std::lock_guard lock(mutex_);
  return !items_.empty();
}

void TransferQueue::run() {
  for (;;) {
    Item* item = nullptr;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return stopping_ || !items_.empty(); });
      if (stopping_) return;
      item = &items_.front();  // stays in place while others are appended
    }
    try {
      if (!finish(*item)) return;
    } catch (const Error&) {
      completions_.fail(std::current_exception());
      return;
    } catch (const std::exception& error) {
      if (!stopping_) broken_(error.what());
      return;
    }
    Transfer& transfer = *item->transfer;
    {
      const std::lock_guard lock(mutex_);
      if (item->frame) spare_.push_back(std::move(item->frame));
      items_.pop_front();
    }
    completions_.complete(transfer);
  }
}

bool TransferQueue::finish(Item& item) {
  if (item.posted_frame) {
    if (!await(*item.posted_frame)) return false;
    if (direction_ == Transfer::Direction::receive) read(*item.frame, *item.transfer);
  }
  return !item.posted_content || await(*item.posted_content);
}

void TransferQueue::read(const Frame& frame, const Transfer& transfer) const {
  if (frame.bytes != transfer.bytes) {
    throw TransportError(
        fmt::format("rank {} received a message of {} bytes from rank {} where it expected {} (tag {}): "
                    "every rank must issue the same collectives in the same order",
                    point_to_point_.rank(), frame.bytes, peer_, transfer.bytes, transfer.tag));
  }
  if (transfer.bytes > 0 && transfer.bytes <= kInlineBytes) {
    std::memcpy(transfer.data, frame.content.data(), static_cast<std::size_t>(transfer.bytes));
  }
}

bool TransferQueue::await(Posted& posted) {
  while (!posted.wait(interrupted_)) {
    if (stopping_) return false;
    if (no_more_) {
      if (posted.is_complete()) return true;
      throw std::runtime_error("the peer left");
    }
  }
  return true;
}

void TransferQueue::interrupt(const Item& item) {
  if (item.posted_frame) item.posted_frame->interrupt();
  if (item.posted_content) item.posted_content->interrupt();
}

void TransferQueue::interrupt_all() {
  const std::lock_guard lock(mutex_);
  interrupted_ = true;
  for (const Item& item : items_) interrupt(item);
  changed_.notify_one();
}

void TransferQueue::expect_no_more() {
  no_more_ = true;
  interrupt_all();
}

void TransferQueue::stop() {
  stopping_ = true;
  interrupt_all();
  if (thread_.joinable()) thread_.join();
  const std::lock_guard lock(mutex_);
  for (Item& item : items_) {
    item.posted_content.reset();
    item.posted_frame.reset();
    if (!point_to_point_.forgets_memory()) static_cast<void>(item.frame.release());
  }
  items_.clear();
}

}  // namespace dear::channels
