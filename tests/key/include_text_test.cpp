#include <algorithm>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <kiln/request.hpp>

// What counts as an #include, and what becomes of the lines around it.
namespace kiln {
namespace {

using Headers = std::map<std::string, std::string>;

Request request(std::string source, Headers headers) {
  return Request({.name = "main", .source = std::move(source), .headers = std::move(headers)});
}

TEST(IncludeText, CountsAtTheBeginningOfALineHoweverItIsWritten) {
  for (const char* source : {
           "#include \"a.h\"",
           "#include \"a.h\"\n",
           "#include \"a.h\"\r\nvoid main() {}\r\n",
           "#include <a.h>\n",
           "#include<a.h>\n",
           "#include\"a.h\"\n",
           "  #  include  \"a.h\"\n",
           "\t#\tinclude\t\"a.h\"\t\n",
           "#include \"a.h\" // why\n",
           "#include \"a.h\" /* why\n */\n",
           "/* c */ #include \"a.h\"\n",
           "/* c\n */#include \"a.h\"\n",
           "/**/#include \"a.h\"\n",
           "// a comment\n#include \"a.h\"\n",
           "// a \"comment\n#include \"a.h\"\n",
           "// a comment /*\n#include \"a.h\"\n",
           "/* a \"comment */\n#include \"a.h\"\n",
           "/* a // comment */\n#include \"a.h\"\n",
           "/* a comment **/\n#include \"a.h\"\n",
           "x = a / b; y = a */ c;\n#include \"a.h\"\n",
           "\"/*\"\n#include \"a.h\"\n\"*/\"\n",
           "\"//\"\n#include \"a.h\"\n",
           "\"\\\"/*\"\n#include \"a.h\"\n",
           "'\"'\n#include \"a.h\"\n",
           "'\\''\n#include \"a.h\"\n",
           "\"unfinished\n#include \"a.h\"\n",
           "#error it isn't\n#include \"a.h\"\n",
           "OR\"(\"\n#include \"a.h\"\n",
           "R\"(raw)\"\n#include \"a.h\"\n",
           "R\"x(raw)\")x\"\n#include \"a.h\"\n",
           "int R;\n#include \"a.h\"\n",
           "int a\\b;\n#include \"a.h\"\n",
           "#define A 1 \\\n  2\n#include \"a.h\"\n",
       }) {
    const Request made = request(source, {{"a.h", "HEADER\n"}});
    ASSERT_FALSE(made.error()) << source;
    EXPECT_NE(made.source().find("HEADER"), std::string::npos) << source;
    EXPECT_EQ(made.source().find("include"), std::string::npos) << source;
  }
}

TEST(IncludeText, CountsBehindAnotherOnItsLine) {
  // What is left of the line is a line to the compiler, which would look for the file itself.
  for (const char* source : {"#include \"a\" #include \"b\"\n", "#include <a>\v#include <b>\n",
                             "#include \"a\" /* c */ #include \"b\" // c\n"}) {
    const Request made = request(source, {{"a", "A\n"}, {"b", "HEADER\n"}});
    ASSERT_FALSE(made.error()) << source;
    EXPECT_NE(made.source().find("HEADER"), std::string::npos) << source;
    EXPECT_EQ(made.source().find("include"), std::string::npos) << source;
  }
}

TEST(IncludeText, DoesNotCountElsewhereAndLeavesTheSourceAlone) {
  for (const char* source : {
           "// #include \"a.h\"\n",
           "/* #include \"a.h\" */\n",
           "/*\n#include \"a.h\"\n*/\n",
           "/* unfinished\n#include \"a.h\"\n",
           "/*/\n#include \"a.h\"\n*/\n",
           "// continued \\\n#include \"a.h\"\n",
           "// continued \\\nand again \\\n#include \"a.h\"\n",
           "// \\\\\\\n#include \"a.h\"\n",
           "\"#include \\\"a.h\\\"\"\n",
           "\"continued \\\n#include \\\"a.h\\\"\"\n",
           "R\"(\n#include \"a.h\"\n)\"\n",
           "R\"x(\n)\"\n#include \"a.h\"\n)x\"\n",
           "R\"sixteen_letters_(\n#include \"a.h\"\n)sixteen_letters_\"\n",
           "R\"(unfinished\n#include \"a.h\"\n",
           "int x; #include \"a.h\"\n",
           "##include \"a.h\"\n",
           "# # include \"a.h\"\n",
           "#included \"a.h\"\n",
           "#include_next \"a.h\"\n",
           "#Include \"a.h\"\n",
           "# \"a.h\"\n",
           "include \"a.h\"\n",
           "#include A_H\n",
           "#include\n",
           "#include",
           "#",
           "#include \"a.h\n",
           "#include <a.h\"\n",
           "#include \"\"\n",
           "#include <>\n",
           "#include (\"a.h\")\n",
       }) {
    const Request made = request(source, {{"a.h", "HEADER\n"}});
    ASSERT_FALSE(made.error()) << source << made.error()->message();
    EXPECT_EQ(made.source(), source);
  }
}

TEST(IncludeText, DoesNotCountInACommentContinuedOverWindowsLineEnds) {
  const std::string source = "// continued \\\r\n#include \"a.h\"\r\n";
  EXPECT_EQ(request(source, {{"a.h", "HEADER\n"}}).source(), source);
}

TEST(IncludeText, DoesNotCountInAMacroContinuedFromTheLineBefore) {
  const std::string source = "#define A \\\n#include \"a.h\"\n";
  EXPECT_EQ(request(source, {{"a.h", "HEADER\n"}}).source(), source);
}

TEST(IncludeText, MissingInACommentOrAStringIsNoError) {
  EXPECT_FALSE(
      request("// #include \"missing\"\n/*\n#include \"missing\"\n*/\n\"\\\n#include <missing>\"\n", {}).error());
}

/// Puts "@file:line" in the place of every '@' of a file.
std::string marked(const std::string& file, std::string_view text) {
  std::string result;
  int line = 1;
  for (const char c : text) {
    result += c == '@' ? fmt::format("@{}:{}", file, line) : std::string(1, c);
    if (c == '\n') ++line;
  }
  return result;
}

/// Follows the #line directives of a resolved source as a compiler does for which every condition is `condition`,
/// and expects every mark that it meets to be where it says. How many marks there were.
int expect_marks_in_place(const Request& made, bool condition) {
  struct Group {
    bool taken;
    bool active;
  };
  std::vector<Group> groups;
  int marks = 0;
  std::size_t file = 0;
  int number = 1;
  std::istringstream lines(made.source());
  for (std::string line; std::getline(lines, line); ++number) {
    if (line.starts_with("#ifndef KILN_ONCE_")) {
      groups.push_back({true, true});
    } else if (line.starts_with("#if")) {
      groups.push_back({condition, condition});
    } else if (line.starts_with("#el")) {
      const bool active = !groups.back().taken && (condition || line.starts_with("#else"));
      groups.back() = {groups.back().taken || active, active};
    } else if (line.starts_with("#endif")) {
      groups.pop_back();
    }
    if (!std::ranges::all_of(groups, &Group::active)) continue;
    int next = 0;
    if (std::sscanf(line.c_str(), "#line %d %zu", &next, &file) == 2) {
      number = next - 1;
      continue;
    }
    for (std::size_t at = line.find('@'); at != std::string::npos; at = line.find('@', at + 1), ++marks) {
      const std::string place =
          fmt::format("@{}:{} ", file < made.files().size() ? made.files()[file] : "?", number);
      EXPECT_EQ(line.substr(at, place.size()), place) << made.source();
    }
  }
  return marks;
}

TEST(IncludeText, LinesKeepTheirNumbers) {
  struct Case {
    const char* source;
    Headers headers;
    int marks;
  };
  const Case cases[] = {
      {"@ \n@ \n", {}, 2},
      {"@ \n#include \"a\"\n@ \n", {{"a", "@ \n@ \n"}}, 4},
      {"@ \n#include \"a\"\n@ \n", {{"a", "@ \n@ "}}, 4},
      {"@ \r\n#include \"a\"\r\n@ \r\n", {{"a", "@ \r\n@ \r\n"}}, 4},
      {"#include \"a\" // @ \n@ \n", {{"a", "@ \n"}}, 3},
      {"/* @ \n@ */ #include \"a\" /* @ \n@ \n*/ @ \n", {{"a", "@ \n"}}, 6},
      {"// \\\n\\\n@ \n#include \"a\"\n@ \n", {{"a", "// @ \\\n@ \n@ \n"}}, 5},
      {"R\"(\n\n)\" @ \n#include \"a\"\n@ \n", {{"a", "R\"x(\n)\"\n)x\" @ \n"}}, 3},
      {"\"\\\n\" @ \n#include \"a\"\n@ \n", {{"a", "\"\\\n\\\n\" @ \n"}}, 3},
      {"#include \"a\"\n#include \"b\"\n#include \"a\"\n@ \n",
       {{"a", "@ \n#include \"b\"\n@ \n"}, {"b", "\n@ "}},
       8},
      {"#include \"a\"\n@ \n#include \"a\"\n@ ", {{"a", "#pragma once\n@ \n"}}, 3},
      {"#if A\n#include \"missing\"\n@ \n#endif\n@ \n", {}, 2},
      {"#if A\n#include \"a\"\n@ \n#endif\n#include \"a\"\n@ \n", {{"a", "#pragma once\n@ \n@ "}}, 6},
      {"#define A \\\n  @ \n#include \"a\"\n@ \n", {{"a", "@ \n"}}, 3},
      {"@ \n#include \"e\"\n@ \n#include \"e\"", {{"e", ""}}, 2},
  };
  for (const Case& each : cases) {
    Headers headers = each.headers;
    for (auto& [name, text] : headers) text = marked(name, text);
    const Request made = request(marked("main", each.source), std::move(headers));
    ASSERT_FALSE(made.error()) << each.source << made.error()->message();
    EXPECT_EQ(expect_marks_in_place(made, true), each.marks) << made.source();
  }
}

TEST(IncludeText, LinesKeepTheirNumbersBehindGroupsThatAreSkipped) {
  struct Case {
    const char* source;
    Headers headers;
    int marks;
  };
  const Case cases[] = {
      {"#if 0\n#include \"missing\"\n#endif\n@ \n", {}, 1},
      {"#if 0\n#include \"a\"\n@ \n#else\n@ \n#endif\n@ \n", {{"a", "@ \n@ \n"}}, 2},
      {"#if 0\n#elif 0\n#include \"a\"\n#elif 0\n#else // \\\n\n@ \n#endif /*\n*/\n@ \n", {{"a", "@ \n"}}, 2},
      {"#if 0\n#if 0\n#include \"a\"\n#endif\n#endif\n@ \n", {{"a", "@ \n"}}, 1},
      {"#if 0\n#include \"a\"\n#endif\n@ \n#include \"a\"\n@ \n",
       {{"a", "#if 0\n#include \"b\"\n#endif\n@ \n"}, {"b", ""}},
       3},
      {"#if 0\r\n#include \"a\"\r\n#endif\r\n@ \r\n", {{"a", "@ "}}, 1},
  };
  for (const Case& each : cases) {
    Headers headers = each.headers;
    for (auto& [name, text] : headers) text = marked(name, text);
    const Request made = request(marked("main", each.source), std::move(headers));
    ASSERT_FALSE(made.error()) << each.source << made.error()->message();
    EXPECT_EQ(expect_marks_in_place(made, false), each.marks) << made.source();
  }
}

TEST(IncludeText, LinesKeepTheNumbersThatTheSourceGivesThem) {
  const Headers headers = {{"a", "a\n"}};
  EXPECT_NE(request("#line 10 7\n#include \"a\"\nx\n", headers).source().find("#line 10 7\n\nx\n"),
            std::string::npos);
  EXPECT_NE(request("#line 10\n\n#include \"a\"\nx\n", headers).source().find("#line 11 0\n\nx\n"),
            std::string::npos);
  const Request grouped = request("#if A\n#line 10\n#include \"a\"\n#endif\nx\n", headers);
  EXPECT_NE(grouped.source().find("#line 10 0\n\n#endif\n#line 12 0\nx\n"), std::string::npos) << grouped.source();
  const Request missing = request("#line 10\n#include \"missing\"\n", {});
  EXPECT_TRUE(missing.error()->message().starts_with("main:10 includes")) << missing.error()->message();
}

TEST(IncludeText, AFileThatEndsInABackslashDoesNotSwallowTheNextLine) {
  for (const char* source :
       {"#include \"a\"\nvoid main() {}\n", "#if A\n#include \"a\"\n#endif\nvoid main() {}\n"}) {
    for (const char* header : {"#define A 1 \\", "#pragma once\n#define A 1 \\", "#define A 1 \\\r"}) {
      const Request made = request(source, {{"a", header}});
      ASSERT_FALSE(made.error());
      EXPECT_EQ(made.source().find("\\\n#"), std::string::npos) << made.source();
      EXPECT_EQ(made.source().find("\\\r\n#"), std::string::npos) << made.source();
    }
  }
}

}  // namespace
}  // namespace kiln
