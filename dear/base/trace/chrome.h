#pragma once

#include <string>
#include <string_view>

#include "dear/base/trace/trace.h"

// The Trace Event Format that chrome://tracing and https://ui.perfetto.dev read: a process for each rank, a
// thread for each lane. Field names and what we add under "args" and "otherData" are in the source.
namespace dear {

// Writes as write_file_atomically() does. ConfigError when the file cannot be written.
void write_chrome_trace(const Trace& trace, const std::string& path);
std::string to_chrome_json(const Trace& trace);

// Reads a file that write_chrome_trace() wrote. ConfigError "FILE: ..." with line or field for any other
// file.
Trace read_chrome_trace(const std::string& path);
Trace parse_chrome_trace(std::string_view text, const std::string& source);  // `source` stands for FILE

}  // namespace dear
