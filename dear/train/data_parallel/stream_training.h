#pragma once

#include <cstddef>

#include "dear/train/model/model_scan.h"
#include "dear/train/streams/gradients_on_stream.h"

namespace dear::train {

class Trainer;

// What a training does otherwise on a device with streams: see [Note: on streams].
class StreamTraining {
 public:
  // ConfigError for parameters on a device that nothing carries, or on several, and for options that a device
  // with streams cannot have.
  static void require_usable(const Trainer& own, const ModelScan& scanned);
  // ConfigError: `what` is for the CPU alone.
  [[noreturn]] static void refuse(const char* what);
  // All ranks together, at the first step(): see [Note: idle parameters].
  static void find_idle(Trainer& own);
  // From the hook, on the stream on which the gradient was accumulated.
  static void gradient_arrived(Trainer& own, std::size_t parameter);
  // Closes the gradients: see [Note: closed].
  static streams::GradientsOnStream final_gradients(Trainer& own);
  // Makes seconds of the marks between which layers were at work: [Note: times of a device].
  static void read_marks(Trainer& own);
};

}  // namespace dear::train
