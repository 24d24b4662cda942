// SPDX-License-Identifier: Apache-2.0
#include "predict/choose.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "predict/step.hpp"

namespace gradmeter::predict {
namespace {

TrainingStep row(std::size_t gpus, std::size_t tensor, std::size_t micro_batch) {
  TrainingStep s;
  s.id = std::to_string(gpus) + " " + std::to_string(tensor) + " " + std::to_string(micro_batch);
  s.system = "s";
  s.gpu = "A100";
  s.model = "gpt";
  s.precision = "bf16";
  s.gpus_per_node = 8;
  s.gpus = gpus;
  s.tensor = tensor;
  s.layers = 24, s.hidden = 2048, s.heads = 16, s.sequence = 2048;
  s.micro_batch = micro_batch;
  s.global_batch = 8 * gpus;
  s.step_s = 1;
  return s;
}

TEST(ChooseRows, EachLowersTheUncertaintyAndNoneIsChosenTwice) {
  const std::vector<TrainingStep> rows{row(1, 1, 1), row(8, 8, 1), row(64, 1, 8), row(64, 8, 8), row(8, 1, 4)};
  const Choices c = choose_rows(rows, {}, 10);
  ASSERT_EQ(c.rows.size(), rows.size());
  double before = c.uncertainty;
  std::vector<bool> taken(rows.size());
  for (const Choice& choice : c.rows) {
    EXPECT_LT(choice.uncertainty, before);
    before = choice.uncertainty;
    EXPECT_FALSE(taken.at(choice.row));
    taken.at(choice.row) = true;
    EXPECT_FALSE(choice.settles_term.empty());
  }
}

TEST(ChooseRows, TheSecondDiffersFromTheFirst) {
  // Four rows alike, and one that alone splits its layers.
  const std::vector<TrainingStep> rows{row(1, 1, 8), row(1, 1, 8), row(1, 1, 8), row(1, 1, 8), row(8, 8, 1)};
  const Choices c = choose_rows(rows, {}, 2);
  ASSERT_EQ(c.rows.size(), 2u);
  EXPECT_TRUE((c.rows[0].row == 4) != (c.rows[1].row == 4)) << "the odd row is one of the first two";
}

TEST(ChooseRows, WhatIsKnownIsNotMeasuredAgain) {
  const std::vector<TrainingStep> rows{row(1, 1, 8), row(8, 8, 1)};
  const Choices without = choose_rows(rows, {}, 1);
  const std::vector<TrainingStep> known{rows[without.rows[0].row]};
  const Choices with = choose_rows(rows, known, 1);
  EXPECT_NE(with.rows[0].row, without.rows[0].row);
  EXPECT_LT(with.uncertainty, without.uncertainty);
}

TEST(ChooseRows, NothingIsChosenAmongRowsWithoutTerms) {
  TrainingStep cnn = row(1, 1, 1);
  cnn.layers = cnn.sequence = 0;
  EXPECT_TRUE(choose_rows(std::vector{cnn}, {}, 1).rows.empty());
}

TEST(MostTelling, KeepsSoManyOfEachSystem) {
  std::vector<TrainingStep> rows{row(1, 1, 1), row(8, 8, 1), row(64, 1, 8), row(1, 1, 4)};
  rows[3].system = "other";
  rows.push_back(row(2, 1, 1));
  rows.back().step_s = 0;
  EXPECT_EQ(most_informative_rows(rows, 1).size(), 2u);
  EXPECT_EQ(most_informative_rows(rows, 2).size(), 3u);
  EXPECT_EQ(most_informative_rows(rows, 9).size(), 4u) << "a row without a time is none";
}

TEST(ChooseRows, ARowWithoutATimeIsNotKnown) {
  const std::vector<TrainingStep> rows{row(1, 1, 8), row(8, 8, 1)};
  std::vector<TrainingStep> known = rows;
  for (TrainingStep& s : known) s.step_s = 0;
  EXPECT_EQ(choose_rows(rows, known, 1).uncertainty, choose_rows(rows, {}, 1).uncertainty);
}

}  // namespace
}  // namespace gradmeter::predict
