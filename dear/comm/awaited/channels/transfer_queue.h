#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "dear/comm/awaited/channels/completion_queue.h"
#include "dear/comm/awaited/channels/frame.h"
#include "dear/comm/awaited/channels/point_to_point.h"

namespace dear::channels {

// Messages between this rank and one peer in one direction with one tag, and a thread that waits for them,
// oldest first: of two tags either may arrive first.
class TransferQueue {
 public:
  // Told, on the line's thread, what the messaging library said when it failed. The line has ended then.
  using Broken = std::function<void(const std::string& why)>;
  TransferQueue(PointToPoint& point_to_point, int peer, Transfer::Direction direction,
                CompletionQueue& completions, Broken broken);
  TransferQueue(const TransferQueue&) = delete;
  TransferQueue& operator=(const TransferQueue&) = delete;
  ~TransferQueue() { stop(); }

  // Throws what the messaging library throws.
  void start(Transfer& transfer);

  // Whether a transfer has been started that is not complete.
  [[nodiscard]] bool busy() const;

  // The peer sends and receives no more: what is not complete by now never will be.
  void expect_no_more();

  // Ends the wait and the thread. Afterwards neither the messaging library nor the line touches a transfer.
  void stop();

  [[nodiscard]] int peer() const { return peer_; }
  [[nodiscard]] Transfer::Direction direction() const { return direction_; }

 private:
  struct Item {
    Transfer* transfer = nullptr;
    std::unique_ptr<Frame> frame;
    std::unique_ptr<Posted> posted_frame;    // null when there is no need for one
    std::unique_ptr<Posted> posted_content;  // null when the content is in the frame
  };

  void run();
  std::unique_ptr<Frame> take_frame();
  bool finish(Item& item);
  void read(const Frame& frame, const Transfer& transfer) const;
  bool await(Posted& posted);
  static void interrupt(const Item& item);
  void interrupt_all();
  std::unique_ptr<Posted> post(void* data, std::int64_t bytes, int tag);

  PointToPoint& point_to_point_;
  const int peer_;
  const Transfer::Direction direction_;
  CompletionQueue& completions_;
  const Broken broken_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> items_;  // the thread works on the first, others append
  std::vector<std::unique_ptr<Frame>> spare_;
  std::atomic<bool> interrupted_ = false;  // for one of these two reasons
  std::atomic<bool> stopping_ = false;
  std::atomic<bool> no_more_ = false;
  std::thread thread_;
};

}  // namespace dear::channels
