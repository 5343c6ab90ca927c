#pragma once

#include <chrono>
#include <compare>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "dear/comm/channels/channels.h"
#include "dear/systems/pipeline/stages.h"

namespace dear::systems::pipeline {

// The messages of a rank's stages, over channels between ranks. Nothing waits but take(), finish() and
// exchange(): what was started travels while stages compute, moved on by a thread of its own. A message of
// activations over cut c has tag 2c, one of gradients 2c + 1, in the order of micro-batches. Messages between
// stages of one rank are handed over as they are.
//
// One thread calls. A wait ends after `timeout`. TransportError and TimeoutError say which stage waited for
// which operator and micro-batch, from whom; nothing works afterwards.
class Wire {
 public:
  // Without channels there is one rank. `stages` outlives it.
  Wire(std::unique_ptr<channels::Channels> channels, const Stages& stages, int rank,
       std::chrono::duration<double> timeout);
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;
  ~Wire();
  [[nodiscard]] static int tags(std::size_t stages) { return 2 * static_cast<int>(stages) + 1; }

  // `tensors` by crossing of the cut.
  void send(int cut, bool gradient, int micro_batch, Tensors tensors);
  // Makes room for a message, which may come from then on. In the order of micro-batches.
  void expect(int cut, bool gradient, int micro_batch);
  // Waits for a message that is expected.
  Tensors take(int cut, bool gradient, int micro_batch);
  // Waits until a message, if one was sent, no longer needs its memory; all of them.
  void finish(int cut, bool gradient, int micro_batch);
  void finish_all();

  // Bytes to or from another rank that are no message of a stage: returns when they are through. In one order
  // on both ends. `what` is for errors: "the gradient of the tied parameter 'wte.weight'".
  void exchange(bool sends, int rank, const torch::Tensor& bytes, const std::string& what);

  [[nodiscard]] std::int64_t bytes_sent() const { return bytes_sent_; }
  void abort(const std::string& reason) noexcept;

 private:
  struct Key {
    int cut = 0;
    bool gradient = false;
    int micro_batch = 0;
    friend auto operator<=>(const Key&, const Key&) = default;
  };
  struct Flight {
    channels::Transfer transfer;
    torch::Tensor bytes;
  };
  using Flights = std::map<Key, Flight>;

  [[nodiscard]] const Cut& cut_of(const Key& key) const {
    return stages_.cuts[static_cast<std::size_t>(key.cut)];
  }
  void start(Flight& flight, channels::Transfer transfer);
  void wait(Flight& flight, const std::string& what);
  [[nodiscard]] std::string text_of(const Key& key, bool sends) const;
  template <typename Act>
  void guarded(const Act& act, const std::string& what);
  void move_on();  // on the thread

  const Stages& stages_;
  const int rank_;
  const std::chrono::duration<double> timeout_;
  std::int64_t bytes_sent_ = 0;
  std::map<Key, Tensors> here_;  // to a stage of this rank
  // In the memory that channels may use until they are gone.
  struct Memory {
    Flights sent, awaited;
    Flight exchanged;
  };
  std::shared_ptr<Memory> memory_ = std::make_shared<Memory>();
  std::unique_ptr<channels::Channels> channels_;
  std::mutex mutex_;  // of the channels and `under_way_`
  std::condition_variable changed_;
  int under_way_ = 0;  // transfers that were started and not waited for
  bool ends_ = false;
  std::thread mover_;
};

}  // namespace dear::systems::pipeline
