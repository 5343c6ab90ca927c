#include "studies/paper/paper.h"

#include "studies/paper/calibrate.h"
#include "studies/paper/headline.h"
#include "studies/paper/paper_tables.h"
#include <algorithm>
#include <array>
#include <memory>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "dear/base/vocabulary/error.h"

namespace dear::studies {
namespace {

struct StudiedNetwork {
  const char* cluster;
  const char* title;
};
constexpr std::array kNetworks = {StudiedNetwork{"10gbe-64", "10 Gb/s Ethernet"},
                                  StudiedNetwork{"100gbib-64", "100 Gb/s InfiniBand"}};
constexpr const char* kCalibrated = "calibrated-";  // before the name of a cluster

double largest_gain(const Published& published, std::string_view cluster) {
  const auto found = std::find_if(published.gains.begin(), published.gains.end(),
                                  [&](const PublishedGain& gain) { return gain.cluster == cluster; });
  if (found == published.gains.end())
    throw ConfigError(fmt::format("no gain on cluster '{}' is published: add it to the gains", cluster));
  return found->largest;
}

// Both networks, and their files.
class Part {
 public:
  Part(std::string prefix, const std::string& algorithm) : prefix_(std::move(prefix)) {
    for (const StudiedNetwork& network : kNetworks)
      tables_.push_back(std::make_unique<PaperTables>(prefix_ + network.cluster, algorithm));
  }

  [[nodiscard]] std::string sections(const Published& published) const {
    std::string text;
    for (std::size_t i = 0; i < kNetworks.size(); ++i) {
      const auto& [cluster, title] = kNetworks[i];
      text += fmt::format("## {}\n\n![{}]({}{}.svg)\n\n", title, title, prefix_, cluster);
      for (const int ranks : kPaperRanks) text += tables_[i]->times(ranks);
      text +=
          "### Where the time goes\n\nBeyond computation: what bandwidth leaves uncovered even with "
          "infinitely "
          "fine buckets (overlap), what buckets of this size change of it (fusion), what launches, the alpha "
          "of "
          "messages and negotiation add (start-up), and what communication and computation take from each "
          "other "
          "(interference).\n\n";
      text += tables_[i]->breakdowns();
      text += "### What DeAR with planned buckets gains, P = 64\n\n";
      text += tables_[i]->gains(largest_gain(published, cluster));
    }
    return text;
  }

  void add_to(std::vector<StudyFile>& files, std::vector<cases::Case>& cases) const {
    for (std::size_t i = 0; i < kNetworks.size(); ++i) {
      const auto& [cluster, title] = kNetworks[i];
      files.push_back({fmt::format("{}{}.svg", prefix_, cluster),
                       plot(tables_[i]->cases(), fmt::format("Iteration times on {}, simulated", title))});
      cases.insert(cases.end(), tables_[i]->cases().begin(), tables_[i]->cases().end());
    }
  }

 private:
  std::string prefix_;
  std::vector<std::unique_ptr<PaperTables>> tables_;
};

constexpr const char* kIntroduction = R"(# The study of DeAR's paper, simulated

Five models on 16 nodes with 4 RTX 2080 Ti each, as in Zhang et al., ICDCS 2023 (arXiv 2302.12445), by every
policy with the settings that its own system comes with. Written by `dear study paper`; the same bytes every
time. Nothing here was measured but what papers and their code publish: one-GPU iterations of the five models,
the effective bandwidth and start-up time of the networks, and the throughputs to which the model of the network
is calibrated. Times of layers are spread over these iterations by a roofline of the device, forward being about
a third.

The same study on [rings over all ranks](rings.md), as the paper's analysis has them, is an appendix.

Milliseconds an iteration; in brackets the policy's bound: infinitely fine buckets, the same collectives. A bound
counts no updates and no interference, and start-up as it is in r, which grows with the number of buckets.
Updates on a lane of their own run beside computation here, as where the constants below were fitted; `dear simulate`
and `dear plan` make them take its time, which costs `dear-replicated` up to 3 % on BERT-Large.
`dear-replicated` is the paper's own form, `dear` updates shards, `dear-eager` mixes the two halves in the best
order that is found. The paper tunes DeAR's bucket size; here borders are sought (planned buckets), for wait-free
backpropagation as well, since that is not what tells the two apart.

)";

constexpr const char* kCalibration = R"(## How far the network can be believed

`dear study calibration` fits four constants to half of the throughputs that [published.json](published.json)
lists, and holds the other half back: ResNet-50 on Ethernet and BERT-Base on InfiniBand are fitted, ResNet-50 on
InfiniBand and BERT-Base on Ethernet are not. The rule looks at no figure: every job, network and method is in
both halves. The last lines of the second table show the halves swapped. Two methods whose published figures differ
by less than 1 % are no pair.

The constants have not seen the held-back half; the form of the model has. It was chosen among several with all
figures in view, so these errors are what to expect of this cluster, and less than what to expect of another.

)";

