// SPDX-License-Identifier: Apache-2.0
// The only adapter for fmt.
#pragma once
#include <fmt/format.h>
#include <fmt/ranges.h>
