#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

// Parameter and bandwidth allocation for partitioned edge learning (Wen, Bennis and Huang 2020,
// doi:10.1109/TWC.2020.3021177, arXiv 2003.04544). A model is cut into blocks, one for each group of workers.
// In an iteration a worker gets its block, computes the gradient of it on its own subset of the samples, and
// sends that; the iteration takes as long as the slowest worker. Symbols and the solver are a reconstruction
// from the abstract. All here are values, pure functions and ConfigError in one sentence.
namespace dear::methods::edge {

struct Worker {
  double cycles_per_parameter = 0;  // of the gradient of a parameter on all its samples
  double frequency_hz = 0;          // cycles in a second
  double efficiency_down = 0;       // bits in a second and hertz, log2(1 + SNR)
  double efficiency_up = 0;
  double overhead_seconds = 0;  // what does not grow with the block: a start, the margins of its samples
};

struct PabaProblem {
  std::vector<std::vector<Worker>> groups;  // each with as many workers
  std::int64_t parameters = 0;
  double bits_per_parameter = 32;
  double bandwidth_down_hz = 0;  // of all workers together
  double bandwidth_up_hz = 0;
};

// The gradient of a block needs A w, the margins of the worker's samples, of the whole model. The server
// broadcasts them to a worker before each iteration: seconds of so many samples.
double margin_seconds(std::int64_t samples, double bits, double bits_per_second);

struct Bandwidth {
  double down_hz = 0;
  double up_hz = 0;
};
using Bandwidths = std::vector<std::vector<Bandwidth>>;  // [group][worker]

// ConfigError for a problem without a plan, which names group and worker.
void check(const PabaProblem& problem);

// Seconds of an iteration of a worker with a block of so many parameters; of the slowest.
double seconds_of(const Worker& worker, const PabaProblem& problem, double block, const Bandwidth& bandwidth);
double seconds_of(const PabaProblem& problem, const std::vector<double>& blocks, const Bandwidths& bandwidth);

// Equal parts.
std::vector<double> equal_blocks(const PabaProblem& problem);
Bandwidths equal_bandwidth(const PabaProblem& problem);
// The blocks with the fastest iteration, given the bandwidth of each worker.
std::vector<double> blocks_for(const PabaProblem& problem, const Bandwidths& bandwidth);

// Bandwidth and blocks with the fastest iteration. A group whose channels are poor may get no parameters and
// no bandwidth: others make better use of it. `bound_seconds` is a proof: no allocation is faster, because
// none is that may trade bandwidth up for bandwidth down at a price of `price`.
struct Allocation {
  std::vector<double> blocks;
  Bandwidths bandwidth;
  double bound_seconds = 0;
  double price = 1;
  int evaluations = 0;  // of the sum of blocks or bandwidths
};
Allocation bandwidth_for(const PabaProblem& problem, const std::vector<double>& blocks);
Allocation joint_allocation(const PabaProblem& problem);

// How far an allocation is from satisfying the conditions of Karush, Kuhn and Tucker, relative: all workers
// end together, the bandwidth is spent, a hertz more up is worth the same in hertz down to every worker, and,
// where `joint`, a parameter costs every group the same.
double kkt_residual(const PabaProblem& problem, const std::vector<double>& blocks,
                    const Bandwidths& bandwidth, bool joint);

// Whole parameters whose sum is that of the problem: rounded down, and what is left, less than one a group,
// to the groups that it delays least.
std::vector<std::int64_t> whole_blocks(const PabaProblem& problem, const std::vector<double>& blocks,
                                       const Bandwidths& bandwidth);

struct PabaPlan {
  std::string_view scheme;
  std::vector<double> blocks;
  std::vector<std::int64_t> whole;
  Bandwidths bandwidth;
  double seconds = 0;        // of an iteration with blocks as reals
  double whole_seconds = 0;  // with whole parameters
  double bound_seconds = 0;  // no allocation of this scheme's freedom is faster; 0 where nothing is chosen
  double residual = 0;       // kkt_residual(), where bandwidth is chosen
  int evaluations = 0;
};

struct PabaScheme {
  std::string_view name, summary;
  PabaPlan (*solve)(const PabaProblem& problem);
};
const std::vector<PabaScheme>& paba_schemes();
// ConfigError with the names that there are, for a problem that check() refuses, and, for a
// `deadline_seconds` above 0, where an iteration takes longer.
PabaPlan solve_paba(const PabaProblem& problem, std::string_view scheme, double deadline_seconds = 0);

// The problem without the groups of workers that are lost: the others share their parameters. ConfigError
// where no group is left.
struct LostWorker {
  int group = 0;
  int worker = 0;
};
PabaProblem without(const PabaProblem& problem, const std::vector<LostWorker>& lost);

}  // namespace dear::methods::edge
