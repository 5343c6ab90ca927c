#pragma once

#include <string>
#include <string_view>

#include "dear/base/json/json_field.h"
#include "dear/tools/report_command/run.h"

namespace dear::report_command {

// Stands in the first kilobyte of each page.
inline constexpr std::string_view kGenerator = "<meta name=\"generator\" content=\"dear report\">";

// The data that the page shows, as JSON; docs/formats.md says what its fields mean. `results` and `metrics`
// of a run are what its files have.
Json data_of(const Runs& runs, const std::string& title);

// One HTML file that needs nothing but itself: styles, scripts and data are in it, and its policy forbids
// each request. `title` may be empty.
std::string page_of(const Runs& runs, const std::string& title);

}  // namespace dear::report_command
