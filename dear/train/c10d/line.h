#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "dear/train/c10d/bulletin.h"
#include "dear/train/c10d/message.h"
#include "dear/train/c10d/process_group.h"

namespace dear::train {

// Messages between this rank and one peer in one direction with one tag, and a thread that waits for them,
// oldest first: of two tags either may arrive first.
class Line {
 public:
  // Told, on the line's thread, what the engine said when it failed. The line has ended then.
  using Broken = std::function<void(const std::string& why)>;
  Line(ProcessGroup group, int peer, transport::Transfer::Direction direction, Bulletin& bulletin,
       Broken broken);
  Line(const Line&) = delete;
  Line& operator=(const Line&) = delete;
  ~Line() { stop(); }

  // Throws what the engine throws.
  void start(transport::Transfer& transfer);

  // Whether a transfer has been started that is not complete.
  [[nodiscard]] bool busy() const;

  // The peer sends and receives no more: what is not complete by now never will be.
  void expect_no_more();

  // Ends the wait and the thread. Afterwards neither the engine nor the line touches a transfer.
  void stop();

  [[nodiscard]] int peer() const { return peer_; }
  [[nodiscard]] transport::Transfer::Direction direction() const { return direction_; }

 private:
  struct Item {
    transport::Transfer* transfer = nullptr;
    std::unique_ptr<Frame> frame;
    Work frame_work;    // null when there is no need for one
    Work content_work;  // null when the content is in the frame
  };

  void run();
  std::unique_ptr<Frame> take_frame();
  bool finish(Item& item);
  void read(const Frame& frame, const transport::Transfer& transfer) const;
  bool await(const Work& work);
  void interrupt(const Item& item) const;
  void interrupt_all();
  Work post(void* data, std::int64_t bytes, int tag);

  const ProcessGroup group_;
  const int peer_;
  const transport::Transfer::Direction direction_;
  const Waiter waiter_;
  Bulletin& bulletin_;
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

}  // namespace dear::train
