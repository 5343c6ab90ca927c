#include "dear/tools/bench_command/bench_options.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/launch/cores.h"
#include "dear/base/launch/own_command.h"
#include "dear/base/os/memory.h"
#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/nearest.h"
#include "dear/base/vocabulary/units.h"
#include "dear/tools/bench_collectives/launched_benchmark.h"
#include "dear/tools/options/option_checks.h"

namespace dear::cli {
namespace {

constexpr std::int64_t kMostRanks = 128;  // as many as shared memory carries
constexpr std::int64_t kMostAhead = 256;
constexpr std::int64_t kLargestSize = 16 * kGiB;

// The libraries that an option may name: backends of DeAR, or rivals.
std::vector<const bench_collectives::Library*> choices(bool rivals, bool launched) {
  std::vector<const bench_collectives::Library*> found;
  for (const bench_collectives::Library& library :
       rivals || !launched ? bench_collectives::libraries() : bench_collectives::launched_backends()) {
    if (library.rival == rivals) {
      found.push_back(&library);
    }
  }
  return found;
}

const bench_collectives::Library& find_named(std::string_view option, const std::string& name, bool rival,
                                             bool launched) {
  std::vector<std::string_view> names;
  for (const bench_collectives::Library* library : choices(rival, launched)) {
    if (library->name == name) {
      return *library;
    }
    names.push_back(library->name);
  }
  throw ConfigError(fmt::format("{}: there is no '{}'{} choose from {}{}", option, name,
                                did_you_mean(name, names), fmt::join(names, ", "), rival ? ", or none" : ""));
}

// Completes `selected`. Returns why the library cannot take part, "" when it can.
std::string complete(bench_collectives::SelectedLibrary& selected, const LaunchEnvironment& environment,
                     const Installation& installation) {
  const bench_collectives::Library& library = *selected.library;
  if (environment.size > 1) {
    return library.rival                ? bench_collectives::missing_here(library, environment)
           : library.missing != nullptr ? library.missing()
                                        : "";
  }
  if (std::string why = library.missing();
      !why.empty() || library.starter == bench_collectives::Starter::bench) {
    return why;
  }
  const std::string implementation =
      library.starter == bench_collectives::Starter::openmpi ? "openmpi" : "mpich";
  selected.launcher = installation.find_mpi_launcher(implementation);
  return selected.launcher
             ? ""
             : fmt::format("no launcher of it was found (mpirun.{0}, mpiexec.{0}, mpirun or mpiexec)",
                           implementation);
}

// The libraries that the options name, and, where no rival is named, the rivals that this machine has.
class LibrarySelection {
 public:
  LibrarySelection(BenchSettings& settings, const LaunchEnvironment& environment,
                   const Installation& installation)
      : settings_(settings), environment_(environment), installation_(installation) {}

  void add_all(const BenchOptions& options) {
    const bool launched = settings_.benchmark.launched;
    add_by_name(
        !options.backends.empty() ? options.backends : std::vector<std::string>{launched ? "auto" : "shm"},
        "--backend", false);
    put_in_grids(options);
    // Rivals are on the real network alone.
    const bool none = options.rivals == std::vector<std::string>{"none"} ||
                      (options.rivals.empty() && options.network.has_value());
    if (options.rivals.empty()) {
      add_every_rival();
    } else if (!none) {
      add_by_name(options.rivals, "--rivals", true);
    }
  }

 private:
  // Each backend once for each grid.
  void put_in_grids(const BenchOptions& options) {
    const std::vector<GridSettings> grids =
        checked_grids(options.grid, options.network, settings_.benchmark.ranks);
    if (grids.empty()) {
      if (options.network) {
        throw ConfigError(fmt::format(
            "--network: '{}' is no cluster file of several dimensions, the one network that is modelled here",
            *options.network));
      }
      return;
    }
    if (options.cluster) {
      throw ConfigError("--cluster fits one link, and a grid has several: leave it or the grid out");
    }
    std::vector<bench_collectives::SelectedLibrary> all;
    for (const bench_collectives::SelectedLibrary& selected : settings_.benchmark.libraries) {
      if (selected.library->name == "shm-one-copy") {
        throw ConfigError("--backend: shm-one-copy shares one memory, and a grid does not: use shm");
      }
      for (const GridSettings& grid : grids) {
        all.push_back(selected);
        all.back().grid = grid;
        all.back().grid_words = words_of(options.grid, options.network, grid.algorithm);
      }
    }
    settings_.benchmark.libraries = std::move(all);
  }

