// SPDX-License-Identifier: Apache-2.0
// Messages whose payload names their sender.
#pragma once
#include <gtest/gtest.h>

#include <string>

#include "dataparallel/fabric/fabric.hpp"

namespace gradmeter::dataparallel::test {

inline std::string written(int by, std::size_t bytes) {
  std::string text(bytes, ' ');
  for (std::size_t i = 0; i < bytes; ++i)
    text[i] = static_cast<char>('a' + (i * 7 + static_cast<std::size_t>(by)) % 26);
  return text;
}
inline std::string got(const Message& m) { return {reinterpret_cast<const char*>(m.payload.data()), m.payload.size()}; }

/// Posts a message of header.bytes bytes, for which there must be room.
inline Ticket write(Port& port, int to, MessageHeader header, int by = 0) {
  auto room = port.draft(to, header.bytes);
  EXPECT_TRUE(room);
  const std::string text = written(by, header.bytes);
  for (std::size_t i = 0; i < text.size(); ++i) (*room)[i] = static_cast<std::byte>(text[i]);
  return port.post(to, header, "push");
}

}  // namespace gradmeter::dataparallel::test
