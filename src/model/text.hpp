// A text as sentences of words: the Penn Treebank's format.
#pragma once
#include <string_view>

#include "model/dataset.hpp"

namespace gradmeter::model {

/// "FILE" or "FILE:steps=35". Words are what white space parts; the end of a line is the word <eos>. Samples are
/// windows of `steps` words, one after another, each to be predicted from those before it in the window and the one
/// before the window. Words that only the validation text has are <unk>. The validation text is the file whose name has
/// `valid` where this one has `train` (ptb.train.txt, ptb.valid.txt); where there is none, the last tenth of the
/// windows. At most the first so many windows are kept. Word numbers are by falling frequency, then by spelling. Cost:
/// the text's bytes, 4 bytes a word. Errors: UsageError of one line on a file that cannot be read, has no window or
/// over 2^24 different words. Source: Marcus et al. 1993; Mikolov et al. 2010, for the cut and <unk>.
DataSplit read_text(std::string_view source, std::size_t train_most, std::size_t validation_most);

}  // namespace gradmeter::model
