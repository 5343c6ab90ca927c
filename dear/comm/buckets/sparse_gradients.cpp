#include "dear/comm/buckets/sparse_gradients.h"

#include <utility>

#include <fmt/format.h>

namespace dear::buckets {

SparseGradients::SparseGradients(int rank, Say say) : rank_(rank), say_(std::move(say)) {}

void SparseGradients::say_once(const std::string& parameter, const std::string& sentence) {
  const std::lock_guard lock(mutex_);
  if (rank_ != 0 || !said_.insert(parameter).second) return;
  tell(say_, fmt::format("the gradient of '{}' comes sparse, and {}", parameter, sentence));
}

void SparseGradients::chosen(const std::string& parameter, std::int64_t rows,
                             const SparseBucket::Choice& choice) {
  ++(choice.as_rows ? as_rows_ : made_dense_);
  say_once(parameter,
           choice.as_rows
               ? fmt::format("travels as rows: at most {} of {} from a rank, {:.2g} % of the dense "
                             "bytes; it travels dense in steps in which that is less to send",
                             choice.rows, rows, 100 * choice.share)
               : fmt::format("is made dense: so many of its {} rows would be more to send; it travels as "
                             "rows in steps in which they are less",
                             rows));
}

void SparseGradients::never(const std::string& parameter, const std::string& why) {
  say_once(parameter, "is made dense: " + why);
}

}  // namespace dear::buckets
