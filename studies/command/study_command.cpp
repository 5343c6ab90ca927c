// size: a few lines for each study

#include "studies/command/study_commands.h"
#include "studies/edge/partel.h"
#include "studies/edge/wireless.h"
#include "studies/fusionllm/fusionllm.h"
#include "studies/homomorphic/homomorphic.h"
#include "studies/kfac/convergence.h"
#include "studies/kfac/kfac.h"
#include "studies/lancet/lancet.h"
#include "studies/paper/calibrate.h"
#include "studies/paper/paper.h"
#include "studies/report/duration.h"
#include "studies/rounds/rounds.h"
#include "studies/sparse/sparse.h"
#include "studies/themis/themis.h"
#include <chrono>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <unistd.h>
#include <vector>

#include <fmt/format.h>

#include "dear/base/charts/picture_file.h"
#include "dear/base/launch/own_command.h"
#include "dear/base/os/atomic_file.h"
#include "dear/base/vocabulary/error.h"
#include "dear/tools/options/option_adder.h"
#include "dear/tools/options/option_checks.h"
#include "dear/tools/options/progress.h"
#include "dear/tools/options/results_file.h"

namespace dear::cli {
namespace {

// The path of figures of papers that come with DeAR: beside an installed command, else in the sources that it
// was built in, which may have been moved with the build, or from.
std::string own_published(const std::string& installed_name, const std::string& name_in_sources) {
  const std::filesystem::path build = std::filesystem::path(launch::own_program()).parent_path();
  for (const std::filesystem::path& path :
       {build.parent_path() / DEAR_DATA_FOLDER / installed_name,
        build.parent_path().parent_path() / "docs/study" / name_in_sources})
    if (std::filesystem::exists(path)) return path.string();
  return DEAR_SOURCE_FOLDER "/docs/study/" + name_in_sources;
}

// Says on stderr how long a study takes, as `duration` has it, and how far it is.
studies::Progress announced(std::string_view study, std::string_view duration) {
  fmt::print(stderr, "dear study {}: takes {}\n", study, duration);
  const auto seconds = [] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  };
  auto shown = std::make_shared<StudyProgress>(std::cerr, isatty(STDERR_FILENO) == 1, seconds);
  return [shown](std::string_view part, std::size_t done, std::size_t pieces) {
    shown->update(part, done, pieces);
  };
}

constexpr const char* kSeconds = "seconds";
constexpr studies::Duration kSparseTakes{.once_seconds = 20, .task_seconds = 120};
constexpr studies::Duration kQuickSparseTakes{.once_seconds = 2, .task_seconds = 0.04};
constexpr studies::Duration kHomomorphicTakes{.once_seconds = 60, .task_seconds = 10};
constexpr studies::Duration kFusionLlmTakes{.once_seconds = 130, .task_seconds = 20};
constexpr studies::Duration kRoundsTakes{.once_seconds = 15, .task_seconds = 25};
constexpr studies::Duration kQuickHomomorphicTakes{.once_seconds = 2, .task_seconds = 0.02};

std::string help(const std::string& what, const std::string& duration) {
  return fmt::format("{}; takes {}", what, duration);
}

// The folder that a study writes, and the formats that its pictures have beside SVG, which its pages show.
class StudyFolder {
 public:
  explicit StudyFolder(std::string path) : path_(std::move(path)) {}

