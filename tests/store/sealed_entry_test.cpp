#include "store/sealed_entry.hpp"

#include <cstring>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/resource.h>

#include "base/bytes.hpp"
#include "base/sha256.hpp"
#include "fakes/child.hpp"
#include "store/samples.hpp"

namespace kiln::store {
namespace {

using Bytes = std::vector<std::byte>;

// Where the fields stand, by docs/format.md.
constexpr std::size_t version_at = 8;
constexpr std::size_t preamble_bytes_at = 12;
constexpr std::size_t checksum_at = 16;
constexpr std::size_t body_bytes_at = 48;
constexpr std::size_t signature_bytes_at = 56;
constexpr std::size_t preamble_bytes = 64;
constexpr std::size_t compile_time_at = 160;
constexpr std::size_t created_at = 168;
constexpr std::size_t facts_bytes_at = 176;
constexpr std::size_t parts_at = 184;
constexpr std::size_t header_bytes = 192;
// Of the one part of a sample.
const std::size_t part_at = header_bytes + sample_entry("").facts.size();
const std::size_t name_bytes_at = part_at;
const std::size_t codec_at = part_at + 8;
const std::size_t raw_bytes_at = part_at + 16;
const std::size_t payload_bytes_at = part_at + 24;
const std::size_t payload_at = part_at + 32 + binary_part.size();

const Digest sample_digest = base::sha256("key");
const EntryLabel label = label_of(sample_digest);

Bytes encoded(const std::string& binary) { return seal_entry(label, sample_entry(binary)); }

/// The file with the size and the checksum of its body set right.
Bytes resealed(Bytes file) {
  const std::uint64_t body_bytes = file.size() - preamble_bytes;
  std::memcpy(file.data() + body_bytes_at, &body_bytes, sizeof body_bytes);
  const Digest digest = base::sha256(std::span(file).subspan(preamble_bytes));
  std::memcpy(file.data() + checksum_at, digest.bytes.data(), digest.bytes.size());
  return file;
}

/// Puts a number into a file as a writer with that mistake would: the checksum fits.
template <class T>
Bytes forged(Bytes file, std::size_t at, T value) {
  std::memcpy(file.data() + at, &value, sizeof value);
  return at < preamble_bytes ? file : resealed(std::move(file));
}

/// Why a file is damaged; "sound" where it is not.
std::string damage(std::span<const std::byte> file) {
  const auto decoded = open_entry(file);
  if (decoded) return "sound";
  return decoded.error().code() == ErrorCode::damaged ? decoded.error().message() : "not called damaged";
}

/// What decoding says, and whether it took little memory to find out.
std::string damage_in_little_memory(const Bytes& file) {
  return fakes::in_child([&file]() -> std::string {
    rusage before{};
    rusage after{};
    getrusage(RUSAGE_SELF, &before);
    const std::string why = damage(file);
    getrusage(RUSAGE_SELF, &after);
    const long grown = after.ru_maxrss - before.ru_maxrss;
    return grown < 100'000 ? why : "it took " + std::to_string(grown) + " kB to find out: " + why;
  });
}

TEST(SealedEntry, ComesBackAsItWas) {
  const std::string megabytes = incompressible(5'000'000);
  for (const std::string& binary : {std::string(), std::string("x"), std::string("\0", 1),
                                    std::string(100'000, 'a'), incompressible(1000), megabytes}) {
    const Entry entry = sample_entry(binary);
    const auto decoded = open_entry(seal_entry(label, entry));
    ASSERT_TRUE(decoded) << decoded.error().message();
    EXPECT_EQ(decoded->label.key, sample_digest);
    EXPECT_EQ(decoded->label.identity, sample_identity().digest());
    EXPECT_EQ(decoded->label.target, sample_identity().target_digest());
    ASSERT_EQ(decoded->entry.parts.size(), 1U);
    EXPECT_TRUE(decoded->entry.binary()->bytes == entry.binary()->bytes) << binary.size() << " bytes";
    EXPECT_EQ(decoded->entry.binary()->format, entry.binary()->format);
    EXPECT_EQ(decoded->entry.compile_time, entry.compile_time);
    EXPECT_EQ(decoded->entry.created, entry.created);
    EXPECT_EQ(decoded->entry.facts, entry.facts);
  }
}

TEST(SealedEntry, WithoutFactsOrWithBytesForFactsComesBackAsItWas) {
  for (const std::string& facts : {std::string(), std::string("\0\xff{", 3), std::string(100'000, 'f')}) {
    Entry entry = sample_entry("binary");
    entry.facts = facts;
    const auto decoded = open_entry(seal_entry(label, entry));
    ASSERT_TRUE(decoded);
    EXPECT_EQ(decoded->entry.facts, facts);
  }
}

TEST(SealedEntry, IsPackedWhereThatPays) {
  EXPECT_LT(encoded(std::string(100'000, 'a')).size(), 1000U);
  EXPECT_EQ(encoded(incompressible(1000)).size(), payload_at + 1000);
  EXPECT_EQ(encoded("").size(), payload_at);
}

TEST(SealedEntry, IsDamagedByEveryBitThatFlips) {
  for (const std::string& binary : {std::string("tiny"), std::string(500, 'a')}) {
    Bytes file = encoded(binary);
    ASSERT_EQ(damage(file), "sound");
    for (std::size_t bit = 0; bit < 8 * file.size(); ++bit) {
      file[bit / 8] ^= static_cast<std::byte>(1U << bit % 8);
      const std::string why = damage(file);
      ASSERT_TRUE(why != "sound" && why != "not called damaged") << "bit " << bit << ": " << why;
      file[bit / 8] ^= static_cast<std::byte>(1U << bit % 8);
    }
  }
}

TEST(SealedEntry, IsDamagedByTruncationAtEveryLength) {
  const Bytes file = encoded("tiny");
  for (std::size_t length = 0; length < file.size(); ++length) {
    // A copy of just that length, so that reading past its end is noticed.
    const Bytes part(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(length));
    ASSERT_NE(damage(part), "sound") << length;
  }
}

TEST(SealedEntry, IsDamagedByWhatFollowsIt) {
  for (const std::string& more : {std::string(1, '\0'), std::string("garbage"), std::string(10'000, 'x')}) {
    Bytes file = encoded("tiny");
    const Bytes tail = fakes::bytes_of(more);
    file.insert(file.end(), tail.begin(), tail.end());
    EXPECT_NE(damage(file), "sound");
    EXPECT_NE(damage(forged(file, created_at, std::int64_t{0})), "sound") << "with a checksum that fits";
  }
}

TEST(SealedEntry, IsDamagedWhereItIsSomethingElse) {
  for (const std::string& text : {std::string(1000, '\0'), std::string(1000, '\xff'), std::string(1000, 'K'),
                                  std::string("KILNBIN\n") + std::string(992, '\0'), incompressible(100'000)})
    EXPECT_NE(damage(fakes::bytes_of(text)), "sound");
}

TEST(SealedEntry, OfAnotherVersionSaysSo) {
  for (const std::uint32_t version : {0U, 1U, 4U, 0xffffffffU}) {
    const std::string why = damage(forged(encoded("tiny"), version_at, version));
    EXPECT_NE(why.find("version " + std::to_string(version)), std::string::npos) << why;
  }
}

TEST(SealedEntry, WithAHeaderOfAnotherSizeIsDamaged) {
  for (const std::uint32_t size : {0U, 63U, 65U, 0xffffffffU})
    EXPECT_NE(damage(forged(encoded("tiny"), preamble_bytes_at, size)), "sound");
}

TEST(SealedEntry, WithAnUnknownCodecIsDamaged) {
  for (const std::uint32_t codec : {2U, 77U, 0xffffffffU}) {
    const std::string why = damage(forged(encoded("tiny"), codec_at, codec));
    EXPECT_NE(why.find(std::to_string(codec)), std::string::npos) << why;
  }
}

TEST(SealedEntry, WithTheOtherCodecIsDamaged) {
  EXPECT_NE(damage(forged(encoded("tiny"), codec_at, std::uint32_t{1})), "sound");
  EXPECT_NE(damage(forged(encoded(std::string(500, 'a')), codec_at, std::uint32_t{0})), "sound");
}

TEST(SealedEntry, ThatClaimsAbsurdSizesIsDamagedAndTakesNoMemory) {
  constexpr std::uint64_t most = std::numeric_limits<std::uint64_t>::max();
  for (const std::string& binary : {std::string("tiny"), std::string(500, 'a')}) {
    for (const std::size_t at : {body_bytes_at, raw_bytes_at, facts_bytes_at, payload_bytes_at}) {
      for (const std::uint64_t size :
           {std::uint64_t{0}, std::uint64_t{1}, max_entry_bytes + 1, std::uint64_t{1} << 40, std::uint64_t{1} << 63,
            most - header_bytes, most - 1, most}) {
        const std::string why = damage_in_little_memory(forged(encoded(binary), at, size));
        EXPECT_TRUE(why.starts_with("it ") && !why.starts_with("it took") && !why.starts_with("it ended"))
            << "field at " << at << ", " << size << " bytes: " << why;
      }
    }
  }
}

TEST(SealedEntry, WhosePartsAddUpOnlyByOverflowIsDamaged) {
  // One size too large and the other so much too small that their sum, modulo 2^64, is right.
  const Bytes file = encoded("tiny");
  const std::uint32_t signatures = 10;
  Bytes one = forged(file, signature_bytes_at, signatures);
  EXPECT_NE(damage(forged(one, body_bytes_at, file.size() - preamble_bytes - signatures)), "sound");
  one = forged(file, facts_bytes_at, std::numeric_limits<std::uint64_t>::max() - 9);
  EXPECT_NE(damage(forged(one, payload_bytes_at, std::uint64_t{14})), "sound");
}

TEST(SealedEntry, ThatClaimsToUnpackToTheMostAllowedTakesNoMemoryBeforeItIsKnownToBeWrong) {
  const std::string why =
      damage_in_little_memory(forged(encoded(std::string(500, 'a')), raw_bytes_at, max_entry_bytes));
  EXPECT_EQ(why, "it does not unpack to the size that it declares");
}

TEST(SealedEntry, WhosePackedPartClaimsTheMostAllowedAsWellTakesNoMemoryEither) {
  // A zstd frame by hand: its magic, eight bytes for the size, and one block that repeats a byte ten times.
  base::ByteWriter frame;
  frame.number(std::uint32_t{0xfd2fb528});
  frame.number(std::uint8_t{0xe0});
  frame.number(max_entry_bytes);
  frame.number(std::uint32_t{10U << 3 | 1U << 1 | 1U | 'a' << 24});
  Bytes file = encoded("");
  file.insert(file.end(), frame.bytes().begin(), frame.bytes().end());
  file = forged(file, payload_bytes_at, static_cast<std::uint64_t>(frame.bytes().size()));
  file = forged(forged(file, codec_at, std::uint32_t{1}), raw_bytes_at, max_entry_bytes);
  EXPECT_EQ(damage_in_little_memory(file), "it does not unpack to the size that it declares");
}

TEST(SealedEntry, ThatPacksBestOfAllComesBackAsItWas) {
  const std::string binary(5'000'000, 'a');
  const auto decoded = open_entry(encoded(binary));
  ASSERT_TRUE(decoded);
  EXPECT_EQ(fakes::text_of(decoded->entry.binary()->bytes), binary);
}

TEST(SealedEntry, WithAbsurdTimesIsReadOrDamagedButNothingWorse) {
  for (const std::int64_t time : {std::numeric_limits<std::int64_t>::min(), std::int64_t{-1}, std::int64_t{0},
                                  std::int64_t{1} << 40, std::numeric_limits<std::int64_t>::max()}) {
    for (const std::size_t at : {compile_time_at, created_at}) {
      const Bytes file = forged(encoded("tiny"), at, time);
      const std::string answer = fakes::in_child([&file]() -> std::string {
        const auto decoded = open_entry(file);
        return decoded && meta_of(decoded->label, decoded->entry, file.size()).empty() ? "no meta" : "fine";
      });
      EXPECT_EQ(answer, "fine") << "field at " << at << ": " << time;
    }
  }
}

TEST(SealedEntry, TellsOfNoCompilerThatTookLongerThanADay) {
  for (const std::int64_t absurd : {std::numeric_limits<std::int64_t>::min(), std::int64_t{-1},
                                    std::int64_t{1} << 50, std::numeric_limits<std::int64_t>::max()}) {
    const auto decoded = open_entry(forged(encoded("tiny"), compile_time_at, absurd));
    ASSERT_TRUE(decoded) << absurd;
    EXPECT_EQ(decoded->entry.compile_time.count(), 0) << absurd;
  }
}

TEST(SealedEntry, KeepsTheTimeItWasMadeAndNoOther) {
  for (const std::int64_t seconds : {std::int64_t{-86'400}, std::int64_t{0}, std::int64_t{4'102'444'800}}) {
    Entry entry = sample_entry("x");
    entry.created = std::chrono::system_clock::time_point(std::chrono::seconds(seconds));
    const auto decoded = open_entry(seal_entry(label, entry));
    ASSERT_TRUE(decoded);
    EXPECT_EQ(decoded->entry.created, entry.created);
  }
}

TEST(SealedEntry, WithAPackedPartThatUnpacksToSomethingElseIsDamaged) {
  // The right size, the right checksum, and a zstd frame cut short.
  Bytes file = encoded(std::string(500, 'a'));
  const std::uint64_t payload = file.size() - payload_at;
  file.pop_back();
  EXPECT_NE(damage(forged(file, payload_bytes_at, payload - 1)), "sound");
}

TEST(SealedEntry, WithSeveralPartsComesBackAsItWas) {
  Entry entry = sample_entry("binary");
  entry.parts["ptx"] = {.format = 1, .bytes = fakes::bytes_of(std::string(10'000, 'p'))};
  entry.parts["log"] = {.format = 0, .bytes = {}};
  const auto decoded = open_entry(seal_entry(label, entry));
  ASSERT_TRUE(decoded) << decoded.error().message();
  ASSERT_EQ(decoded->entry.parts.size(), 3U);
  for (const auto& [name, part] : entry.parts) {
    const auto found = decoded->entry.parts.find(name);
    ASSERT_NE(found, decoded->entry.parts.end()) << name;
    EXPECT_EQ(found->second.format, part.format);
    EXPECT_TRUE(found->second.bytes == part.bytes) << name;
  }
}

TEST(SealedEntry, WithoutPartsHasNoBinary) {
  const auto decoded = open_entry(seal_entry(label, {.facts = "{}"}));
  ASSERT_TRUE(decoded);
  EXPECT_EQ(decoded->entry.binary(), nullptr);
}

TEST(SealedEntry, WithPartsOutOfOrderOrTwiceOrWithoutANameIsDamaged) {
  Entry entry = sample_entry("x");
  entry.parts["binarz"] = {.format = 7, .bytes = fakes::bytes_of("y")};
  Bytes file = seal_entry(label, entry);
  ASSERT_EQ(damage(file), "sound");
  // The last letter of the second name decides the order.
  const std::size_t second_name = payload_at + 1 + 32;
  for (const char letter : {'a', 'y'}) {
    Bytes other = file;
    other[second_name + 5] = static_cast<std::byte>(letter);
    EXPECT_EQ(damage(resealed(other)), "its parts are not in order") << letter;
  }
  for (const std::uint32_t size : {0U, 65U, 0xffffffffU})
    EXPECT_NE(damage(forged(file, name_bytes_at, size)), "sound") << size;
  for (const std::uint32_t parts : {0U, 1U, 3U, 65U, 0xffffffffU})
    EXPECT_NE(damage(forged(file, parts_at, parts)), "sound") << parts;
}

/// An entry with a block of signatures behind its body.
Bytes with_block(const std::string& block) {
  Bytes file = encoded("tiny");
  const auto size = static_cast<std::uint32_t>(block.size());
  std::memcpy(file.data() + signature_bytes_at, &size, sizeof size);
  const Bytes bytes = fakes::bytes_of(block);
  file.insert(file.end(), bytes.begin(), bytes.end());
  return file;
}

TEST(SealedEntry, WithSignaturesIsReadAndNamesThem) {
  const std::string name("\3\0\0\0one", 7);
  const std::string signature(64, 's');
  EXPECT_EQ(damage(with_block(name + signature)), "sound");
  const Bytes twice = with_block(name + signature + name + signature);
  EXPECT_EQ(damage(twice), "sound");
  const auto examined = examine_entry(twice);
  ASSERT_TRUE(examined);
  ASSERT_EQ(examined->signatures.size(), 2U);
  EXPECT_EQ(examined->signatures[1].signer, "one");
  EXPECT_EQ(fakes::text_of(examined->signatures[1].bytes), signature);
}

TEST(SealedEntry, WithMalformedSignaturesIsDamaged) {
  const std::string name("\3\0\0\0one", 7);
  for (const std::string& block :
       {std::string("x"), std::string(4, '\0') + std::string(64, 's'), name + std::string(63, 's'),
        name + std::string(65, 's'), std::string(4, '\xff') + std::string(100, 's'), std::string(100'000, '\1')})
    EXPECT_EQ(damage(with_block(block)), "its signatures are malformed") << block.size();
}

TEST(SealedEntry, IsExaminedWithoutUnpackingIt) {
  // The checksum matches, but the part does not unpack.
  const Bytes file = forged(encoded(std::string(500, 'a')), raw_bytes_at, std::uint64_t{501});
  const auto examined = examine_entry(file);
  ASSERT_TRUE(examined) << examined.error().message();
  EXPECT_EQ(examined->label.key, sample_digest);
  EXPECT_EQ(examined->label.identity, label.identity);
  EXPECT_EQ(examined->label.target, label.target);
  EXPECT_EQ(examined->version, 3U);
  EXPECT_EQ(examined->body_digest, base::sha256(std::span(file).subspan(preamble_bytes)));
  EXPECT_TRUE(examined->signatures.empty());
  const auto unpacked = unpack_entry(*examined);
  ASSERT_FALSE(unpacked);
  EXPECT_EQ(unpacked.error().code(), ErrorCode::damaged);
}

/// What Kiln 0.1 wrote.
Bytes version_2(const std::string& binary, const std::string& facts) {
  base::ByteWriter covered;
  covered.raw(sample_digest.bytes);
  covered.raw(label.identity.bytes);
  covered.number(std::uint32_t{7});
  covered.number(std::uint32_t{0});
  covered.number(static_cast<std::uint64_t>(binary.size()));
  covered.number(static_cast<std::uint64_t>(facts.size()));
  covered.number(static_cast<std::uint64_t>(binary.size()));
  covered.number(std::int64_t{123});
  covered.number(std::int64_t{1'700'000'000});
  covered.number(1.5);
  covered.number(2.5);
  covered.raw(fakes::bytes_of(facts));
  covered.raw(fakes::bytes_of(binary));
  base::ByteWriter file;
  file.raw(fakes::bytes_of("KILNBIN\n"));
  file.number(std::uint32_t{2});
  file.number(std::uint32_t{176});
  file.raw(base::sha256(covered.bytes()).bytes);
  file.raw(covered.bytes());
  return std::move(file).bytes();
}

TEST(SealedEntry, OfVersion2IsReadWithoutItsPerformance) {
  const auto decoded = open_entry(version_2("the binary", "{}"));
  ASSERT_TRUE(decoded) << decoded.error().message();
  EXPECT_EQ(decoded->label.key, sample_digest);
  EXPECT_EQ(decoded->label.identity, label.identity);
  ASSERT_NE(decoded->entry.binary(), nullptr);
  EXPECT_EQ(fakes::text_of(decoded->entry.binary()->bytes), "the binary");
  EXPECT_EQ(decoded->entry.binary()->format, 7U);
  EXPECT_EQ(decoded->entry.compile_time.count(), 123);
  EXPECT_EQ(decoded->entry.facts, "{}");
}

TEST(SealedEntry, OfVersion2IsExaminedAndHasNoSignatures) {
  const Bytes file = version_2("the binary", "{}");
  const auto examined = examine_entry(file);
  ASSERT_TRUE(examined) << examined.error().message();
  EXPECT_EQ(examined->version, 2U);
  EXPECT_EQ(examined->label.key, sample_digest);
  EXPECT_EQ(examined->label.target, Digest{});
  EXPECT_TRUE(examined->signatures.empty());
  EXPECT_EQ(with_signatures(file, {}).error().code(), ErrorCode::unsupported);
}

TEST(SealedEntry, GetsItsSignaturesSortedBySignerInPlaceOfOlderOnes) {
  const auto signature = [](const std::string& signer, unsigned char fill) {
    Signature made{.signer = signer};
    made.bytes.fill(static_cast<std::byte>(fill));
    return made;
  };
  const Bytes plain = encoded("tiny");
  const Bytes once = with_signatures(plain, std::vector{signature("zoe", 1), signature("adam", 2)}).value();
  const auto examined = examine_entry(once);
  ASSERT_TRUE(examined) << examined.error().message();
  ASSERT_EQ(examined->signatures.size(), 2U);
  EXPECT_EQ(examined->signatures[0].signer, "adam");
  EXPECT_EQ(examined->signatures[0].bytes, signature("", 2).bytes);
  EXPECT_EQ(examined->signatures[1].signer, "zoe");
  EXPECT_EQ(damage(once), "sound");
  const Bytes again = with_signatures(once, std::vector{signature("eve", 3)}).value();
  EXPECT_EQ(again, with_signatures(plain, std::vector{signature("eve", 3)}).value());
  EXPECT_EQ(with_signatures(once, {}).value(), plain);
}

TEST(SealedEntry, TakesNoSignaturesBeyondTheLimits) {
  const Bytes file = encoded("tiny");
  const auto refusal = [&file](const std::vector<Signature>& signatures) {
    const auto made = with_signatures(file, signatures);
    return made ? "none" : made.error().code() == ErrorCode::invalid_request ? made.error().message() : "another";
  };
  EXPECT_EQ(refusal({{.signer = std::string(255, 'x')}}), "none");
  EXPECT_NE(refusal({{.signer = std::string(256, 'x')}}), "none");
  EXPECT_NE(refusal({{.signer = ""}}), "none");
  EXPECT_EQ(refusal({{.signer = "one"}, {.signer = "two"}, {.signer = "one"}}),
            "two signatures have the same signer");
  // 72 bytes each.
  std::vector<Signature> many;
  for (int i = 0; i < 910; ++i) many.push_back({.signer = fakes::numbered("s", 1000 + i).substr(2)});
  EXPECT_EQ(refusal(many), "none");
  many.push_back({.signer = "last"});
  EXPECT_EQ(refusal(many), "the signatures have more than 65536 bytes");
  EXPECT_EQ(with_signatures(Bytes(file.begin(), file.end() - 1), {}).error().code(), ErrorCode::damaged);
  EXPECT_EQ(with_signatures({}, {}).error().code(), ErrorCode::damaged);
}

TEST(SealedEntry, OfVersion2IsDamagedByEveryBitThatFlipsAndEveryLength) {
  const Bytes whole = version_2("the binary", "{}");
  for (std::size_t bit = 0; bit < 8 * whole.size(); ++bit) {
    Bytes file = whole;
    file[bit / 8] ^= static_cast<std::byte>(1U << bit % 8);
    ASSERT_NE(damage(file), "sound") << bit;
  }
  for (std::size_t length = 0; length < whole.size(); ++length)
    ASSERT_NE(damage(Bytes(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length))), "sound") << length;
}

TEST(SealedEntry, IsDecodedByThreadsAtOnce) {
  const Bytes packed = encoded(std::string(50'000, 'a'));
  const Bytes plain = encoded(incompressible(50'000));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 20; ++i) {
        EXPECT_EQ(damage(packed), "sound");
        EXPECT_EQ(damage(plain), "sound");
      }
    });
  }
  for (auto& thread : threads) thread.join();
}

TEST(SealedEntry, IsDecodedByWhatItsThreadDestroysLast) {
  const Bytes packed = encoded(std::string(50'000, 'a'));
  const std::string answer = fakes::in_child([&packed]() -> std::string {
    std::string last;
    std::thread([&] {
      struct Last {
        const Bytes& file;
        std::string& answer;
        ~Last() { answer = damage(file); }
      };
      // Made before the thread first decodes anything, and so destroyed after all that was made for that.
      static thread_local const Last kept{packed, last};
      static_cast<void>(damage(packed));
    }).join();
    return last;
  });
  EXPECT_EQ(answer, "sound");
}

}  // namespace
}  // namespace kiln::store
