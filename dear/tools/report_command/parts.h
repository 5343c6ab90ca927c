#pragma once

#include <string_view>

// The files of the folder `page`, as the build embeds them.
namespace dear::report_command {

extern const std::string_view kPage;           // page.html
extern const std::string_view kStyle;          // *.css
extern const std::string_view kScript;         // *.js
extern const std::string_view kCharts;         // dygraphs; empty where the build found none
extern const std::string_view kChartsLicence;  // its licence

}  // namespace dear::report_command
