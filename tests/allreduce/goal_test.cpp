// SPDX-License-Identifier: Apache-2.0
// Schedules written in GOAL are read again by a reader of the grammar of LogGOPSim's txt2bin, compared with the
// schedules, and run on numbers in random orders that their dependencies allow.
#include "allreduce/schedule/goal.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <random>
#include <sstream>
#include <tuple>

#include "allreduce/registry.hpp"
#include "core/format.hpp"
#include "support/sanitized.hpp"
#include "support/schedule_shapes.hpp"

namespace gradmeter::allreduce {
namespace {

enum class Kind : std::uint8_t { send, recv, calc };

struct Operation {
  Kind kind = Kind::calc;
  std::string label;
  std::size_t bytes = 0, nanoseconds = 0;
  std::uint32_t peer = 0;
  std::uint64_t tag = 0;
  std::vector<std::size_t> before;  ///< operations of this rank that it requires
  bool is_join() const { return label.front() == 'j'; }
  std::size_t at() const { return std::stoull(label.substr(label.rfind('_') + 1)); }
};
using Program = std::vector<Operation>;

/// What is wrong is a test failure that names the line.
class Reader {
 public:
  explicit Reader(const std::string& text) : lines_(text) {}
  std::vector<Program> read() {
    std::string line;
    while (std::getline(lines_, line)) {
      ++number_;
      if (line.empty() || line.starts_with("//")) continue;
      words_ = std::istringstream(line);
      read_line();
      EXPECT_FALSE(words_ >> line) << "line " << number_ << " goes on";
    }
    EXPECT_EQ(programs_.size(), ranks_) << "a rank is missing";
    EXPECT_FALSE(open_);
    return std::move(programs_);
  }

 private:
  std::string word() {
    std::string w;
    EXPECT_TRUE(words_ >> w) << "line " << number_ << " ends too early";
    return w;
  }
  void expect(const char* wanted) { EXPECT_EQ(word(), wanted) << "line " << number_; }
  std::size_t count() {
    const std::string w = word();
    EXPECT_TRUE(!w.empty() && w.find_first_not_of("0123456789") == std::string::npos)
        << "line " << number_ << ": " << w;
    return std::stoull(w);
  }
  std::size_t bytes() {
    std::string w = word();
    EXPECT_TRUE(w.ends_with('b')) << "line " << number_ << ": " << w;
    return std::stoull(w);
  }
  std::size_t known(const std::string& label) {
    const auto at = labels_.find(label);
    EXPECT_NE(at, labels_.end()) << "line " << number_ << ": no label " << label;
    return at == labels_.end() ? 0 : at->second;
  }

  void read_line() {
    const std::string first = word();
    if (first == "num_ranks") {
      ranks_ = count();
    } else if (first == "rank") {
      EXPECT_EQ(count(), programs_.size());
      expect("{");
      open_ = true;
      labels_.clear();
      programs_.emplace_back();
    } else if (first == "}") {
      open_ = false;
    } else if (first.ends_with(':')) {
      read_operation(first.substr(0, first.size() - 1));
    } else {
      expect("requires");
      programs_.back().at(known(first)).before.push_back(known(word()));
    }
  }
  void read_operation(const std::string& label) {
    EXPECT_TRUE(open_) << "line " << number_;
    EXPECT_TRUE(std::isalpha(static_cast<unsigned char>(label.front()))) << label;
    Operation x;
    x.label = label;
    const std::string kind = word();
    if (kind == "calc") {
      x.nanoseconds = count();
    } else {
      EXPECT_TRUE(kind == "send" || kind == "recv") << kind;
      x.kind = kind == "send" ? Kind::send : Kind::recv;
      x.bytes = bytes();
      EXPECT_GT(x.bytes, 0u) << "LogGOPSim takes size - 1";
      expect(x.kind == Kind::send ? "to" : "from");
      x.peer = static_cast<std::uint32_t>(count());
      expect("tag");
      x.tag = count();
    }
    Program& program = programs_.back();
    EXPECT_TRUE(labels_.emplace(label, program.size()).second) << "line " << number_ << ": a second " << label;
    program.push_back(std::move(x));
  }