  void add_to(CLI::App& command, const std::string& contents) {
    const OptionAdder add(command);
    add.with_default("--out", path_, "FOLDER", "Folder to write to: " + contents);
    add("--pictures", formats_, "FORMATS",
        "Write each picture in these formats too, beside SVG: pdf, png, or both with a comma")
        ->delimiter(',')
        ->check(CLI::IsMember({"pdf", "png"}));
  }
  // Before the work: a study that takes minutes is not lost for want of a folder or of a converter.
  void make() const {
    for (const std::string& format : formats_)
      charts::check_picture_path((std::filesystem::path(path_) / ("picture." + format)).string());
    std::error_code error;
    std::filesystem::create_directories(path_, error);
    if (error) throw ConfigError(fmt::format("cannot make the folder {}: {}", path_, error.message()));
  }
  // Of results.json, `modelled` says what was not done.
  void write(const std::vector<studies::StudyFile>& files, Modelled modelled) const {
    for (const studies::StudyFile& file : files) {
      const std::filesystem::path path = std::filesystem::path(path_) / file.name;
      write_one(path, [&] {
        std::filesystem::create_directories(path.parent_path());
        os::write_file_atomically(path.string(), path.filename() == "results.json"
                                                     ? with_origin(file.content, modelled)
                                                     : file.content);
      });
      if (path.extension() != ".svg") continue;
      for (const std::string& format : formats_) {
        const std::filesystem::path other = std::filesystem::path(path).replace_extension(format);
        write_one(other, [&] { charts::write_picture(other.string(), file.content); });
      }
    }
  }

 private:
  template <class Write>
  static void write_one(const std::filesystem::path& path, Write write) {
    write_checked(write);
    fmt::print("{}\n", path.string());
  }

  std::string path_;
  std::vector<std::string> formats_;
};

struct StudyArguments {
  StudyFolder folder{"docs/study"};
  std::optional<std::string> published;

  void add_published_to(CLI::App& command) {
    const OptionAdder add(command);
    add("--published", published, "FILE",
        "Figures of papers, with their sources: all numbers that are not simulated; without it "
        "those that come with DeAR");
  }
  [[nodiscard]] studies::Published read() const {
    return studies::read_published(published ? *published
                                             : own_published("published.json", "published.json"));
  }
};

void write_paper(const StudyArguments& arguments) {
  const studies::Published published = arguments.read();
  arguments.folder.make();
  arguments.folder.write(studies::study_of_the_paper(published, announced("paper", kSeconds)), kAllModelled);
}

// Options of a study that trains.
struct TrainingArguments {
  TrainingArguments(std::string default_folder, int seeds_of_the_whole)
      : folder(std::move(default_folder)), default_seeds(seeds_of_the_whole) {}
  StudyFolder folder;
  int default_seeds;
  std::optional<int> seeds;
  bool quick = false;

  void add_to(CLI::App& command) {
    const OptionAdder add(command);
    folder.add_to(command, "README.md, pictures, results.json");
    add("--seeds", seeds, "N",
        fmt::format("How many tasks are trained on (default: {}, or 2 if quick)", default_seeds))
        ->check(CLI::Range(1, 1000));
    command.add_flag("--quick", quick,
                     "Take seconds instead of minutes, on tasks so small that what is learned means nothing");
  }
};

void write_sparse(const TrainingArguments& arguments) {
  studies::sparse::SparseOptions options =
      arguments.quick ? studies::sparse::quick_study() : studies::sparse::whole_study();
  if (arguments.seeds) options.accuracy.seeds = *arguments.seeds;
  arguments.folder.make();
  const studies::Progress progress =
      announced("sparse", (arguments.quick ? kQuickSparseTakes : kSparseTakes).text(options.accuracy.seeds));
  const studies::sparse::Speeds speeds =
      studies::sparse::measure_speeds(options.measured, options.ranks, options.rounds, progress);
  arguments.folder.write(studies::sparse::study_of_sparse_communication(options, speeds, progress),
                         {.communication = true});
}

void write_homomorphic(const TrainingArguments& arguments) {
  studies::homomorphic::HomomorphicOptions options =
      arguments.quick ? studies::homomorphic::quick_study() : studies::homomorphic::whole_study();
  if (arguments.seeds) options.learning.seeds = *arguments.seeds;
  arguments.folder.make();
  const studies::Progress progress =
      announced("homomorphic",
                (arguments.quick ? kQuickHomomorphicTakes : kHomomorphicTakes).text(options.learning.seeds));
  const studies::homomorphic::Speeds speeds = studies::homomorphic::measure_speeds(options.speeds, progress);
  arguments.folder.write(studies::homomorphic::study_of_homomorphic_compression(options, speeds, progress),
                         {.communication = true});
}

// Options of a study that simulates what a paper published, quickly or as a whole.
struct SimulatedArguments {
  explicit SimulatedArguments(std::string default_folder) : folder(std::move(default_folder)) {}
  StudyFolder folder;
  std::optional<std::string> published;
  bool quick = false;

