#pragma once

#include "studies/report/progress.h"
#include "studies/report/statement.h"
#include "studies/report/study_file.h"
#include <string>
#include <vector>

#include "dear/methods/edge/edge_run.h"

// This study tries what papers on learning over wireless networks state (an overview: Ozfatura, Gunduz and
// Poor 2021, arXiv 2112.05559) with the schedulers and aggregators of methods/edge, in virtual time.
namespace dear::studies::edge {

struct WirelessOptions {
  int seeds = 6;
  double seconds = 30;              // of virtual time, of a run
  std::int64_t noise_rounds = 300;  // of runs over the air
};
WirelessOptions quick_wireless();

// Runs with one seed each, alike but for the seed.
struct Learnt {
  std::string name;
  methods::edge::Split split = methods::edge::Split::iid;
  std::vector<double> accuracies;               // at the end, by seed: the mean of the last tenth of rounds
  std::vector<methods::edge::EdgeRound> first;  // of the first seed
};
// Mean squared errors of a mean over so many devices at equal channel uses.
struct AirOrDigital {
  int devices = 0;
  double snr_db = 0;
  double analogue = 0, digital = 0;
};
struct WirelessFindings {
  std::vector<Learnt> schedulers;  // by split
  std::vector<AirOrDigital> errors;
  // To one accuracy: in small cells with a part of the band each, with the whole of it each; in one cell.
  double hierarchical_seconds = 0, reusing_seconds = 0, flat_seconds = 0;
  std::vector<double> following_losses, fixed_losses;  // by seed, the last over the air
};
WirelessFindings find_wireless(const WirelessOptions& options, const Progress& progress = {});
std::vector<Statement> statements_of(const WirelessFindings& findings);
// README.md, pictures and results.json.
std::vector<StudyFile> study_of_wireless(const WirelessOptions& options, const Progress& progress = {});

}  // namespace dear::studies::edge
