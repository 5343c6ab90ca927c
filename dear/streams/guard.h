#pragma once

#include <cstdint>

namespace dear::streams {

// A Guard is one of the waits that keep the streams of a program and the communication stream in order.
// Tests take one away, to show that a test fails without it.
enum class Guard : std::uint8_t {
  none,
  after_gradients,    // collectives wait for the stream on which a hook found the last gradient
  after_program,      // updates wait for what the program had enqueued when it called step()
  every_stream,       // a stream waits also where another one has waited already
  before_parameters,  // what reads or writes parameters waits for their all-gather
  before_gradients,   // what reads or writes gradients waits for their reduction, or for their zeros
  drain               // buffers are kept until the communication stream is through with them
};

}  // namespace dear::streams
