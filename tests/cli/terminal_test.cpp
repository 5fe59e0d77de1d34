#include "terminal.hpp"

#include <gtest/gtest.h>

namespace kiln::cli {
namespace {

TEST(DisplayWidth, CountsColumnsAndNotBytes) {
  EXPECT_EQ(display_width(""), 0U);
  EXPECT_EQ(display_width("kiln"), 4U);
  EXPECT_EQ(display_width("größe µs …"), 10U);
  EXPECT_EQ(display_width("窯の名前"), 8U) << "CJK characters take two columns";
  EXPECT_EQ(display_width("한글"), 4U);
  EXPECT_EQ(display_width("ＫＩ"), 4U) << "full-width Latin letters take two columns";
  EXPECT_EQ(display_width("e\u0301"), 1U) << "a combining accent takes none";
  EXPECT_EQ(display_width("a\u200bb\ufe0f"), 2U) << "zero-width space and variation selector";
  EXPECT_EQ(display_width("🔥"), 2U);
  EXPECT_EQ(display_width("🧱🚀"), 4U);
  EXPECT_EQ(display_width("\U00020000"), 2U) << "CJK extension B";
}

TEST(DisplayWidth, CountsEachInvalidByteAsOneColumn) {
  // A continuation byte alone, an overlong slash, a surrogate, a code above U+10FFFF, and a text that ends too
  // early.
  EXPECT_EQ(display_width("\x80"), 1U);
  EXPECT_EQ(display_width("\xC0\xAF"), 2U);
  EXPECT_EQ(display_width("\xED\xA0\x80"), 3U);
  EXPECT_EQ(display_width("\xF4\x90\x80\x80"), 4U);
  EXPECT_EQ(display_width("\xE7\xAA"), 2U);
}

TEST(Printable, ReplacesInvalidUtf8ByteByByte) {
  EXPECT_EQ(printable("a\x80z"), "a\uFFFDz");
  EXPECT_EQ(printable("\xC0\xAF"), "\uFFFD\uFFFD");
  EXPECT_EQ(printable("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(printable("\xF4\x90\x80\x80"), "\uFFFD\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(printable("\xE7\xAAx"), "\uFFFD\uFFFDx");
}

TEST(Printable, ReplacesControlCharactersAndKeepsTheRest) {
  EXPECT_EQ(printable("a\x1b[31m"), "a\uFFFD[31m");
  EXPECT_EQ(printable(std::string_view("\0\t\n\x7f", 4)), "\uFFFD\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(printable("\u009b"), "\uFFFD");
  EXPECT_EQ(printable("\u202e\u2066"), "\uFFFD\uFFFD") << "characters that reorder text";
  EXPECT_EQ(printable("größe 窯 🔥 e\u0301"), "größe 窯 🔥 e\u0301");
}

TEST(Printable, KeepsLineEndsOfAMessageAndIndentsItsLines) {
  EXPECT_EQ(printable_lines("one\ntwo\tthree\n  four\x1b"), "one\n  two\tthree\n  four\uFFFD");
}

TEST(Printable, EscapesInJsonWhatATerminalWouldObey) {
  EXPECT_EQ(printable_json("{\n\"a\": \"\x7f\u009b\u202e窯\"}"), "{\n\"a\": \"\\u007f\\u009b\\u202e窯\"}");
}

TEST(Fit, CutsAtColumnsAndNeverInsideACharacter) {
  EXPECT_EQ(fit("kiln", 4), "kiln");
  EXPECT_EQ(fit("kilns", 4), "kil…");
  EXPECT_EQ(fit("窯窯窯", 5), "窯窯…");
  EXPECT_EQ(fit("窯窯窯", 4), "窯…");
  EXPECT_EQ(fit("e\u0301e\u0301e\u0301", 2), "e\u0301…");
  EXPECT_EQ(fit("kiln", 0), "");
}

}  // namespace
}  // namespace kiln::cli
