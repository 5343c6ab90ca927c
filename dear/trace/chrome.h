#pragma once

#include <string>

#include "dear/trace/trace.h"

// The Trace Event Format that chrome://tracing and https://ui.perfetto.dev read: a process for each rank, a
// thread for each lane. Field names and what we add under "args" and "otherData" are in the source.
namespace dear {

// Atomic: a temporary file beside `path`, renamed. ConfigError when the file cannot be written.
void write_chrome_trace(const Trace& trace, const std::string& path);
std::string to_chrome_json(const Trace& trace);

// Reads what write_chrome_trace wrote. ConfigError "FILE: ..." with line or field for anything else.
Trace read_chrome_trace(const std::string& path);

}  // namespace dear
