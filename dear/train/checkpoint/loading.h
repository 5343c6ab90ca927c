#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dear/base/archive/value.h"
#include "dear/base/archive/zip_reader.h"
#include "dear/train/checkpoint/checkpoint.h"
#include "dear/train/checkpoint/saving.h"
#include "dear/train/data_parallel/training_state.h"

namespace dear::checkpoint {

// "AdamW" of torch::optim::AdamW and of torch.optim.adamw.AdamW; "SGD and AdamW" of several.
std::string class_of(const std::string& name);

// A checkpoint as a value, and where the elements of its tensors are.
class Source {
 public:
  Source(std::string path, archive::Value value) : path_(std::move(path)), value_(std::move(value)) {}
  virtual ~Source() = default;
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] const archive::Value& value() const { return value_; }
  // ConfigError where its elements are not all there.
  virtual void require(const archive::TensorRecord& record) const = 0;
  // Valid until the next call. In shards: the elements that this rank has read, and zeros in place of the
  // others'.
  [[nodiscard]] virtual torch::Tensor tensor(const archive::TensorRecord& record) const = 0;
  // All of it, valid until the next call; in shards all ranks together.
  [[nodiscard]] virtual torch::Tensor whole(const archive::TensorRecord& record) const = 0;

 private:
  std::string path_;
  archive::Value value_;
};

// Reads a tensor that all ranks put back together, after each has checked what it has. Where that fails on
// one, the training is half put back: TransportError on every rank.
torch::Tensor read_amid(const Group& group, const std::function<torch::Tensor()>& read);

// Opens the file of torch.save() or save_checkpoint(). ConfigError where it is damaged or none.
std::shared_ptr<const Source> open_whole(const std::string& path);
Position position_in(const archive::Value& value, const std::string& path);
// The options of a parameter group, but for its parameters.
Optimizer::Options options_in(const archive::Value& group);

// An optimiser's state for one parameter as a file has it, of these sizes.
struct StoredParameter {
  std::string scalars;  // as the optimiser encodes them
  std::map<std::string, archive::TensorRecord> vectors;
};
// ConfigError where a vector has other sizes, which names the parameter. `passed_over`: a vector that is not
// wanted; "" for none.
StoredParameter stored_parameter(const Source& source, const archive::Value& of_parameter,
                                 const Optimizer& optimizer, const std::vector<std::int64_t>& sizes,
                                 const std::string& name, const std::string& passed_over);

// The facts of a checkpoint that every rank must know before it is put back.
struct Contents {
  Position position;
  train::EngineState::Outlines outlines;
  std::vector<Optimizer::Options> options;  // by parameter group
};

archive::Value value_of(const Contents& contents);
Contents contents_in(const archive::Value& value, std::size_t parameters, const std::string& path);

// A checkpoint that fits a training.
class File {
 public:
  // ConfigError where it is of another model (names the first tensor that differs) or optimiser, or not
  // whole.
  File(const train::TrainingState& state, std::shared_ptr<const Source> source);
  [[nodiscard]] const Source& source() const { return *source_; }
  [[nodiscard]] const Contents& contents() const { return contents_; }
  // Returns the tensor as Source::tensor() does.
  [[nodiscard]] torch::Tensor model_value(const std::string& name) const;
  [[nodiscard]] torch::Tensor state_value(std::size_t parameter, const std::string& vector) const {
    return source_->tensor(record(parameter, vector));
  }
  [[nodiscard]] const archive::TensorRecord& record(std::size_t parameter, const std::string& vector) const {
    return vectors_.at(parameter).at(vector);
  }

 private:
  [[nodiscard]] const archive::TensorRecord& model_record(const std::string& name) const;
  void require_same_model(const train::TrainingState& state) const;
  void require_same_optimizer(const train::TrainingState& state) const;
  void read_state(const train::TrainingState& state);
  void read_parameter(std::size_t parameter, const archive::Value& of_parameter,
                      const train::TrainingState& state);

  std::shared_ptr<const Source> source_;
  Contents contents_;
  StoredState vectors_;
};

// Puts the file into the training; all ranks together, rank 0 reads. See load_checkpoint().
Position load_whole(train::TrainingState& state, const std::string& path, const CheckpointOptions& options);

}  // namespace dear::checkpoint
