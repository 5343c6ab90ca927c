#pragma once

#include <string>
#include <string_view>

// Files of pictures. The ending tells the format: .svg, .pdf or .png, in any case of letters. A pipe, a
// terminal or another path of something that is no regular file gets SVG. rsvg-convert, of Debian's package
// librsvg2-bin, makes PDF and PNG of SVG: light ones, on white, PNG with two pixels for each point.
namespace dear::charts {

// Refuses a path with another ending, and one of PDF or PNG where there is no rsvg-convert: ConfigError with
// the remedy. May start rsvg-convert to learn its version.
void check_picture_path(const std::string& path);

// Writes a picture, given as SVG, as write_file_atomically() does: whole or not at all. ConfigError as
// check_picture_path() and where the file cannot be written; Error where rsvg-convert fails or takes more
// than two minutes.
void write_picture(const std::string& path, std::string_view svg);

}  // namespace dear::charts
