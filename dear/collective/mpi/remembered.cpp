#include "dear/collective/mpi/remembered.h"

#include <filesystem>
#include <optional>
#include <unistd.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/atomic_file.h"
#include "dear/base/digest.h"
#include "dear/base/error.h"
#include "dear/base/units.h"
#include "dear/collective/mpi/measure.h"
#include "dear/collective/mpi/talk.h"

namespace dear::collective {
namespace {

namespace fs = std::filesystem;

std::string name_of_machine() {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  return name;
}

// All that the fastest way may depend on.
std::string key_of(const transport::Mpi& mpi, const MeasureOptions& options) {
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
    return read_file(file);
  } catch (const Error&) {
    return std::nullopt;
  }
}

// Why it could not be written, or "".
std::string write(const std::string& file, const std::string& text) {
  std::error_code error;
  fs::create_directories(fs::path(file).parent_path(), error);
  try {
    write_file_atomically(file, text);
  } catch (const Error& failure) {
    return failure.what();
  }
  return "";
}

}  // namespace

Remembered remember_or_measure(transport::Mpi& mpi, const std::string& cache_folder,
                               const MeasureOptions& options) {
  const Deadline deadline = options.deadline;
  const bool first = mpi.rank() == 0;
  const std::string key = text_of_rank_0(mpi, key_of(mpi, options), deadline);
  const std::string file = file_for(cache_folder, key);
  std::string known;
  if (first && !file.empty()) {
    if (const auto text = read(file); text && Choices::parse(*text, key)) {
      known = *text;
    }
  }
  known = text_of_rank_0(mpi, known, deadline);
  if (const auto choices = Choices::parse(known, key)) {
    return {.choices = *choices, .origin = fmt::format("remembered in {}", file)};
  }
  const double begin = now_seconds();
  Remembered found{.choices = measure(mpi, options), .origin = ""};
  found.origin = fmt::format("measured in {}", format_seconds(now_seconds() - begin));
  if (first && !file.empty()) {
    const std::string failure = write(file, found.choices.format(key));
    found.origin += failure.empty() ? fmt::format(" and remembered in {}", file)
                                    : fmt::format(" and not remembered: {}", failure);
  }
  return found;
}

}  // namespace dear::collective