constexpr const char* kWhatItSays = R"(
What makes the difference to rings over all ranks, all of it in `dear/platform/cost` and `dear/platform/cluster`:

- Start-ups add up along a ring hop by hop, each with the alpha of its own link, and small all-reduces go by a
  double tree, as NCCL chooses (`--algorithm nccl`). Alphas are not fitted.
- Software launches collectives one after another, and a launch goes on while messages of the one before set out:
  start-up is the longer of the two. Partitions of one tensor that ByteScheduler has in flight share it.
- GPUs of a node without direct access to each other reach a third of what PCIe nominally carries. On InfiniBand
  that, not the network, is the slowest link, and it is slower while GPUs compute: an interference of
  communication, which Ethernet does not show.
- ByteScheduler holds every layer's forward in the program until its parameters have come.

)";

constexpr const char* kOfTheFigures = R"(
All figures are of 32 ranks and of Horovod, whose negotiation is a part of their launches. That a launch takes as
long on 64 ranks, and for systems that call NCCL without Horovod, is an assumption. What ByteScheduler does with
DenseNet-201 (604 launches and 402 holds) was published by nobody and is an extrapolation.

)";

constexpr const char* kAppendix = R"(# Rings over all ranks

The appendix of the [study](README.md), written by `dear study paper`: the same models and policies where
collectives of all policies are rings over all ranks, as in the paper's analysis. All hops cost what a hop between
nodes costs, one after another; nothing is launched, and communication takes no time from computation. Policies
with many small collectives come out several times slower than anybody has seen them: at P = 64 on Ethernet each
all-reduce pays 126 hops, 7 ms.

)";

std::string left_out() {
  std::string text = "## What is left out\n\n| policy | source | not modelled |\n|---|---|---|\n";
  for (const Policy& policy : policies())
    text += fmt::format("| {} | {} | {} |\n", policy.name, policy.source,
                        policy.leaves_out.empty() ? "-" : policy.leaves_out);
  return text +
         "\nFor all of them: communication takes no time from computation (copies into buckets, kernels of "
         "reductions, cores), all ranks compute at the same pace, and nothing else uses the network.\n";
}

}  // namespace

std::vector<StudyFile> study_of_the_paper(const Published& published, const Progress& progress) {
  Pieces sections(progress, "sections", 3);
  const std::vector<bool> half = diagonal(published);
  const Fit fitted = fit(published, half);
  const Part calibrated(kCalibrated, "nccl");
  sections.done_one();
  const Part rings("", "ring");
  sections.done_one();
  std::vector<StudyFile> files = {
      {"README.md",
       kIntroduction + (kCalibration + report_of(published, fitted, fit(published, other_half(half)))) +
           kWhatItSays + conclusion_of(published, least_explained(published, fitted)) + kOfTheFigures +
           report_of(explain(published)) + calibrated.sections(published) + left_out()},
      {"rings.md", kAppendix + rings.sections(published)}};
  std::vector<cases::Case> cases;
  calibrated.add_to(files, cases);
  rings.add_to(files, cases);
  const nlohmann::ordered_json results = {{"cases", nlohmann::ordered_json::parse(to_json(cases))}};
  files.push_back({"results.json", results.dump(2) + "\n"});
  sections.done_one();
  return files;
}

}  // namespace dear::studies
