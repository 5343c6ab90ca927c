#include "dear/comm/grid/named_dimension.h"

#include <type_traits>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dear/base/vocabulary/error.h"
#include "dear/base/vocabulary/ids.h"

namespace dear::grid {
namespace {

class NamedDimension final : public Backend {
 public:
  NamedDimension(std::unique_ptr<Backend> line, int dimension, std::vector<int> ranks)
      : line_(std::move(line)), dimension_(dimension), ranks_(std::move(ranks)) {}

  [[nodiscard]] int rank() const override { return line_->rank(); }
  [[nodiscard]] int size() const override { return line_->size(); }
  [[nodiscard]] int name() const override { return ranks_[index_of(rank())]; }
  [[nodiscard]] std::string description() const override { return line_->description(); }
  [[nodiscard]] std::string modelled_network() const override { return line_->modelled_network(); }
  [[nodiscard]] bool takes_any_buffer() const override { return line_->takes_any_buffer(); }
  Buffer allocate(std::int64_t bytes, Deadline deadline) override {
    return named([&] { return line_->allocate(bytes, deadline); });
  }
  Timing run(const Request& request, Deadline deadline) override {
    return named([&] { return line_->run(request, deadline); });
  }
  void abort(const std::string& reason) noexcept override { line_->abort(reason); }

 private:
  template <typename Function>
  std::invoke_result_t<Function> named(const Function& function) {
    try {
      return function();
    } catch (const TimeoutError& error) {
      throw TimeoutError(with_names(error));
    } catch (const MismatchError& error) {
      throw MismatchError(with_names(error));
    } catch (const TransportError& error) {
      throw TransportError(with_names(error));
    }
  }
  [[nodiscard]] std::string with_names(const std::exception& error) const {
    return fmt::format("rank {}, along dimension {}, whose ranks 0 to {} here are {} of the whole: {}",
                       name(), dimension_, size() - 1, fmt::join(ranks_, ", "), error.what());
  }

  std::unique_ptr<Backend> line_;
  int dimension_;
  std::vector<int> ranks_;
};

}  // namespace

std::unique_ptr<Backend> make_named_dimension(std::unique_ptr<Backend> line, int dimension,
                                              std::vector<int> ranks) {
  return std::make_unique<NamedDimension>(std::move(line), dimension, std::move(ranks));
}

}  // namespace dear::grid