  void add_by_name(const std::vector<std::string>& names, std::string_view option, bool rivals) {
    for (const std::string& name : names) {
      bench_collectives::SelectedLibrary selected{
          .library = &find_named(option, name, rivals, settings_.benchmark.launched)};
      for (const bench_collectives::SelectedLibrary& other : settings_.benchmark.libraries) {
        if (other.library == selected.library) {
          throw ConfigError(fmt::format("{} names {} twice", option, name));
        }
      }
      if (selected.library->only_copies && settings_.benchmark.late_seconds > 0) {
        throw ConfigError(
            fmt::format("{}: {} waits for no other rank, so --late is not of it", option, name));
      }
      if (const std::string why = complete(selected, environment_, installation_); !why.empty()) {
        throw ConfigError(fmt::format("{}: {} cannot take part: {}", option, name, why));
      }
      settings_.benchmark.libraries.push_back(std::move(selected));
    }
  }

  void add_every_rival() {
    for (const bench_collectives::Library* rival : choices(true, settings_.benchmark.launched)) {
      bench_collectives::SelectedLibrary selected{.library = rival};
      if (rival->only_copies &&
          (settings_.benchmark.operation == bench_collectives::MeasuredOperation::barrier ||
           settings_.benchmark.late_seconds > 0)) {
        continue;
      }
      if (const std::string why = complete(selected, environment_, installation_); why.empty()) {
        settings_.benchmark.libraries.push_back(std::move(selected));
      } else {
        settings_.notes.push_back(fmt::format("{} does not take part: {}", rival->name, why));
      }
    }
  }

