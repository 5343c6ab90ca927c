#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dear/base/vocabulary/dtype.h"
#include "dear/methods/moe/instructions.h"
#include "dear/methods/moe/partition.h"
#include "dear/platform/cluster/cluster.h"
#include "dear/workload/zoo/device.h"

// Language models with mixtures of experts as graphs of instructions, from shapes of layers, the roofline of
// a device and the links of a cluster: what nobody has measured yet.
namespace dear::methods::moe {

struct MixtureModel {
  std::string_view name;
  std::string_view summary;
  std::string_view source;
  std::int64_t layers = 0, width = 0, heads = 0;
  std::int64_t inner_width = 0;  // of a dense network
  std::int64_t vocabulary = 0;
  std::int64_t length = 0;  // of a sequence
  int first_mixture = 1, mixture_every = 2;
  std::int64_t experts = 0;  // of all ranks; 0: experts_of_rank on each
  std::int64_t experts_of_rank = 0;
  std::int64_t expert_width = 0;  // inner width of an expert
  std::int64_t shared_width = 0;  // inner width of the experts that see every token; 0: none
  int choices = 1;                // experts of a token
  bool fused_attention = false;   // one kernel that writes no scores
  bool gated = false;             // silu(a) * b in place of gelu(a), in dense networks and experts
  std::vector<std::pair<std::string_view, std::int64_t>> batches{};  // sequences on a rank, by device

  [[nodiscard]] bool has_mixture(std::int64_t layer) const {
    return layer >= first_mixture && (layer - first_mixture) % mixture_every == 0;
  }
  [[nodiscard]] std::int64_t mixtures() const {  // layers that have one
    return (layers - first_mixture + mixture_every - 1) / mixture_every;
  }
};
// "gpt2-s-moe" and "gpt2-l-moe" of Lancet, with the batches of its published configurations (its text has
// those of the A100 the other way round); "deepseek-moe-16b", many small experts and shared ones.
const std::vector<MixtureModel>& mixture_models();
const MixtureModel& find_mixture_model(std::string_view name);  // ConfigError that lists them
// ConfigError for a device with which nobody said that it trains.
std::int64_t batch_of(const MixtureModel& model, std::string_view device);

// How a gate places tokens: see routing.h. Only in order it may be cut.
enum class Gate : std::uint8_t { in_order, by_importance };
std::string name_of(Gate gate);         // "switch", "batch-prioritized"
Gate find_gate(std::string_view name);  // ConfigError that lists both

struct MixtureOptions {
  std::int64_t batch = 0;         // sequences on a rank; 0: the model's on this device
  DType dtype = DType::f32;       // of parameters, activations and what travels
  double capacity_factor = 1.25;  // of each choice
  Gate gate = Gate::in_order;
  double part_inefficiency = 0.06;  // see OperatorTimes; ours
};

// One rank's iteration as autograd runs it, before any pass: the gradient of a weight before that of the
// input of the same operator, shared experts after the others. Dense gradients are reduce-scattered block by
// block as they come; each block's parameters are updated and gathered at the end, and the next forward of
// the block waits for that. Experts' gradients stay where they are, and each rank updates its own experts. A
// part of an operator moves its part of the activations and all weights, after a launch of its own; a part of
// an all-to-all has its part of the bytes.
struct MixtureJob {
  InstructionGraph graph;
  PartSeconds part_seconds;
  std::int64_t capacity = 0;      // places of an expert for the tokens of one rank
  double all_to_all_seconds = 0;  // of one, whole
  double expert_seconds = 0;      // of the experts of one mixture in the forward
};
// ConfigError for a batch that is not known or below 1, experts that cannot be dealt to the ranks alike, what
// capacity_of() refuses, and a type that the device does not train in.
MixtureJob make_job(const MixtureModel& model, const zoo::Device& device, const Cluster& cluster,
                    const MixtureOptions& options = {});

}  // namespace dear::methods::moe
