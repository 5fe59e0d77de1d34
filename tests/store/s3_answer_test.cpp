#include "store/remote/s3_answer.hpp"
#include "store/remote/xml.hpp"

#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace kiln::store {
namespace {

/// The elements of a document, in the order in which they end; nothing if it is refused.
std::optional<std::vector<std::string>> elements_of(const std::string& text) {
  std::vector<std::string> elements;
  const bool is_sound = read_xml(text, [&](std::string_view path, std::string_view value) {
    elements.push_back(std::string(path) + "=" + std::string(value));
  });
  return is_sound ? std::optional(std::move(elements)) : std::nullopt;
}

using Elements = std::vector<std::string>;

TEST(S3Answer, ReadsElementsWithTheirTexts) {
  EXPECT_EQ(elements_of("<?xml version='1.0'?>\n<!-- <no> -->\n<a x=\">\"><b>1</b><c/><b y='/'>2</b ></a>\n"),
            (Elements{"a/b=1", "a/c=", "a/b=2", "a="}));
  EXPECT_EQ(elements_of("\xef\xbb\xbf<a>&lt;&gt;&amp;&quot;&apos;&#65;&#x42;&#xe4;&#x20ac;&#x1F600;</a>"),
            (Elements{"a=<>&\"'AB\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80"}));
  EXPECT_EQ(elements_of("<a>"
                        "  two words\n</a>"),
            (Elements{"a=  two words\n"}));
}

TEST(S3Answer, RefusesXmlThatIsNotWellFormed) {
  for (const char* text : {"",
                           "text",
                           "<",
                           "<a",
                           "<a>",
                           "</a>",
                           "<a></b>",
                           "<a/><b/>",
                           "<a></a>x",
                           "x<a/>",
                           "<>",
                           "</>",
                           "<a/",
                           "<a x=\"></a>",
                           "<a>&</a>",
                           "<a>&amp</a>",
                           "<a>&no;</a>",
                           "<a>&#0;</a>",
                           "<a>&#;</a>",
                           "<a>&#x;</a>",
                           "<a>&#xd800;</a>",
                           "<a>&#x110000;</a>",
                           "<a>&#-1;</a>",
                           "<a>&#99999999999;</a>",
                           "<!-- -",
                           "<?xml",
                           "<a><b></a></b>",
                           "<!DOCTYPE a><a/>",
                           "<a><![CDATA[x]]></a>",
                           "<a<b/>"})
    EXPECT_EQ(elements_of(text), std::nullopt) << text;
  std::string deep;
  for (int i = 0; i < 17; ++i) deep.insert(0, "<a>").append("</a>");
  EXPECT_EQ(elements_of(deep), std::nullopt) << "nested too deep";
  EXPECT_TRUE(elements_of(deep.substr(3, deep.size() - 7)));
}

TEST(S3Answer, NamesTheCodeAndTheRegionOfARefusal) {
  const auto refusal = parse_s3_refusal(
      "<Error><Code>AuthorizationHeaderMalformed</Code><Message>m</Message><Region>eu-west-1</Region></Error>");
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->code, "AuthorizationHeaderMalformed");
  EXPECT_EQ(refusal->region, "eu-west-1");
  EXPECT_EQ(parse_s3_refusal("<Error><Code>A</Code><Region>EVIL\n</Region></Error>")->region, "");
  for (const char* text : {"<html><body>not here</body></html>", "<Error/>", "<Error><Code></Code></Error>",
                           "<Error><Code>two words</Code></Error>", "<Error><Code>A</Code>", ""})
    EXPECT_FALSE(parse_s3_refusal(text)) << text;
}

TEST(S3Answer, ListsAPage) {
  const auto page = parse_s3_listing(
      "<ListBucketResult xmlns='x'><Prefix>p/</Prefix><IsTruncated>true</IsTruncated>"
      "<Contents><Key>p/a&amp;b</Key><Owner><ID>1</ID></Owner></Contents><Contents><Key>p/c</Key></Contents>"
      "<CommonPrefixes><Prefix>p/d/</Prefix></CommonPrefixes>"
      "<NextContinuationToken>t=/+</NextContinuationToken></ListBucketResult>");
  ASSERT_TRUE(page);
  EXPECT_EQ(page->keys, (std::vector<std::string>{"p/a&b", "p/c"}));
  EXPECT_EQ(page->folders, (std::vector<std::string>{"p/d/"}));
  EXPECT_EQ(page->next, "t=/+");
  const auto last = parse_s3_listing(
      "<ListBucketResult><IsTruncated>false</IsTruncated><NextContinuationToken>t</NextContinuationToken>"
      "</ListBucketResult>");
  ASSERT_TRUE(last);
  EXPECT_EQ(last->next, "") << "the last page has no next one, whatever the server says";
}

TEST(S3Answer, RefusesWhatIsNoPage) {
  for (const char* text : {"", "<html/>", "<Error><Code>A</Code></Error>", "<ListBucketResult>",
                           "<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>"})
    EXPECT_FALSE(parse_s3_listing(text)) << text;
}

}  // namespace
}  // namespace kiln::store