  void add_to(CLI::App& command, const std::string& fewer) {
    const OptionAdder add(command);
    folder.add_to(command, "README.md, pictures, results.json");
    add("--published", published, "FILE",
        "Figures of the paper, with their source; without it those that come with DeAR");
    command.add_flag("--quick", quick, fewer);
  }
};

void write_themis(const SimulatedArguments& arguments) {
  const studies::themis::PublishedThemis published = studies::themis::read_published_themis(
      arguments.published ? *arguments.published
                          : own_published("published_themis.json", "themis/published.json"));
  arguments.folder.make();
  arguments.folder.write(
      studies::themis::study_of_themis(
          published, arguments.quick ? studies::themis::quick_study() : studies::themis::whole_study(),
          announced("themis", kSeconds)),
      kAllModelled);
}

void write_lancet(const SimulatedArguments& arguments) {
  const studies::lancet::PublishedLancet published = studies::lancet::read_published_lancet(
      arguments.published ? *arguments.published
                          : own_published("published_lancet.json", "lancet/published.json"));
  arguments.folder.make();
  arguments.folder.write(
      studies::lancet::study_of_lancet(
          published, arguments.quick ? studies::lancet::quick_study() : studies::lancet::whole_study(),
          announced("lancet", kSeconds)),
      kAllModelled);
}

void write_fusionllm(const SimulatedArguments& arguments) {
  const studies::fusionllm::PublishedFusionLlm published = studies::fusionllm::read_published_fusionllm(
      arguments.published ? *arguments.published
                          : own_published("published_fusionllm.json", "fusionllm/published.json"));
  const studies::fusionllm::Digits digits =
      studies::fusionllm::read_digits(own_published("fusionllm_digits.txt", "fusionllm/digits.txt"));
  const studies::fusionllm::FusionLlmOptions options =
      arguments.quick ? studies::fusionllm::quick_study() : studies::fusionllm::whole_study();
  arguments.folder.make();
  arguments.folder.write(
      studies::fusionllm::study_of_fusionllm(
          published, digits, options,
          announced("fusionllm", arguments.quick ? kSeconds : kFusionLlmTakes.text(options.learning.seeds))),
      kAllModelled);
}

void write_partel(const SimulatedArguments& arguments) {
  const studies::edge::PublishedPartel published = studies::edge::read_published_partel(
      arguments.published ? *arguments.published
                          : own_published("published_partel.json", "partel/published.json"));
  studies::edge::PartelOptions options;
  if (arguments.quick) options = {.seeds = 5, .trained = 2};
  arguments.folder.make();
  arguments.folder.write(studies::edge::study_of_partel(published, options), kAllModelled);
}

struct WirelessArguments {
  StudyFolder folder{"docs/study/wireless"};
  bool quick = false;
};

void write_wireless(const WirelessArguments& arguments) {
  arguments.folder.make();
  arguments.folder.write(
      studies::edge::study_of_wireless(
          arguments.quick ? studies::edge::quick_wireless() : studies::edge::WirelessOptions{},
          announced("wireless", arguments.quick ? kSeconds : "a minute")),
      kAllModelled);
}

struct RoundsArguments {
  StudyFolder folder{"docs/study"};
  std::optional<std::string> published;
  std::optional<int> seeds;
  bool quick = false;

