#pragma once

#include "dear/train/data_parallel/data_parallel_impl.h"

namespace dear {

// What DataParallel does otherwise on a device with streams: see [Note: on streams].
class DataParallel::Impl::OnStreams {
 public:
  // ConfigError for parameters on a device that nothing carries, or on several, and for options that a device
  // with streams cannot have.
  static void require_usable(const Impl& own, const train::ModelScan& scanned);
  // ConfigError: `what` is for the CPU alone.
  [[noreturn]] static void refuse(const char* what);
  // All ranks together, at the first step(): see [Note: idle parameters].
  static void find_idle(Impl& own);
  // From the hook, on the stream on which the gradient was accumulated.
  static void gradient_arrived(Impl& own, std::size_t parameter);
  // Closes the gradients: see [Note: closed].
  static streams::GradientsOnStream final_gradients(Impl& own);
  // Makes seconds of the marks between which layers were at work: [Note: times of a device].
  static void read_marks(Impl& own);
};

}  // namespace dear
