// SPDX-License-Identifier: Apache-2.0
#include "runtime/handle.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <type_traits>
#include <vector>

#include "core/error.hpp"

namespace gradmeter::runtime {
namespace {

/// A C handle whose null is no constant, as MPI's.
struct FakeTraits {
  using type = int*;
  static type null() noexcept {
    static int no_object;
    return &no_object;
  }
  static void free(type handle) noexcept { ++*handle; }
};
using Fake = Handle<FakeTraits>;

struct ThrowingFree {
  using type = int;
  static type null() { return 0; }
  static void free(type) {}
};
static_assert(HandleTraits<FakeTraits>);
static_assert(!HandleTraits<ThrowingFree>, "free runs in destructors: it must be noexcept");
static_assert(!std::is_copy_constructible_v<Fake> && !std::is_copy_assignable_v<Fake>);
static_assert(std::is_nothrow_move_constructible_v<Fake> && std::is_nothrow_move_assignable_v<Fake>);
static_assert(!std::is_convertible_v<int*, Fake>, "taking ownership is said aloud");

TEST(Handle, FreesOnceAtTheEndOfItsLife) {
  int freed = 0;
  {
    const Fake handle(&freed);
    EXPECT_TRUE(handle);
    EXPECT_EQ(handle.get(), &freed);
  }
  EXPECT_EQ(freed, 1);
}

TEST(Handle, AnEmptyOneFreesNothing) {
  const int before = *FakeTraits::null();
  { const Fake empty; }
  EXPECT_EQ(*FakeTraits::null(), before);
}

TEST(Handle, MovingHandsTheDutyOn) {
  int freed = 0, other = 0;
  {
    Fake first(&freed);
    Fake second(std::move(first));
    EXPECT_FALSE(first);  // NOLINT(bugprone-use-after-move): that it is empty is the point
    EXPECT_TRUE(second);
    Fake third(&other);
    third = std::move(second);
    EXPECT_EQ(other, 1) << "what was owned before is freed at the assignment";
    EXPECT_EQ(freed, 0);
  }
  EXPECT_EQ(freed, 1);
  EXPECT_EQ(other, 1);
}

TEST(Handle, MovingOntoItselfKeepsIt) {
  int freed = 0;
  Fake handle(&freed);
  Fake& same = handle;
  handle = std::move(same);
  EXPECT_TRUE(handle);
  EXPECT_EQ(freed, 0);
}

TEST(Handle, ReleaseGivesItAway) {
  int freed = 0;
  { EXPECT_EQ(Fake(&freed).release(), &freed); }
  EXPECT_EQ(freed, 0);
}

TEST(Handle, ReceivingFreesWhatWasThere) {
  int first = 0, second = 0;
  const auto create = [&](int** out) { *out = &second; };
  {
    Fake handle(&first);
    create(handle.out_address());
    EXPECT_EQ(first, 1);
    EXPECT_EQ(handle.get(), &second);
  }
  EXPECT_EQ(second, 1);
}

TEST(Descriptor, ClosesItself) {
  int number = -1;
  {
    const Descriptor file = checked_descriptor(::open("/dev/null", O_RDONLY | O_CLOEXEC), "open");
    number = file.get();
    EXPECT_NE(::fcntl(number, F_GETFD), -1);
  }
  EXPECT_EQ(::fcntl(number, F_GETFD), -1);
  EXPECT_EQ(errno, EBADF);
}

TEST(Descriptor, AFailedCallSaysWhichAndWhy) {
  try {
    checked_descriptor(::open("/no/such/file", O_RDONLY), "open");
    FAIL() << "a missing file was opened";
  } catch (const core::BackendError& error) {
    EXPECT_NE(std::string(error.what()).find("open failed: No such file or directory (handle_test.cpp"),
              std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace gradmeter::runtime
