#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <openssl/crypto.h>
#include <kiln/digest.hpp>

#include "base/bytes.hpp"
#include "base/sha256.hpp"
#include "fakes/child.hpp"

namespace kiln::base {
namespace {

TEST(Sha256, IsTheOneOfTheStandard) {
  EXPECT_EQ(sha256("").hex(), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256("abc").hex(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256(std::string(1'000'000, 'a')).hex(),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, IsTheSameWhenOpenSslHasEndedWithTheProcess) {
  // Caches in static variables save what they hold when the handlers of exit() have run.
  const std::string digest = fakes::in_child([]() -> std::string {
    static_cast<void>(sha256("before"));
    OPENSSL_cleanup();
    return sha256("abc").hex();
  });
  EXPECT_EQ(digest, sha256("abc").hex());
}

TEST(Digest, IsWrittenInAsManyDigitsAsAskedFor) {
  const Digest digest = sha256("abc");
  EXPECT_EQ(digest.hex(0), "");
  EXPECT_EQ(digest.hex(16), "ba7816bf8f01cfea");
  EXPECT_EQ(digest.hex(1000), digest.hex());
}

TEST(Digest, ComesBackFromItsDigits) { EXPECT_EQ(digest_from_hex(sha256("abc").hex()), sha256("abc")); }

TEST(Digest, ComesFromNothingButSixtyFourLowerCaseDigits) {
  const std::string good = sha256("abc").hex();
  const std::string most = good.substr(1);
  for (const std::string& bad :
       {std::string(), most, good + "0", most + "A", most + "g", most + " ", most + std::string(1, '\0')})
    EXPECT_FALSE(digest_from_hex(bad)) << bad;
}

TEST(Digest, DiffersInEveryBit) {
  const Digest digest = sha256("abc");
  for (std::size_t bit = 0; bit < 256; ++bit) {
    Digest other = digest;
    other.bytes[bit / 8] ^= static_cast<std::byte>(1U << bit % 8);
    EXPECT_NE(other, digest) << bit;
    EXPECT_NE(other <=> digest, std::strong_ordering::equal) << bit;
    EXPECT_EQ(other.word(0) == digest.word(0), bit >= 64) << bit;
  }
}

TEST(ByteWriter, KeepsListsOfTextsApart) {
  const auto written = [](const std::vector<std::string>& texts) {
    ByteWriter writer;
    for (const auto& text : texts) writer.text(text);
    return std::move(writer).bytes();
  };
  EXPECT_NE(written({"ab", "c"}), written({"a", "bc"}));
  EXPECT_NE(written({"abc"}), written({"abc", ""}));
  EXPECT_NE(written({"", "abc"}), written({"abc", ""}));
}

TEST(ByteReader, ReadsWhatWasWritten) {
  ByteWriter writer;
  writer.number(std::uint32_t{0x01020304});
  writer.number(-5.5);
  writer.number(std::int64_t{-1});
  EXPECT_EQ(writer.bytes().front(), std::byte{4}) << "numbers are little-endian";
  ByteReader reader(writer.bytes());
  EXPECT_EQ(reader.number<std::uint32_t>(), 0x01020304U);
  EXPECT_EQ(reader.number<double>(), -5.5);
  EXPECT_EQ(reader.number<std::int64_t>(), -1);
}

}  // namespace
}  // namespace kiln::base
