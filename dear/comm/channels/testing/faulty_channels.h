#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "dear/comm/channels/channels.h"

namespace dear::channels::testing {

// A fault that a message meets on its way.
enum class Fault : std::uint8_t {
  none,
  delay,    // messages to other ranks or with other tags overtake it
  swap,     // the next one to its rank with its tag overtakes it, which no transport may let happen
  drop,     // it never arrives, though its send is done
  shorten,  // its last bytes are missing
  corrupt,  // one of its bits is another
  stall     // its sender does nothing any more, as a process that was stopped, until the others fail
};

struct FaultPlan {
  Fault fault = Fault::none;
  int rank = 0;       // that sends the message
  int message = 0;    // its number among those that count, from 0
  unsigned seed = 0;  // of how long a delay is, how many bytes are missing, and the bit
  std::function<bool(const Transfer&)> counts{};  // empty: each send that has a byte
  // Above 0: once the fault has happened, waits of all ranks end after so many seconds, whatever their
  // deadline is; so no wait ends for a machine that is busy before.
  double patience_seconds = 0;
  std::int64_t most_bytes = std::int64_t{1} << 40;  // a bit of the first so many
};
std::string to_string(const FaultPlan& plan);

// Counts of the channels of all ranks together.
struct FaultRecord {
  std::atomic<int> counted = 0;   // messages of the rank of the plan
  std::atomic<int> happened = 0;  // faults
  std::atomic<SteadyTime> at{};   // of the last one
};

// These channels, on which the plan comes true. Tags and ranks are those that `channels` see. With
// patience_seconds a wait may also return where no transfer became done.
std::unique_ptr<Channels> make_faulty(std::unique_ptr<Channels> channels, FaultPlan plan,
                                      std::shared_ptr<FaultRecord> record);

}  // namespace dear::channels::testing
