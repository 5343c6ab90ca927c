#pragma once

#include "studies/report/progress.h"
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "dear/methods/pipeline/planner.h"
#include "dear/platform/cluster/sites.h"

// This header plays iterations of a model that no device holds, on devices that are drawn, in virtual time,
// by every plan and compression.
namespace dear::studies::fusionllm {

using methods::pipeline::CompressionRule;
using methods::pipeline::DeviceUse;
using methods::pipeline::PlanMethod;
using methods::pipeline::ScheduleKind;

// A setting is all that has to be assumed to tell how long an iteration takes, and is not published.
struct Setting {
  std::string name, says;
  SiteOptions sites{};  // but for the seed
  bool listed_by_site = false;
  double way_back = 1;  // the bandwidth from a device to one listed before it, over that of the way there
  int micro_batches = 48;
  std::int64_t images = 96, texts = 48;  // of an iteration of a ResNet, and of a GPT
  bool half = false;                     // parameters and what travels have 16 bits
  bool tied = true;                      // embeddings of a GPT
  std::string larger_gpt{};              // instead of a GPT, if any
  double ratio = 100;                    // of compression
  ScheduleKind schedule = ScheduleKind::one_f_one_b;
  int stages_of_device = 1;
  bool of_gpt = false;  // it changes nothing of a ResNet
};

// The first is the one from which each other differs in one thing.
const std::vector<Setting>& assumptions();
const std::vector<Setting>& topologies();
// These are devices as drawn and those of one site, by every schedule.
const std::vector<Setting>& schedules();
// Gives all links between sites one bandwidth, and all inside of sites kFastestLink.
Setting with_bandwidth_between(double bits_per_second);
inline constexpr double kFastestLink = 10e9;  // bits a second

// An iteration is one plan, played.
struct Iteration {
  std::string setting, model;
  std::uint64_t seed = 0;              // of the devices
  double between_bits_per_second = 0;  // the slowest link between sites
  PlanMethod method = PlanMethod::op_fence;
  CompressionRule rule = CompressionRule::none;
  ScheduleKind schedule = ScheduleKind::one_f_one_b;
  int micro_batches = 0;
  DeviceUse use = DeviceUse::all;
  int devices = 0, between_sites = 0;         // devices, and cuts whose two devices are of different sites
  double seconds = 0, estimated_seconds = 0;  // played; by the closed form of FusionLLM
  double bubble = 0;                          // the part of all devices' time in which they compute nothing
  double elements = 0, bytes = 0;             // that travel in an iteration, over all links
  double peak_bytes = 0;                      // the most of a device
};

// This is what a plan is asked for, beside the setting.
struct Asked {
  PlanMethod method = PlanMethod::op_fence;
  CompressionRule rule = CompressionRule::none;
  DeviceUse use = DeviceUse::all;
};
// These are every plan with every compression, and those that the picture by bandwidth shows.
std::vector<Asked> every_plan();
std::vector<Asked> pictured_plans();

// This plan cannot be made, for the reason.
struct LeftOut {
  std::string what, reason;
};

struct Iterations {
  std::vector<Iteration> all;
  std::vector<LeftOut> left_out;

  void add(Iterations more);
  // It is null where the plan was left out.
  [[nodiscard]] const Iteration* find(std::string_view setting, std::string_view model, std::uint64_t seed,
                                      PlanMethod method, CompressionRule rule,
                                      DeviceUse use = DeviceUse::all) const;
};

// Plays a model with a setting on devices of one seed, by what is asked for. A plan that memories do not hold
// is left out.
Iterations play(const Setting& setting, const std::string& model, std::uint64_t seed,
                const std::vector<Asked>& asked);

struct PlayOptions {
  std::vector<std::string> models;  // of the zoo
  int seeds = 5;                    // 1 to so many
};
// Plays all settings by all models that they concern and seeds, in this order whatever the number of threads.
Iterations play_all(const std::vector<Setting>& settings, const PlayOptions& options,
                    const std::vector<Asked>& asked, std::string_view part,
                    const studies::Progress& progress = {});

// Returns how many communities the links of a setting's devices make.
std::size_t communities_of(const Setting& setting, std::uint64_t seed);

}  // namespace dear::studies::fusionllm
