// SPDX-License-Identifier: Apache-2.0
#include "runtime/process/signals.hpp"

#include <gtest/gtest.h>
#include <pthread.h>
#include <unistd.h>

#include <cstdio>
#include <stdexcept>

namespace gradmeter::runtime {
namespace {

using namespace std::chrono_literals;
using ::testing::ExitedWithCode;
using ::testing::KilledBySignal;

// All of these run in children: what they show is how a process ends.

void send(int signal) { ::kill(::getpid(), signal); }

[[noreturn]] void hang() {
  ::alarm(10);  // a child that nothing ends would outlive the tests
  for (;;) ::pause();
}

void await_signal(const SignalWatch& watch) {
  while (watch.first_signal() == 0) std::this_thread::sleep_for(1ms);
}

TEST(SignalWatch, AProgramThatHangsEndsAfterTheGraceAndSaysWhatItDid) {
  const auto child = [] {
    SignalWatch watch(50ms);
    watch.describe_with(&watch, [] { return std::string("rank 2 waits for rank 3: all-reduce ring"); });
    send(SIGTERM);
    hang();
  };
  EXPECT_EXIT(child(), ExitedWithCode(143),
              "^gradmeter: ended by SIGTERM: rank 2 waits for rank 3: all-reduce ring\n$");
}

TEST(SignalWatch, EachSignalHasItsCode) {
  const auto child = [](int signal) {
    SignalWatch watch(20ms);
    send(signal);
    hang();
  };
  EXPECT_EXIT(child(SIGINT), ExitedWithCode(130), "^gradmeter: ended by SIGINT\n$");
  EXPECT_EXIT(child(SIGHUP), ExitedWithCode(129), "^gradmeter: ended by SIGHUP\n$");
}

// A scheduler warns long before it ends a job: the point under way is still measured.
TEST(SignalWatch, AWarningIsSeenBetweenPointsAndHasNoDeadline) {
  const auto child = [](int signal) {
    SignalWatch watch(10ms);
    send(signal);
    while (watch.pending_signal_or_warning() == 0) std::this_thread::sleep_for(1ms);
    std::this_thread::sleep_for(50ms);
    const bool is_warning = watch.first_signal() == 0 && watch.pending_signal_or_warning() == signal;
    send(SIGTERM);
    await_signal(watch);
    ::_exit(is_warning && watch.pending_signal_or_warning() == SIGTERM ? 7 : 8);
  };
  for (const int signal : {SIGUSR1, SIGUSR2, SIGXCPU}) EXPECT_EXIT(child(signal), ExitedWithCode(7), "") << signal;
}

TEST(SuddenEnd, DoesWhatIsLeftToDoOnce) {
  const auto child = [] {
    SignalWatch watch(10ms);
    before_sudden_end([](int code, const std::string& why) { std::fprintf(stderr, "%d: %s\n", code, why.c_str()); });
    send(SIGTERM);
    hang();
  };
  EXPECT_EXIT(child(), ExitedWithCode(143), "^gradmeter: ended by SIGTERM\n143: ended by SIGTERM\n$");
  const auto without = [] {
    before_sudden_end([](int, const std::string&) { std::fprintf(stderr, "not this\n"); });
    before_sudden_end({});
    end_at_once(5, "for a test");
  };
  EXPECT_EXIT(without(), ExitedWithCode(5), "^$");
}

TEST(SignalWatch, AProgramThatLooksEndsByItself) {
  const auto child = [] {
    int signal = 0;
    {
      SignalWatch watch(10s);
      send(SIGTERM);
      await_signal(watch);
      signal = watch.first_signal();
    }
    ::_exit(signal == SIGTERM ? 7 : 8);
  };
  EXPECT_EXIT(child(), ExitedWithCode(7), "^$");
}

TEST(SignalWatch, TheFirstSignalDecidesTheCode) {
  const auto child = [] {
    SignalWatch watch(60ms);
    send(SIGTERM);
    await_signal(watch);
    send(SIGHUP);
    hang();
  };
  EXPECT_EXIT(child(), ExitedWithCode(143), "SIGTERM");
}

TEST(SignalWatch, ASecondInterruptEndsAtOnce) {
  const auto child = [] {
    SignalWatch watch(60s);
    send(SIGINT);
    await_signal(watch);
    std::this_thread::sleep_for(150ms);
    send(SIGINT);
    hang();
  };
  EXPECT_EXIT(child(), ExitedWithCode(130), "^gradmeter: ended by SIGINT again\n$");
}

TEST(SignalWatch, OnePressThatArrivesTwiceIsOne) {
  const auto child = [] {
    {
      SignalWatch watch(10s);
      send(SIGINT);
      await_signal(watch);
      send(SIGINT);
      std::this_thread::sleep_for(50ms);
    }
    ::_exit(7);
  };
  EXPECT_EXIT(child(), ExitedWithCode(7), "^$");
}

TEST(SignalWatch, AFailingDescriptionDoesNotStopTheEnding) {
  const auto child = [] {
    SignalWatch watch(10ms);
    watch.describe_with(&watch, []() -> std::string { throw std::runtime_error("broken"); });
    send(SIGTERM);
    hang();
  };
  EXPECT_EXIT(child(), ExitedWithCode(143), "^gradmeter: ended by SIGTERM\n$");
}

TEST(SignalWatch, NohupStaysInForce) {
  const auto child = [] {
    {
      ::signal(SIGHUP, SIG_IGN);
      const SignalWatch watch(10ms);
      send(SIGHUP);
      std::this_thread::sleep_for(80ms);
      if (watch.first_signal() != 0) ::_exit(8);
    }
    ::_exit(7);
  };
  EXPECT_EXIT(child(), ExitedWithCode(7), "^$");
}

TEST(SignalWatch, AfterItsLifeSignalsDoWhatTheyDid) {
  const auto child = [] {
    { const SignalWatch watch; }
    send(SIGTERM);
    hang();
  };
  EXPECT_EXIT(child(), KilledBySignal(SIGTERM), "^$");
}

TEST(SignalWatch, ThreadsThatStartLaterTakeNoSignal) {
  sigset_t before, after;
  ASSERT_EQ(pthread_sigmask(SIG_BLOCK, nullptr, &before), 0);
  {
    const SignalWatch watch;
    sigset_t mask;
    std::thread([&] { pthread_sigmask(SIG_BLOCK, nullptr, &mask); }).join();
    EXPECT_EQ(sigismember(&mask, SIGTERM), 1);
    EXPECT_EQ(sigismember(&mask, SIGINT), 1);
    EXPECT_EQ(watch.first_signal(), 0);
  }
  ASSERT_EQ(pthread_sigmask(SIG_BLOCK, nullptr, &after), 0);
  EXPECT_EQ(sigismember(&after, SIGTERM), sigismember(&before, SIGTERM));
}

}  // namespace
}  // namespace gradmeter::runtime
