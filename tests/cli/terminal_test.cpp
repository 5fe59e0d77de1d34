#include "terminal.hpp"

#include "cli_fixture.hpp"

namespace kiln::cli {
namespace {

Terminal terminal_of(std::size_t columns) {
  Terminal terminal;
  terminal.columns = columns;
  return terminal;
}

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

TEST(Wrap, BreaksAtSpacesAndSplitsLongWordsIfAllowed) {
  using Lines = std::vector<std::string>;
  EXPECT_EQ(wrap("one two three", 8, LongWords::keep), (Lines{"one two", "three"}));
  EXPECT_EQ(wrap("one two", 7, LongWords::keep), Lines{"one two"});
  EXPECT_EQ(wrap("a abcdefghij b", 4, LongWords::keep), (Lines{"a", "abcdefghij", "b"}));
  EXPECT_EQ(wrap("a abcdefghij b", 4, LongWords::split), (Lines{"a", "abcd", "efgh", "ij b"}));
  EXPECT_EQ(wrap("窯窯窯", 4, LongWords::split), (Lines{"窯窯", "窯"}));
  EXPECT_EQ(wrap("", 4, LongWords::split), Lines{""});
}

TEST(TableFormat, AlignsColumnsByDisplayWidth) {
  Table table({{"NAME"}, {"SIZE", Table::Align::right}, {"KEY"}});
  table.add({"größe", "1", "k"});
  table.add({"窯窯窯窯", "100", "k"});
  EXPECT_EQ(table.format(terminal_of(80)),
            "NAME      SIZE  KEY\n"
            "größe        1  k\n"
            "窯窯窯窯   100  k\n");
}

TEST(TableFormat, CutsOrWrapsTheColumnsThatMayGiveWay) {
  const std::string driver = "llvmpipe 0x1 Mesa 22.3.6 (LLVM 15.0.6), cache 76616c2d257300000000000000000000";
  for (const auto overflow : {Table::Overflow::cut, Table::Overflow::wrap})
    for (const std::size_t columns : {60U, 80U, 120U}) {
      Table table(
          {{"FIELD"}, {"STORED", Table::Align::left, overflow}, {"REQUESTED", Table::Align::left, overflow}});
      table.add({"driver", driver, driver});
      table.add({"key", std::string(64, 'a'), "(none)"});
      EXPECT_LE(widest(table.format(terminal_of(columns))), columns);
    }
}

TEST(TableFormat, LosesNothingWhenItWraps) {
  Table table({{"FIELD"}, {"VALUE", Table::Align::left, Table::Overflow::wrap}});
  const std::string digest(64, 'z');
  table.add({"key", digest});
  table.add({"driver", "one two three four five six seven eight"});
  const std::string text = table.format(terminal_of(30));
  EXPECT_LE(widest(text), 30U);
  EXPECT_EQ(std::count(text.begin(), text.end(), 'z'), 64);
  for (const char* word : {"one", "four", "eight"}) EXPECT_NE(text.find(word), std::string::npos) << text;
}

TEST(TableFormat, KeepsWordsWholeInFields) {
  Table fields = Table::of_fields();
  const std::string path = "/" + std::string(100, 'p');
  fields.add({"  file", path});
  fields.add({"  problem", "the driver is missing and nothing else was found on this machine that could be used"});
  const std::string text = fields.format(terminal_of(60));
  EXPECT_NE(text.find(path), std::string::npos) << text;
  for (const auto& line : lines_of(text)) EXPECT_TRUE(display_width(line) <= 60 || line.ends_with(path)) << line;
}

TEST(TableFormat, StaysReadableOnATerminalThatIsTooNarrow) {
  Table table({{"NAME", Table::Align::left, Table::Overflow::cut}, {"KEY"}});
  table.add({"conv2d_3x3_t16_bias_relu", "0123456789ab"});
  EXPECT_EQ(table.format(terminal_of(5)),
            "NAME        KEY\n"
            "conv2d_3x…  0123456789ab\n");
}

}  // namespace
}  // namespace kiln::cli
