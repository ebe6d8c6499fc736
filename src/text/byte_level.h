// What: the byte-level alphabet of GPT-2 style vocabularies: each of the 256 byte values is written
//   as one printable character, so that any bytes can stand in a text file.
// Not here: which bytes a vocabulary has tokens for.
// Threads: pure functions.
// Based on: Radford et al., "Language Models are Unsupervised Multitask Learners" (2019): printable
//   Latin-1 characters stand for themselves, the other 68 bytes in order for U+0100 and on.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tandem {

// The character that stands for `byte`.
char32_t ByteToAlphabet(uint8_t byte);
// The byte for which `code` stands; none for a character outside the alphabet.
std::optional<uint8_t> AlphabetToByte(char32_t code);

// The bytes that `stored` stands for; none if a character is outside the alphabet.
std::optional<std::string> DecodeByteLevel(std::string_view stored);
std::string EncodeByteLevel(std::string_view bytes);

}  // namespace tandem
