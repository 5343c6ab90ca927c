#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <torch/types.h>

#include "dear/base/archive/value.h"
#include "dear/base/archive/zip_writer.h"
#include "dear/train/checkpoint/checkpoint.h"
#include "dear/train/data_parallel/training_state.h"
#include "dear/train/optim/optimizer.h"

namespace dear::checkpoint {

// Where the tensors of a checkpoint go: into a file now, or into memory until they are written.
class TensorSink {
 public:
  TensorSink() = default;
  virtual ~TensorSink() = default;
  TensorSink(const TensorSink&) = delete;
  TensorSink& operator=(const TensorSink&) = delete;
  // Saves the elements as they are now, and says where.
  archive::TensorRecord add(const torch::Tensor& tensor);
  // Writes what add() has kept; a disk may take its time.
  virtual void flush() {}
  virtual void finish(const std::string& pickle) = 0;

 private:
  virtual void write(const std::string& name, const torch::Tensor& dense) = 0;
  std::size_t count_ = 0;
};

// Writes tensors of kAtOnce bytes and more at once, and keeps smaller ones until flush() or finish():
// ConfigError as of ZipWriter.
class FileSink : public TensorSink {
 public:
  static constexpr std::int64_t kAtOnce = std::int64_t{4} << 20;
  explicit FileSink(const std::string& path) : writer_(path) {}
  void flush() override;
  void finish(const std::string& pickle) override;

 private:
  void write(const std::string& name, const torch::Tensor& dense) override;
  archive::ZipWriter writer_;
  std::vector<std::pair<std::string, torch::Tensor>> kept_;
};

// Copies, to be written later, by any thread.
class CopySink : public TensorSink {
 public:
  void finish(const std::string& pickle) override { pickle_ = pickle; }
  void add_record(const std::string& name, const std::string& text) { texts_.emplace_back(name, text); }
  void write_file(const std::string& path) const;

 private:
  void write(const std::string& name, const torch::Tensor& dense) override;
  std::vector<std::pair<std::string, torch::Tensor>> copies_;
  std::vector<std::pair<std::string, std::string>> texts_;
  std::string pickle_;
};

// Tensors that are saved beside model and optimiser, by name of the part and of the tensor.
using PartTensors = std::map<std::string, std::map<std::string, torch::Tensor>>;

// The vectors of the optimiser, by parameter and name.
using StoredState = std::vector<std::map<std::string, archive::TensorRecord>>;

// What `describe` makes of what was saved: the pickle of the file.
using Describe = std::function<std::string(TensorSink& sink, const train::EngineState::Outlines& outlines,
                                           const StoredState& vectors, const archive::Value& of_ranks)>;
// Saves the state whole, on rank 0: into what `make_sink` returns there. All ranks together. An error of rank
// 0 is, when all have done their part, a ConfigError on every rank.
void save_whole(train::TrainingState& state, RandomState random,
                const std::function<std::shared_ptr<TensorSink>()>& make_sink, const Describe& describe);

// The pickle of a checkpoint of libtorch's model and optimiser, at this position.
// `parts`: see parts.h.
Describe describe_libtorch(train::TrainingState& state, const Position& position, PartTensors parts);
archive::Value value_of(const Position& position);
// The options of a parameter group, as Python has them.
archive::Value value_of(const Optimizer::Options& options);
// An optimiser's state for a parameter: `scalars` as it encodes them, and its vectors, which the sink
// has.
archive::Value value_of_state(const Optimizer& optimizer, const std::string& scalars,
                              const std::map<std::string, archive::TensorRecord>& vectors, TensorSink& sink);

// Runs `act` on rank 0. Where it throws, every rank throws a ConfigError of that text, which names the rank.
// All ranks together.
// However long it takes: patiently().
void on_rank_0(const Group& group, const std::function<void()>& act);
// Runs `act` on every rank. Where it throws on some, every rank throws the text of the first of them.
void on_every_rank(const Group& group, const std::function<void()>& act);
// Likewise what all ranks do together: `act` runs in `run` what takes its time.
using Run = std::function<void(const std::function<void()>&)>;
void on_every_rank_at_once(const Group& group, const std::function<void(const Run& run)>& act);

}  // namespace dear::checkpoint