  std::istringstream lines_, words_;
  std::size_t number_ = 0, ranks_ = 0;
  bool open_ = false;
  std::map<std::string, std::size_t> labels_;
  std::vector<Program> programs_;
};

std::string text_of(const GoalSource& source) {
  std::string text;
  write_goal(source, [&](std::string_view piece) { text += piece; });
  return text;
}
std::vector<Program> read(const std::string& text) { return Reader(text).read(); }

/// Of a buffer of fp32; messages are short, so that a buffer has several slices.
Slices cut(std::span<const SchedulePtr> schedules, std::size_t elements) {
  const Schedule& s = *schedules.front();
  bool runs = false;
  for (std::uint32_t r = 0; r < s.ranks(); ++r) runs |= sends_several_blocks(s, r);
  const SliceCut way = slice_cut_for(s.collective_kind());
  return {way, elements, sizeof(float), s.blocks(), 256, way == SliceCut::share_of_each_block && runs};
}

std::uint64_t longest(std::span<const SchedulePtr> schedules) {
  std::uint64_t rounds = 0;
  for (const auto& s : schedules) rounds = std::max<std::uint64_t>(rounds, s->rounds());
  return rounds;
}

/// Whole when the message was sent, received or added: slice, round, what, peer, first byte, bytes.
using Act = std::tuple<std::size_t, std::uint32_t, char, std::uint32_t, std::size_t, std::size_t>;

std::vector<Act> acts_of(std::span<const SchedulePtr> schedules, const Slices& slices, std::uint32_t rank) {
  std::vector<Act> out;
  Steps steps;
  for (std::size_t n = 0; n < slices.count(); ++n) {
    const Schedule& s = *schedules[n % schedules.size()];
    for (std::uint32_t k = 0; k < s.rounds(); ++k) {
      steps.clear();
      s.steps(k, rank, steps);
      for (const Step& x : steps) {
        const Extent e = slices[n].extent(x.blocks);
        if (e.elements == 0 || x.kind == StepKind::finish) continue;
        out.emplace_back(n, k, x.kind == StepKind::send ? 's' : 'r', x.peer, 4 * e.offset, 4 * e.elements);
        if (x.kind == StepKind::recv_reduce) out.emplace_back(n, k, 'c', x.peer, 4 * e.offset, 4 * e.elements);
      }
    }
  }
  return out;
}

/// The receive whose data a sum adds.
const Operation& received(const Program& program, const Operation& sum) { return program[sum.before.front()]; }

Act act_of(const Program& program, const Operation& x, std::uint64_t rounds) {
  const Operation& message = x.kind == Kind::calc ? received(program, x) : x;
  return {message.tag / rounds, static_cast<std::uint32_t>(message.tag % rounds), x.label.front(), message.peer, x.at(),
          message.bytes};
}

/// By operation: whether each other operation, joins apart, must be done before it.
std::vector<std::vector<bool>> required(const Program& program) {
  std::vector<std::vector<bool>> out(program.size(), std::vector<bool>(program.size()));
  for (std::size_t i = 0; i < program.size(); ++i) {
    for (const std::size_t b : program[i].before) {
      EXPECT_LT(b, i) << "an operation requires a later one";
      for (std::size_t k = 0; k < b; ++k) out[i][k] = out[i][k] || out[b][k];
      if (!program[b].is_join()) out[i][b] = true;
    }
  }
  return out;
}

void expect_round_trip(std::span<const SchedulePtr> schedules, std::size_t elements, const std::string& where) {
  const Slices slices = cut(schedules, elements);
  const GoalSource source{.schedules = schedules, .slices = slices, .element_bytes = 4, .reduce_bytes_per_s = 2e9};
  const auto programs = read(text_of(source));
  ASSERT_EQ(programs.size(), schedules.front()->ranks()) << where;
  const std::uint64_t rounds = longest(schedules);
  const std::size_t lanes = lanes_for(schedules);
  for (std::uint32_t r = 0; r < programs.size(); ++r) {
    const Program& program = programs[r];
    std::vector<Act> acts;
    std::vector<std::size_t> index;  // of the act's operation
    for (std::size_t i = 0; i < program.size(); ++i) {
      if (program[i].is_join()) continue;
      acts.push_back(act_of(program, program[i], rounds));
      index.push_back(i);
      if (program[i].kind == Kind::calc) {
        EXPECT_EQ(program[i].nanoseconds, (std::get<5>(acts.back()) + 1) / 2) << where;
      }
    }
    ASSERT_EQ(acts, acts_of(schedules, slices, r)) << where << " rank " << r;
    const auto before = required(program);
    for (std::size_t i = 0; i < acts.size(); ++i) {
      std::vector<bool> wanted(program.size());
      const auto [slice, round, what, peer, at, bytes] = acts[i];
      for (std::size_t j = 0; j < acts.size(); ++j) {
        if (std::get<2>(acts[j]) == 's') continue;
        const bool earlier_round = std::get<0>(acts[j]) == slice && std::get<1>(acts[j]) < round;
        const bool earlier_on_lane = std::get<0>(acts[j]) < slice && std::get<0>(acts[j]) % lanes == slice % lanes;
        if (earlier_round || earlier_on_lane) wanted[index[j]] = true;
      }
      if (what == 'c') wanted[program[index[i]].before.front()] = true;
      ASSERT_EQ(before[index[i]], wanted) << where << " rank " << r << " operation " << program[index[i]].label;
    }
  }
}

class Goal : public ::testing::TestWithParam<std::string> {};

TEST_P(Goal, IsReadAsTheSchedulesSendsReceivesSumsAndDependencies) {
  const auto algorithm = find_algorithm(GetParam());
  for (const CollectiveKind kind : test::all_goals) {
    for (const std::uint32_t p : {1u, 2u, 3u, 4u, 5u, 6u, 8u, 9u, 12u, 16u}) {
      if (test::sanitized && p > 9) continue;  // texts that take a minute to read
      for (const RankShape shape : test::shapes_of(*algorithm, p)) {
        if (!algorithm->refusal(shape, kind).empty()) continue;
        for (const std::uint32_t root : test::roots_of(kind, p)) {
          const auto schedules = algorithm->make(shape, kind, root);
          for (const std::size_t n : {std::size_t{13}, std::size_t{321 * p}})
            expect_round_trip(schedules, n, fmt::format("{} {} p {} n {}", GetParam(), name(kind), p, n));
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

/// A rank's numbers with their history, since a send takes the values from before its round.
class Memory {
 public:
  explicit Memory(const std::vector<float>& first) {
    for (const float v : first) history_.push_back({{-1, v}});
  }
  std::vector<float> before(std::int64_t round, std::size_t at, std::size_t count) const {
    std::vector<float> out;
    for (std::size_t i = at; i < at + count; ++i) {
      auto last = history_[i].rbegin();
      while (last->round >= round) ++last;
      out.push_back(last->value);
    }
    return out;
  }
  void write(std::int64_t round, std::size_t at, const std::vector<float>& values, bool adds) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      auto& all = history_[at + i];
      const float old = adds ? all.back().value : 0;
      all.push_back({round, old + values[i]});
    }
  }
  float last(std::size_t i) const { return history_[i].back().value; }

 private:
  struct Version {
    std::int64_t round;
    float value;
  };
  std::vector<std::vector<Version>> history_;
};

/// Runs operations in random order, each once those are done that it requires. Messages between two ranks with one tag
/// are received in the order in which they were sent.
class RandomRun {
 public:
  RandomRun(const std::vector<Program>& programs, std::uint64_t rounds, std::size_t elements, std::uint32_t seed)
      : programs_(programs), rounds_(rounds), random_(seed) {
    for (std::size_t r = 0; r < programs.size(); ++r) {
      std::vector<float> first;
      for (std::size_t i = 0; i < elements; ++i) first.push_back(contribution(r, i));
      memory_.emplace_back(first);
      waits_.emplace_back();
      after_.emplace_back(programs[r].size());
      data_.emplace_back(programs[r].size());
      for (std::size_t i = 0; i < programs[r].size(); ++i) {
        waits_[r].push_back(programs[r][i].before.size());
        for (const std::size_t b : programs[r][i].before) after_[r][b].push_back(i);
        if (programs[r][i].before.empty()) ready_.push_back({r, i});
      }
    }
  }
  static float contribution(std::size_t rank, std::size_t element) {
    return static_cast<float>((rank + 1) * (element % 61 + 1));
  }
  /// False where operations are left that can never run.
  bool run() {
    std::size_t left = 0;
    for (const auto& program : programs_) left += program.size();
    std::size_t in_vain = 0;
    while (left > 0 && in_vain < 64 * (ready_.size() + 1)) {
      if (ready_.empty()) return false;
      std::swap(ready_[random_() % ready_.size()], ready_.back());
      const auto [r, i] = ready_.back();
      if (!take(static_cast<std::uint32_t>(r), i)) {
        ++in_vain;
        continue;
      }
      in_vain = 0;
      --left;
      ready_.erase(std::find(ready_.begin(), ready_.end(), std::pair{r, i}));
      for (const std::size_t a : after_[r][i])
        if (--waits_[r][a] == 0) ready_.push_back({r, a});
    }
    return left == 0;
  }
  /// The number of elements that are not the sum over all ranks.
  std::size_t wrong(std::size_t elements) const {
    std::size_t count = 0;
    const std::size_t p = programs_.size();
    for (const Memory& m : memory_) {
      for (std::size_t i = 0; i < elements; ++i)
        count += m.last(i) != static_cast<float>(p * (p + 1) / 2 * (i % 61 + 1));
    }
    return count;
  }

 private:
  /// The place of a round in the rank's order: the slices' elements are apart, so only the round counts.
  std::int64_t round(const Operation& message) const { return static_cast<std::int64_t>(message.tag % rounds_); }

  bool take(std::uint32_t r, std::size_t i) {
    const Program& program = programs_[r];
    const Operation& x = program[i];
    if (x.kind == Kind::send) {
      wire_[{r, x.peer, x.tag}].push_back(memory_[r].before(round(x), x.at() / 4, x.bytes / 4));
    } else if (x.kind == Kind::recv) {
      auto& messages = wire_[{x.peer, r, x.tag}];
      if (messages.empty()) return false;
      data_[r][i] = std::move(messages.front());
      messages.pop_front();
      EXPECT_EQ(data_[r][i].size(), x.bytes / 4);
      data_[r][i].resize(x.bytes / 4);
      if (!is_added(program, i)) memory_[r].write(round(x), x.at() / 4, data_[r][i], false);
    } else if (!x.is_join()) {
      memory_[r].write(round(received(program, x)), x.at() / 4, data_[r][x.before.front()], true);
    }
    return true;
  }
  bool is_added(const Program& program, std::size_t i) const {
    return i + 1 < program.size() && program[i + 1].label.front() == 'c' && program[i + 1].before.front() == i;
  }

  const std::vector<Program>& programs_;
  std::uint64_t rounds_;
  std::mt19937 random_;
  std::vector<Memory> memory_;
  std::vector<std::vector<std::size_t>> waits_;               ///< by rank and operation: how many are not done
  std::vector<std::vector<std::vector<std::size_t>>> after_;  ///< by rank and operation: those that require it
  std::vector<std::vector<std::vector<float>>> data_;         ///< by rank and receive
  std::vector<std::pair<std::size_t, std::size_t>> ready_;
  std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint64_t>, std::deque<std::vector<float>>> wire_;
};

TEST_P(Goal, GivesEveryRankTheSumWhenItIsRunOnNumbers) {
  const auto algorithm = find_algorithm(GetParam());
  for (std::uint32_t p = 1; p <= 16; ++p) {
    for (const RankShape shape : test::shapes_of(*algorithm, p)) {
      if (!algorithm->refusal(shape).empty()) continue;
      const auto schedules = algorithm->make(shape);
      for (const std::size_t n : {1u, 13u, 257u, 2049u}) {
        if (n > 2000 && p > 9) continue;  // long, and cut as those of 257 are
        const Slices slices = cut(schedules, n);
        const auto programs = read(text_of({.schedules = schedules, .slices = slices}));
        RandomRun run(programs, longest(schedules), n, p + static_cast<std::uint32_t>(n));
        ASSERT_TRUE(run.run()) << GetParam() << " p " << p << " n " << n << " does not end";
        ASSERT_EQ(run.wrong(n), 0u) << GetParam() << " p " << p << " n " << n;
      }
    }
  }
}

TEST_P(Goal, IsNotLongerThanWasSaidBefore) {
  const auto algorithm = find_algorithm(GetParam());
  for (const std::uint32_t p : {2u, 4u, 8u, 16u, 64u}) {
    if (!algorithm->refusal({p, 1}).empty() || (test::sanitized && p > 16)) continue;
    const auto schedules = algorithm->make({p, 1});
    const Slices slices = cut(schedules, p > 16 ? 20000 : 100000);
    const GoalSource source{.schedules = schedules, .slices = slices, .element_bytes = 4, .reduce_bytes_per_s = 1};
    std::size_t bytes = 0, longest_piece = 0;
    write_goal(source, [&](std::string_view piece) {
      bytes += piece.size();
      longest_piece = std::max(longest_piece, piece.size());
    });
    const std::uint64_t most = goal_bytes_at_most(source, algorithm->cost({p, 1}).messages);
    EXPECT_LE(bytes, most) << GetParam() << " p " << p;
    EXPECT_LE(most, 3 * bytes) << GetParam() << " p " << p << ": such a bound says little";
    EXPECT_LE(longest_piece, 70000u);
  }
}

INSTANTIATE_TEST_SUITE_P(Registry, Goal, ::testing::ValuesIn(test::scheduled_algorithms()), [](const auto& param) {
  std::string n = param.param;
  std::ranges::replace_if(
      n, [](char c) { return c == '-' || c == ':' || c == '='; }, '_');
  return n;
});

TEST(GoalText, WithoutOneOfItsDependenciesGivesOtherNumbers) {
  const auto schedules = find_algorithm("ring")->make({4, 1});
  const Slices slices = cut(schedules, 257);
  const auto programs = read(text_of({.schedules = schedules, .slices = slices}));
  std::size_t noticed = 0, left_out = 0;
  for (std::size_t i = 0; i < programs[1].size(); ++i) {
    if (programs[1][i].kind != Kind::send || programs[1][i].before.empty()) continue;
    auto broken = programs;
    broken[1][i].before.clear();
    ++left_out;
    for (std::uint32_t seed = 0, found = 0; seed < 20 && !found; ++seed) {
      RandomRun run(broken, longest(schedules), 257, seed);
      found = !run.run() || run.wrong(257) > 0;
      noticed += found;
    }
  }
  EXPECT_GE(left_out, 10u);
  EXPECT_EQ(noticed, left_out);
}

TEST(GoalText, StatesAMessageASumAndAJoin) {
  const auto schedules = find_algorithm("direct")->make({3, 1});
  const Slices slices(SliceCut::run, 3, sizeof(float), 3, 1024, true);
  const std::string text = text_of({.schedules = schedules, .slices = slices, .reduce_bytes_per_s = 1e9});
  EXPECT_TRUE(text.starts_with("num_ranks 3\n\nrank 0 {\n")) << text;
  EXPECT_NE(text.find("s0_at_4: send 4b to 1 tag 0\n"), std::string::npos) << text;
  EXPECT_NE(text.find(": recv 4b from 1 tag 0\nc"), std::string::npos) << text;
  EXPECT_NE(text.find("_at_0: calc 4\n"), std::string::npos) << text;
  EXPECT_NE(text.find(": calc 0\nj"), std::string::npos) << text;
}

}  // namespace
}  // namespace gradmeter::allreduce
