#include "bench/engine/sweep.hpp"

#include <algorithm>

#include "core/format.hpp"
#include "runtime/time/clock.hpp"

namespace gradmeter::bench {

void SweepRows::start(std::size_t points, std::optional<core::Seconds> budget) {
  left_ = points;
  budget_ = budget;
  begin_ = runtime::host_clock();
}

const core::Point* SweepRows::finished(const core::Factors& f) const {
  const auto it = finished_.find(f.key());
  return it == finished_.end() ? nullptr : &it->second;
}

void SweepRows::show(const core::Point& row) const {
  if (root_ && listener_.kept) listener_.kept(row);
}

void SweepRows::emit(const core::Point& row) {
  wrong_ += row.status == core::Status::wrong;
  left_ -= left_ > 0;
  if (root_) listener_.measured(row);
}

void SweepRows::progress(const std::string& now) const {
  if (root_ && listener_.progress) listener_.progress(now);
}

core::Seconds SweepRows::left() const {
  return core::Seconds{std::max(0.0, budget_.value().value - (runtime::host_clock() - begin_))};
}

core::Seconds SweepRows::share(core::Seconds usual) const {
  if (!budget_) return usual;
  return core::Seconds{left().value / static_cast<double>(std::max<std::size_t>(1, left_))};
}

void refuse(core::Point& row, core::Status status, std::string why) {
  row.status = status;
  row.reason = std::move(why);
}

std::string short_of_memory(std::size_t needs, std::size_t free, std::string_view where) {
  return fmt::format("needs {} of memory {} {} are free", core::to_text(core::Bytes{needs}), where,
                     core::to_text(core::Bytes{free}));
}

}  // namespace gradmeter::bench
