#include "dear/comm/mpi/measurement_cache.h"

#include <filesystem>
#include <optional>
#include <unistd.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/os/atomic_file.h"
#include "dear/base/vocabulary/digest.h"
#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/units.h"
#include "dear/comm/mpi/measure.h"
#include "dear/comm/mpi/start_up_exchange.h"

namespace dear::backends {
namespace {

namespace fs = std::filesystem;

std::string name_of_machine() {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  return name;
}

// The key of a file: all that the fastest algorithm may depend on.
std::string key_of(const channels::Mpi& mpi, const MeasureOptions& options) {
  return fmt::format("{}; {} processors on {}; ranks on hosts {}{}", mpi.description(),
                     sysconf(_SC_NPROCESSORS_ONLN), name_of_machine(), fmt::join(mpi.hosts(), " "),
                     options.sums_go_around ? "; large sums go around" : "");
}

std::string file_for(const std::string& folder, const std::string& key) {
  return folder.empty() ? ""
                        : fs::path(folder) / "dear" / fmt::format("mpi-{}.json", Digest().add(key).hex());
}

std::optional<std::string> read(const std::string& file) {
  try {
    return os::read_file(file);
  } catch (const Error&) {
    return std::nullopt;
  }
}

// Writes the file, and returns why it could not be written, or "".
std::string write(const std::string& file, const std::string& text) {
  std::error_code error;
  fs::create_directories(fs::path(file).parent_path(), error);
  try {
    os::write_file_atomically(file, text);
  } catch (const Error& failure) {
    return failure.what();
  }
  return "";
}

// What the file of rank 0 says, on every rank; nothing where it says nothing.
std::optional<Measurements> recall(channels::Mpi& mpi, const std::string& file, const std::string& key,
                                   Deadline deadline) {
  std::string known;
  if (mpi.rank() == 0 && !file.empty()) {
    if (const auto text = read(file); text && Measurements::parse(*text, key)) {
      known = *text;
    }
  }
  return Measurements::parse(text_of_rank_0(mpi, known, deadline), key);
}

}  // namespace

CachedChoices load_or_measure(channels::Mpi& mpi, const std::string& cache_folder,
                              const MeasureOptions& options) {
  const std::string key = text_of_rank_0(mpi, key_of(mpi, options), options.deadline);
  const std::string file = file_for(cache_folder, key);
  const double begin = now_seconds();
  const auto taken = [begin] { return format_seconds(now_seconds() - begin); };
  Measurements measurements;
  std::string origin;
  bool is_new = true;
  if (const std::optional<Measurements> known = recall(mpi, file, key, options.deadline)) {
    Checked checked = check(mpi, *known, options);
    is_new = checked.faster > 0 || !checked.again.empty();
    measurements = checked.again.empty()
                       ? std::move(checked.measurements)
                       : measure(mpi, checked.again, std::move(checked.measurements), options);
    origin = fmt::format("remembered in {}", file);
    if (!checked.again.empty()) {
      origin += fmt::format(", {} of {} slower than then and measured again in {}", checked.again.size(),
                            known->count(), taken());
    }
  } else {
    measurements = measure(mpi, all_cases(!channels::on_one_host(mpi)), {}, options);
    origin = fmt::format("measured in {}", taken());
    if (!file.empty()) origin += fmt::format(" and remembered in {}", file);
  }
  if (is_new && mpi.rank() == 0 && !file.empty()) {
    if (const std::string failure = write(file, measurements.format(key)); !failure.empty()) {
      origin = fmt::format("measured in {} and not remembered: {}", taken(), failure);
    }
  }
  return {.choices = measurements.choices(options.sums_go_around), .origin = origin};
}

}  // namespace dear::backends
