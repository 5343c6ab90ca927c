#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <set>
#include <string>

#include "dear/base/vocabulary/say.h"
#include "dear/comm/buckets/sparse_bucket.h"

namespace dear::buckets {

// SparseGradients counts, over all engines of a run, which gradients that come sparse travel as rows, and
// says it once of each parameter, on rank 0. For any thread.
class SparseGradients {
 public:
  // `say` is told the sentences; without one they go to standard error.
  SparseGradients(int rank, Say say);

  void chosen(const std::string& parameter, std::int64_t rows, const SparseBucket::Choice& choice);
  // It will never travel as rows.
  void never(const std::string& parameter, const std::string& why);
  // Reductions that were carried out as rows, and those that were dense although rows might have been less.
  [[nodiscard]] std::int64_t as_rows() const { return as_rows_; }
  [[nodiscard]] std::int64_t made_dense() const { return made_dense_; }

 private:
  void say_once(const std::string& parameter, const std::string& sentence);

  const int rank_;
  const Say say_;
  std::mutex mutex_;
  std::set<std::string> said_;  // parameters
  std::atomic<std::int64_t> as_rows_ = 0, made_dense_ = 0;
};

}  // namespace dear::buckets
