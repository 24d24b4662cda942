// SPDX-License-Identifier: Apache-2.0
// The only header that includes fmt.
#pragma once
#include <fmt/format.h>
#include <fmt/ranges.h>
