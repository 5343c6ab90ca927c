#pragma once

namespace dear::sim {

// A clock that passes time more slowly than the simulation while its dilation is above 1. Both begin at 0.
class DilatedClock {
 public:
  // From the simulation's `now` on, one second of this clock lasts so many.
  void dilate(double dilation, double now) {
    if (dilation == dilation_) return;
    own_ = at(now);
    base_ = now;
    dilation_ = dilation;
  }

  [[nodiscard]] double at(double now) const { return own_ + (now - base_) / dilation_; }
  // When the simulation's clock will be there, if nothing changes.
  [[nodiscard]] double when(double own) const { return base_ + (own - own_) * dilation_; }

 private:
  double own_ = 0, base_ = 0;  // the same instant on both
  double dilation_ = 1;
};

}  // namespace dear::sim
