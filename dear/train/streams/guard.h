#pragma once

#include <cstdint>

namespace dear::streams {

// A Guard is one of the waits, or of the notes to the allocator, that keep the streams of a program and the
// communication stream in order. Tests take one away, to show that a result is wrong without it.
enum class Guard : std::uint8_t {
  none,
  // Collectives wait for ...
  after_gradients,  // the streams on which hooks found their gradients
  every_gradient,   // each of these streams, not the last alone
  // Updates wait for ...
  after_program,  // what the program had enqueued when it called step()
  // A stream of the program waits ...
  every_stream,       // also where another one has waited already
  before_parameters,  // for the all-gather of the parameters that it reads or writes
  before_gradients,   // for the reduction of the gradients that it reads or writes, or for their zeros
  zeros_first,        // for the zeros of gradients, where it waits for the parameters
  after_adoption,     // for buckets that were made on another stream
  handed_over,        // for a result that was made on the communication stream
  // Memory is not given to another tensor before ...
  kept_result,   // the stream that was handed a result is through with it
  kept_options,  // updates have read the optimiser's options that are tensors
  kept_tensor,   // a gradient or parameter that the program made elsewhere is copied into its bucket
  drain,         // the communication stream is through with the buckets
  // The host waits for the communication stream where the program asks for it.
  host
};

}  // namespace dear::streams
