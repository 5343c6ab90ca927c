#include "dear/train/c10d/line.h"

#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "dear/base/error.h"
#include "dear/collective/prompt_thread.h"

namespace dear::train {

using transport::Transfer;

Line::Line(ProcessGroup group, int peer, Transfer::Direction direction, Bulletin& bulletin, Broken broken)
    : group_(std::move(group)),
      peer_(peer),
      direction_(direction),
      waiter_(group_),
      bulletin_(bulletin),
      broken_(std::move(broken)) {
  try {
    thread_ = std::thread([this] {
      collective::make_this_thread_prompt();
      run();
    });
  } catch (const std::system_error& error) {
    throw TransportError(fmt::format("rank {} cannot start a thread for messages of rank {}: {}",
                                     group_->getRank(), peer_, error.what()));
  }
}

Work Line::post(void* data, std::int64_t bytes, int tag) {
  const auto begin = direction_ == Transfer::Direction::send ? start_send : start_receive;
  return begin(group_, data, bytes, peer_, tag);
}

void Line::start(Transfer& transfer) {
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
    item.frame_work = post(item.frame.get(), sizeof(Frame), frame_tag(transfer.tag));
  }
  if (!is_inline) {
    item.content_work = post(transfer.data, transfer.bytes, content_tag(transfer.tag, transfer.bytes));
  }
  const std::lock_guard lock(mutex_);
  items_.push_back(std::move(item));
  if (interrupted_) interrupt(items_.back());
  changed_.notify_one();
}

std::unique_ptr<Frame> Line::take_frame() {
  const std::lock_guard lock(mutex_);
  if (spare_.empty()) return std::make_unique<Frame>();
  std::unique_ptr<Frame> frame = std::move(spare_.back());
  spare_.pop_back();
  return frame;
}

bool Line::busy() const {
  const std::lock_guard lock(mutex_);
  return !items_.empty();
}

void Line::run() {
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
      bulletin_.fail(std::current_exception());
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
    bulletin_.complete(transfer);
  }
}

bool Line::finish(Item& item) {
  if (item.frame_work) {
    if (!await(item.frame_work)) return false;
    if (direction_ == Transfer::Direction::receive) read(*item.frame, *item.transfer);
  }
  return !item.content_work || await(item.content_work);
}

void Line::read(const Frame& frame, const Transfer& transfer) const {
  if (frame.bytes != transfer.bytes) {
    throw TransportError(
        fmt::format("rank {} received a message of {} bytes from rank {} where it expected {} (tag {}): "
                    "every rank must issue the same collectives in the same order",
                    group_->getRank(), frame.bytes, peer_, transfer.bytes, transfer.tag));
  }
  if (transfer.bytes > 0 && transfer.bytes <= kInlineBytes) {
    std::memcpy(transfer.data, frame.content.data(), static_cast<std::size_t>(transfer.bytes));
  }
}

bool Line::await(const Work& work) {
  while (!waiter_.wait(work, interrupted_)) {
    if (stopping_) return false;
    if (no_more_) return waiter_.must_be_complete(work);
  }
  return true;
}

void Line::interrupt(const Item& item) const {
  if (item.frame_work) waiter_.interrupt(item.frame_work);
  if (item.content_work) waiter_.interrupt(item.content_work);
}

void Line::interrupt_all() {
  const std::lock_guard lock(mutex_);
  interrupted_ = true;
  for (const Item& item : items_) interrupt(item);
  changed_.notify_one();
}

void Line::expect_no_more() {
  no_more_ = true;
  interrupt_all();
}

void Line::stop() {
  stopping_ = true;
  interrupt_all();
  if (thread_.joinable()) thread_.join();
  const std::lock_guard lock(mutex_);
  for (Item& item : items_) {
    if (item.content_work) waiter_.abandon(std::move(item.content_work));
    if (item.frame_work) waiter_.abandon(std::move(item.frame_work));
    if (!waiter_.forgets_memory()) static_cast<void>(item.frame.release());
  }
  items_.clear();
}

}  // namespace dear::train
