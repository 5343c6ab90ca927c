#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "dear/base/vocabulary/error.h"
#include "dear/comm/backends/environment.h"
#include "dear/comm/shaped/modelled_network.h"

// Checks of options that several commands have. Each throws ConfigError with one sentence that names the
// option.
namespace dear::cli {

// Returns what `parse` returns, and puts the option's name before the message of its ConfigError.
template <typename Parse>
auto parse_option(std::string_view option, Parse parse) {
  try {
    return parse();
  } catch (const ConfigError& error) {
    throw ConfigError(fmt::format("{}: {}", option, error.what()));
  }
}

// Writes files whose paths were checked before: what fails now is no wrong option but a failure while
// running.
template <typename Write>
void write_checked(const Write& write) {
  try {
    write();
  } catch (const ConfigError& error) {
    throw Error(error.what());
  }
}

void check_range(std::string_view option, std::int64_t value, std::int64_t least, std::int64_t most);

// Seconds of --timeout, which are more than 0; `usual` is the default.
double checked_timeout(const std::string& text, std::string_view usual);

// Refuses `count` jobs where `what` takes one; `give` names the options that are to be given once.
void refuse_several(std::string_view what, std::size_t count, std::string_view give);

// The number of ranks that --workers asks for, else `usual`; under a launcher the number that it started.
int checked_workers(const std::optional<std::int64_t>& given, int usual,
                    const LaunchEnvironment& environment);

// The modelled network that --network names, for so many ranks; with links for each pair, on that --backend,
// "" for one that is chosen.
ModelledNetwork checked_network(const std::string& text, const std::string& backend, int ranks);

// Refuses --bind under a launcher, which places its ranks itself.
void refuse_bind_under_launcher(bool bind, const LaunchEnvironment& environment);

// The path of a file that is written at the end, "" for none. Refuses one that plainly cannot be written, so
// that nobody learns of it after the work.
std::string checked_output_path(std::string_view option, const std::optional<std::string>& given);

// Likewise the path of a picture, whose ending names a format that can be made here: see
// base/charts/picture_file.h.
std::string checked_picture_path(std::string_view option, const std::optional<std::string>& given);

// Likewise the path of a folder, which is made where there is none.
std::string checked_output_folder(std::string_view option, const std::string& given);

// Options and their paths, "" for none.
using Outputs = std::vector<std::pair<std::string_view, std::string>>;
// Refuses two options that name the same file.
void refuse_shared_outputs(const Outputs& outputs);
// Both checks, of options that are not given where their path is empty; --plot, --picture and --timeline
// name pictures.
void check_outputs(const Outputs& outputs);

}  // namespace dear::cli