  void add_to(CLI::App& command) {
    const OptionAdder add(command);
    folder.add_to(command, "tamuna, coda and diloco, each with README.md, pictures, results.json");
    add("--published", published, "FILE",
        "Figures of papers, with their sources; without it those that come with DeAR");
    add("--seeds", seeds, "N",
        fmt::format("How many texts the model of characters is trained on (default: {}, or 2 if quick)",
                    studies::rounds::LearningOptions{}.seeds))
        ->check(CLI::Range(1, 1000));
    command.add_flag("--quick", quick, "Take seconds, on problems so small that their figures mean nothing");
  }
};

void write_rounds(const RoundsArguments& arguments) {
  const studies::rounds::PublishedRounds published = studies::rounds::read_published_rounds(
      arguments.published ? *arguments.published
                          : own_published("published_diloco.json", "diloco/published.json"));
  studies::rounds::RoundsOptions options =
      arguments.quick ? studies::rounds::quick_study() : studies::rounds::whole_study();
  if (arguments.seeds) options.learning.seeds = *arguments.seeds;
  arguments.folder.make();
  arguments.folder.write(
      studies::rounds::study_of_rounds(
          published, options,
          announced("rounds", arguments.quick ? kSeconds : kRoundsTakes.text(options.learning.seeds))),
      {.communication = true});
}

struct KfacArguments {
  StudyFolder folder{"docs/study/kfac"};
  std::optional<std::string> published, convergence;

  void add_to(CLI::App& command) {
    const OptionAdder add(command);
    folder.add_to(command, "README.md, pictures, results.json");
    add("--published", published, "FILE",
        "Figures of the paper, with their source; without it those that come with DeAR");
    add("--convergence", convergence, "FILE",
        "Losses that bench/kfac/convergence.py has measured: writes their page and picture, nothing else");
  }
};

void write_kfac(const KfacArguments& arguments) {
  if (arguments.convergence) {
    const std::vector<studies::StudyFile> files = studies::kfac::convergence_of(*arguments.convergence);
    arguments.folder.make();
    return arguments.folder.write(files, {});
  }
  const studies::kfac::PublishedKfac published = studies::kfac::read_published_kfac(
      arguments.published ? *arguments.published
                          : own_published("published_kfac.json", "kfac/published.json"));
  arguments.folder.make();
  arguments.folder.write(studies::kfac::study_of_kfac(published, announced("kfac", kSeconds)), kAllModelled);
}

void print_calibration(const StudyArguments& arguments) {
  const studies::Published published = arguments.read();
  const std::vector<bool> half = studies::diagonal(published);
  fmt::print("{}\n\n{}", published.source,
             studies::report_of(published, studies::fit(published, half),
                                studies::fit(published, studies::other_half(half))));
}

}  // namespace