  BenchSettings& settings_;
  const LaunchEnvironment& environment_;
  const Installation& installation_;
};

void check_late(bench_collectives::BenchmarkSettings& benchmark, const BenchOptions& options) {
  if (!options.late) return;
  benchmark.late_seconds = parse_option("--late", [&] { return parse_seconds(*options.late); });
  if (benchmark.late_seconds <= 0) {
    throw ConfigError("--late is 0, but must be longer; 200ms is a good choice");
  }
  if (2 * benchmark.late_seconds > benchmark.timeout.count()) {
    throw ConfigError(fmt::format(
        "--late is {}, and ranks wait for {:g} s at most: give twice as long a --timeout, at least",
        *options.late, benchmark.timeout.count()));
  }
  if (benchmark.ranks < 2) {
    throw ConfigError("--late has ranks wait for another, and there is one alone: give more --ranks");
  }
  if (benchmark.touch || benchmark.interference || options.plot || options.cluster) {
    throw ConfigError(
        "--late is of ranks that do nothing but wait: leave out --touch, --interference, --plot and "
        "--cluster");
  }
}

void check_memory(const bench_collectives::BenchmarkSettings& benchmark, int ranks_here,
                  const Installation& installation) {
  // Each rank has a vector, and for some operations a second one that it is copied or sent to.
  const std::int64_t most = *std::max_element(benchmark.sizes.begin(), benchmark.sizes.end());
  const auto vectors = static_cast<double>(2 * benchmark.libraries.size()) * ranks_here;
  if (vectors * static_cast<double>(most) > static_cast<double>(installation.available_bytes)) {
    throw ConfigError(
        fmt::format("--sizes: vectors of {} on {} ranks of {} libraries need up to {:.1f} GiB, but {} are "
                    "available; give "
                    "smaller sizes, or name fewer --rivals",
                    format_bytes(most), ranks_here, benchmark.libraries.size(),
                    vectors * static_cast<double>(most) / static_cast<double>(kGiB),
                    format_bytes(installation.available_bytes)));
  }
}

void check_outputs(BenchSettings& settings, const BenchOptions& options) {
  const bench_collectives::BenchmarkSettings& benchmark = settings.benchmark;
  settings.json = checked_output_path("--json", options.json);
  settings.plot = checked_picture_path("--plot", options.plot);
  settings.cluster = checked_output_path("--cluster", options.cluster);
  refuse_shared_outputs(
      {{"--json", settings.json}, {"--plot", settings.plot}, {"--cluster", settings.cluster}});
  if (!settings.plot.empty() && benchmark.operation == bench_collectives::MeasuredOperation::barrier) {
    throw ConfigError("--plot draws times against sizes, and a barrier has none; leave it out");
  }
  if (settings.cluster.empty()) {
    return;
  }
  if (benchmark.operation == bench_collectives::MeasuredOperation::all_to_all_v) {
    throw ConfigError("--cluster fits alpha and beta to equal blocks; measure an all-to-all for it");
  }
  if (benchmark.operation == bench_collectives::MeasuredOperation::barrier || benchmark.sizes.size() < 2) {
    throw ConfigError("--cluster fits alpha and beta, which takes two or more sizes; give more --sizes");
  }
  if (benchmark.ranks < 2) {
    throw ConfigError("--cluster fits times between ranks, and one rank sends nothing; give more --ranks");
  }
}

}  // namespace

std::vector<std::int64_t> parse_sizes(const std::vector<std::string>& texts) {
  std::vector<std::int64_t> sizes;
  for (const std::string& text : texts) {
    const std::size_t dots = text.find("..");
    const std::int64_t first = parse_bytes(std::string_view(text).substr(0, dots));
    const std::int64_t last =
        dots == std::string::npos ? first : parse_bytes(std::string_view(text).substr(dots + 2));
    if (first > last) {
      throw ConfigError(fmt::format("'{}' begins above its end; put the smaller size first", text));
    }
    if (last > kLargestSize) {
      throw ConfigError(
          fmt::format("'{}' is more than {}; give a smaller size", text, format_bytes(kLargestSize)));
    }
    for (std::int64_t size = first; size < last; size *= 4) {
      sizes.push_back(size);
    }
    sizes.push_back(last);
  }
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  return sizes;
}

BenchSettings check(const BenchOptions& options, const LaunchEnvironment& environment,
                    const Installation& installation) {
  BenchSettings settings;
  bench_collectives::BenchmarkSettings& benchmark = settings.benchmark;
  benchmark.launched = environment.size > 1;
  const std::int64_t ranks = options.ranks.value_or(benchmark.launched ? environment.size : 2);
  check_range("--ranks", ranks, 1, benchmark.launched ? environment.size : kMostRanks);
  if (benchmark.launched && (ranks != environment.size || options.bind.value_or(false))) {
    throw ConfigError(fmt::format(
        "{} is for ranks that this command starts itself, and {} has started {}: leave it out",
        ranks != environment.size ? "--ranks" : "--bind", environment.launcher, environment.size));
  }
  check_range("--repeat", options.repeat, 1, kMostRepeats);
  benchmark.program = installation.program;
  benchmark.ranks = static_cast<int>(ranks);
  benchmark.repeat = static_cast<int>(options.repeat);
  benchmark.operation = parse_option(
      "--operation", [&] { return bench_collectives::parse_measured_operation(options.operation); });
  if (options.seed && benchmark.operation != bench_collectives::MeasuredOperation::all_to_all_v) {
    throw ConfigError("--seed draws the sizes of an all-to-all-v, and nothing else here; leave it out");
  }
  const std::int64_t seed = options.seed.value_or(1);
  check_range("--seed", seed, 0, std::numeric_limits<std::int64_t>::max());
  benchmark.seed = static_cast<std::uint64_t>(seed);
  benchmark.dtype = parse_option("--dtype", [&] { return parse_dtype(options.dtype); });
  if (benchmark.dtype == DType::u8 && reduces(benchmark.operation)) {
    throw ConfigError(
        "--dtype: sums of uint8 overflow, so there are none; choose another dtype or operation");
  }
  benchmark.sizes = parse_option("--sizes", [&] { return parse_sizes(options.sizes); });
  if (benchmark.operation == bench_collectives::MeasuredOperation::barrier) {
    benchmark.sizes = {0};
  }
  benchmark.timeout = std::chrono::duration<double>(checked_timeout(options.timeout, "60s"));
  benchmark.reproducible = options.reproducible;
  benchmark.interference = options.interference;
  if (benchmark.interference && benchmark.operation == bench_collectives::MeasuredOperation::barrier) {
    throw ConfigError(
        "--interference is of operations that move bytes, and a barrier moves none; leave it out");
  }
  benchmark.touch = options.touch;
  if (benchmark.touch && benchmark.operation == bench_collectives::MeasuredOperation::barrier) {
    throw ConfigError("--touch is of operations on vectors, and a barrier has none; leave it out");
  }
  if (benchmark.touch && (benchmark.interference || options.ahead.value_or(1) > 1 || options.cluster)) {
    throw ConfigError(
        "--touch is of one operation at a time, with what a program does around it in its time: leave out "
        "--ahead, --interference and --cluster");
  }
  check_late(benchmark, options);
  const std::int64_t ahead = options.ahead.value_or(benchmark.interference ? kAheadInTraining : 1);
  check_range("--ahead", ahead, 1, kMostAhead);
  if (benchmark.interference && ahead == 1) {
    throw ConfigError(
        "--interference is of operations in flight beside a computation, and --ahead 1 waits for each; "
        "give 2 or more");
  }
  benchmark.ahead = static_cast<int>(ahead);
  benchmark.bind = options.bind.value_or(!benchmark.launched && benchmark.ranks <= installation.cores);
  if (environment.rank == 0) {  // which is the one that writes
    check_outputs(settings, options);
  }
  LibrarySelection(settings, environment, installation).add_all(options);
  check_memory(benchmark, benchmark.launched ? environment.local_size : benchmark.ranks, installation);
  return settings;
}

Installation this_installation() {
  return {.program = launch::own_program(),
          .cores = static_cast<int>(launch::usable_cores().size()),
          .available_bytes = os::available_memory(),
          .find_mpi_launcher = bench_collectives::find_mpi_launcher};
}

}  // namespace dear::cli
