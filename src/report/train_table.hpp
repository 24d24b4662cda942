// The progress of training for people: a line for each epoch.
#pragma once
#include <string>

#include "core/result.hpp"

namespace gradmeter::report {

std::string train_header();
/// One line, for an epoch's point.
std::string train_row(const core::Point&);

}  // namespace gradmeter::report
