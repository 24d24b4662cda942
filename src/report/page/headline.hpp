// The three large figures on top of a page.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "report/page/rows.hpp"

namespace gradmeter::report {

/// "84 %", "82–86", "efficiency on 8 ranks".
struct LargeFigure {
  std::string value, interval, what;
};

struct Headline {
  std::vector<LargeFigure> figures;  ///< three at most
  std::string of;                    ///< the one point that they are of, in words
};

/// Of one point, which `of` names, since figures of several points would be of none. Of a scaling: at the most ranks,
/// of the file's first network and conditions there, the point that has most samples/s and is not in doubt. Of other
/// experiments the point that answers their question: the fastest exchange of the largest buffer, the kernel with the
/// most arithmetic a second, the slowest link, the fastest forward pass, the highest accuracy. Empty where no point has
/// figures.
Headline headline(const RowTable&);

}  // namespace gradmeter::report