void add_study(CLI::App& app) {
  auto arguments = std::make_shared<StudyArguments>();
  CLI::App* const command = app.add_subcommand("study", "Simulate whole studies");
  command->require_subcommand(1);
  CLI::App* const paper = command->add_subcommand(
      "paper",
      help("The five models, two networks and 16 to 64 ranks of DeAR's paper, by every policy", kSeconds));
  arguments->folder.add_to(*paper, "README.md, an appendix, pictures, results.json");
  arguments->add_published_to(*paper);
  paper->callback([arguments] { write_paper(*arguments); });
  auto sparse_arguments =
      std::make_shared<TrainingArguments>("docs/study/sparse", studies::sparse::AccuracyOptions{}.seeds);
  CLI::App* const sparse = command->add_subcommand(
      "sparse",
      help("Train and measure with every scheme of sparse communication: accuracy, stability, speed",
           kSparseTakes.text(sparse_arguments->default_seeds) + ", in proportion to --seeds"));
  sparse_arguments->add_to(*sparse);
  sparse->callback([sparse_arguments] { write_sparse(*sparse_arguments); });
  auto homomorphic_arguments = std::make_shared<TrainingArguments>(
      "docs/study/homomorphic", studies::homomorphic::LearningOptions{}.seeds);
  CLI::App* const homomorphic = command->add_subcommand(
      "homomorphic",
      help("Try, measure and train with sums of sketches: recovery, losslessness, throughput, learning",
           kHomomorphicTakes.text(homomorphic_arguments->default_seeds)));
  homomorphic_arguments->add_to(*homomorphic);
  homomorphic->callback([homomorphic_arguments] { write_homomorphic(*homomorphic_arguments); });
  auto themis_arguments = std::make_shared<SimulatedArguments>("docs/study/themis");
  CLI::App* const themis = command->add_subcommand(
      "themis",
      help("Simulate chunks that go through several networks at once, beside what was published of it",
           kSeconds));
  themis_arguments->add_to(*themis, "Look at fewer models, networks and sizes");
  themis->callback([themis_arguments] { write_themis(*themis_arguments); });
  auto kfac_arguments = std::make_shared<KfacArguments>();
  CLI::App* const kfac = command->add_subcommand(
      "kfac",
      help("Simulate K-FAC with its communication hidden, beside what was published of it", kSeconds));
  kfac_arguments->add_to(*kfac);
  kfac->callback([kfac_arguments] { write_kfac(*kfac_arguments); });
  auto lancet_arguments = std::make_shared<SimulatedArguments>("docs/study/lancet");
  CLI::App* const lancet = command->add_subcommand(
      "lancet",
      help("Simulate mixtures of experts with their all-to-alls hidden, beside what was published of it",
           kSeconds));
  lancet_arguments->add_to(*lancet, "Look at fewer ranks, paces of kernels and random networks");
  lancet->callback([lancet_arguments] { write_lancet(*lancet_arguments); });
  auto fusionllm_arguments = std::make_shared<SimulatedArguments>("docs/study/fusionllm");
  CLI::App* const fusionllm = command->add_subcommand(
      "fusionllm", help("Plan and simulate one model over 48 devices that are far apart, beside what was "
                        "published of it, and "
                        "train with what its plans would send",
                        kFusionLlmTakes.text(studies::fusionllm::LearningOptions{}.seeds)));
  fusionllm_arguments->add_to(*fusionllm,
                              "Look at fewer devices, links and ratios, and train so little that "
                              "what is learned means nothing");
  fusionllm->callback([fusionllm_arguments] { write_fusionllm(*fusionllm_arguments); });
  auto partel_arguments = std::make_shared<SimulatedArguments>("docs/study/partel");
  CLI::App* const partel = command->add_subcommand(
      "partel", help("Plan blocks and bandwidth of learning at the edge, beside what was published of PARTEL",
                     kSeconds));
  partel_arguments->add_to(*partel, "Look at fewer cells");
  partel->callback([partel_arguments] { write_partel(*partel_arguments); });
  auto wireless_arguments = std::make_shared<WirelessArguments>();
  CLI::App* const wireless = command->add_subcommand(
      "wireless",
      help("Train over a modelled radio by many schedulers and aggregators, beside what papers state",
           "a minute"));
  wireless_arguments->folder.add_to(*wireless, "README.md, pictures, results.json");
  wireless->add_flag("--quick", wireless_arguments->quick,
                     "Train so little that what is learned means nothing");
  wireless->callback([wireless_arguments] { write_wireless(*wireless_arguments); });
  auto rounds_arguments = std::make_shared<RoundsArguments>();
  CLI::App* const rounds = command->add_subcommand(
      "rounds", help("Find minima, maximise AUC and train a model of characters by rounds: what is sent, and "
                     "what is learnt",
                     kRoundsTakes.text(studies::rounds::LearningOptions{}.seeds)));
  rounds_arguments->add_to(*rounds);
  rounds->callback([rounds_arguments] { write_rounds(*rounds_arguments); });
  CLI::App* const calibration = command->add_subcommand(
      "calibration",
      "Fit the model of a network to half of the published throughputs, and predict the other half");
  arguments->add_published_to(*calibration);
  calibration->callback([arguments] { print_calibration(*arguments); });
}

}  // namespace dear::cli
