#pragma once

#include <string>

#include "dear/base/trace/trace.h"
#include "dear/comm/group/group.h"

namespace dear::train_command {

// The spans of all ranks as one trace, in the order of ranks, with the title and network of `mine`. Every
// rank calls it, and gets the same trace.
Trace gather_trace(const Group& group, const Trace& mine);

// Writes spans as text, and reads them, without loss. Each name is written once.
std::string encode_spans(const std::vector<Span>& spans);
std::vector<Span> decode_spans(const std::string& text);

}  // namespace dear::train_command
