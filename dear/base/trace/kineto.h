#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "dear/base/trace/trace.h"

// Traces of torch.profiler, which Kineto writes as JSON: export_chrome_trace(), tensorboard_trace_handler().
namespace dear {

struct KinetoTrace {
  Trace trace;                          // of one rank; begins at 0
  std::int64_t origin_nanoseconds = 0;  // of its 0, on the clock of the host
};

// Whether a text looks like a trace of torch.profiler, and like none of DeAR's.
bool is_kineto(std::string_view text);

// Iterations are the steps of the profiler (ProfilerStep#N); without one the trace is a single iteration.
// - With kernels of a GPU: lane "compute" has the kernels, "network" those of NCCL, "copies" copies and sets
// of
//   memory. What the host does is left out.
// - Without: "compute" has the outermost operators of the thread that steps and of autograd's, "network" the
//   collectives of c10d's backends, "thread N" the operators of other threads.
// The rank is that of distributedInfo, or 0. ConfigError "FILE: ..." for what is no such trace, and for one
// without a span; `source` stands for FILE.
KinetoTrace parse_kineto(std::string_view text, const std::string& source);

}  // namespace dear
