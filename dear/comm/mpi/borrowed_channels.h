#pragma once

#include <string>

#include "dear/comm/channels/channels.h"

namespace dear::backends {

// Channels that another object owns, which has to outlive this one.
class BorrowedChannels final : public channels::Channels {
 public:
  explicit BorrowedChannels(channels::Channels& owner) : owner_(owner) {}

  [[nodiscard]] int rank() const override { return owner_.rank(); }
  [[nodiscard]] int size() const override { return owner_.size(); }
  [[nodiscard]] std::string description() const override { return owner_.description(); }
  void start(channels::Transfer& transfer) override { owner_.start(transfer); }
  bool progress() override { return owner_.progress(); }
  void wait_until(const Describe& what, Deadline deadline, Deadline until) override {
    owner_.wait_until(what, deadline, until);
  }
  void abort(const std::string& reason) noexcept override { owner_.abort(reason); }

 private:
  channels::Channels& owner_;
};

}  // namespace dear::backends
