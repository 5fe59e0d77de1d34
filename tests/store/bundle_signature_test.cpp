#include <chrono>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/event.hpp"
#include "store/bundle_fixture.hpp"

namespace kiln::store {
namespace {

SigningKey key_named(const std::string& name) { return SigningKey::generate(name).value(); }

class BundleSignatures : public BundleTest {
 protected:
  void sign(const SigningKey& key) const {
    const auto signed_now = sign_bundle(*open(), std::span(&key, 1));
    ASSERT_TRUE(signed_now) << signed_now.error().message();
  }
  std::string verdict(const std::vector<PublicKey>& trusted, const std::vector<PublicKey>& revoked = {}) const {
    const TrustList trust(trusted, revoked);
    return refusal(&trust);
  }

  const SigningKey ci_ = key_named("ci");
  const SigningKey other_ = key_named("other");
};

constexpr const char* accepted = "it is opened";

TEST_F(BundleSignatures, OfATrustedKeyAreNeededWithAListOfKeys) {
  write_samples();
  const std::string name = "untrusted: the bundle " + path_.string() + " is not trusted: ";
  EXPECT_EQ(verdict({ci_.public_key()}), name + "it has no signature");
  EXPECT_EQ(verdict({}), name + "it has no signature");
  write_samples(std::span(&ci_, 1));
  EXPECT_EQ(verdict({ci_.public_key()}), accepted);
  EXPECT_EQ(verdict({other_.public_key(), ci_.public_key()}), accepted);
  EXPECT_EQ(verdict({other_.public_key()}), name + "it is signed by ci, which is not trusted");
  EXPECT_EQ(verdict({ci_.public_key()}, {ci_.public_key()}), name + "it is signed by ci, which is not trusted");
  EXPECT_EQ(verdict({key_named("ci").public_key()}), name + "its signature by ci does not match its contents");
  EXPECT_EQ(refusal(), accepted) << "without a list, nobody looks at them";
}

TEST_F(BundleSignatures, AreAddedWithoutAnotherChange) {
  const std::string before = write_samples();
  ASSERT_EQ(chmod(path_.c_str(), 0640), 0);
  sign(ci_);
  sign(other_);
  const std::string after = fakes::read_file(path_);
  const BundleHeader header = header_of(before);
  EXPECT_EQ(after.substr(0, header.index_offset + header.index_bytes),
            before.substr(0, header.index_offset + header.index_bytes));
  EXPECT_EQ(open()->signatures().size(), 2U);
  EXPECT_EQ(verdict({other_.public_key()}), accepted);
  struct stat status {};
  ASSERT_EQ(stat(path_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0640U);
  sign(other_);
  EXPECT_EQ(fakes::read_file(path_), after) << "signing again changes nothing";
  EXPECT_EQ(fakes::names_in(folder_.path()), (std::vector<std::string>{"app.kiln", "app.kilnreq"}));
}

TEST_F(BundleSignatures, AreOfTheFileThatWasOpened) {
  write_samples();
  const auto checked = open();
  write_bundle(path_, contents_of({{sm_90, "conv", "another conv"}})).value();
  const std::string another = fakes::read_file(path_);
  const auto refused = sign_bundle(*checked, std::span(&ci_, 1));
  ASSERT_FALSE(refused);
  EXPECT_EQ(
      refused.error().message(),
      "the bundle " + path_.string() + " is not signed: the file was replaced after it was opened; sign it again");
  EXPECT_EQ(fakes::read_file(path_), another) << "and is not signed";
  EXPECT_EQ(fakes::names_in(folder_.path()), (std::vector<std::string>{"app.kiln", "app.kilnreq"}));
  // The index in memory is signed, not what is in the file by then.
  const std::string before = write_samples();
  const auto opened = open();
  fakes::overwrite(path_, with_index(before, [](std::string& index) { ++index[IndexPlaces(index).row(0) + 40]; }));
  ASSERT_TRUE(sign_bundle(*opened, std::span(&ci_, 1)));
  EXPECT_EQ(open()->digest(), header_of(before).index_digest);
  EXPECT_EQ(verdict({ci_.public_key()}), accepted);
}

TEST_F(BundleSignatures, ThatAreInterruptedChangeNothing) {
  const std::string before = write_samples();
  const base::Event interrupted;
  interrupted.set();
  const auto signed_now = sign_bundle(*open(), std::span(&ci_, 1), interrupted.descriptor());
  ASSERT_FALSE(signed_now);
  EXPECT_EQ(signed_now.error().code(), ErrorCode::cancelled);
  BundleContents contents = contents_of(sample_programs());
  contents.interrupted = interrupted.descriptor();
  EXPECT_EQ(write_bundle(path_, contents).error().code(), ErrorCode::cancelled);
  EXPECT_EQ(fakes::read_file(path_), before);
  EXPECT_EQ(fakes::names_in(folder_.path()), (std::vector<std::string>{"app.kiln", "app.kilnreq"}));
}

TEST_F(BundleSignatures, ReplaceThoseOfTheSameName) {
  write_samples(std::span(&ci_, 1));
  const SigningKey next = key_named("ci");
  sign(next);
  EXPECT_EQ(open()->signatures().size(), 1U);
  EXPECT_EQ(verdict({next.public_key()}), accepted);
  EXPECT_NE(verdict({ci_.public_key()}), accepted);
}

TEST_F(BundleSignatures, AreThoseOfWriteBundleAndEqualBytes) {
  const std::string written = write_samples(std::span(&ci_, 1));
  write_samples();
  sign(ci_);
  EXPECT_EQ(fakes::read_file(path_), written);
}

TEST_F(BundleSignatures, CoverTheIndex) {
  const std::string bundle = write_samples(std::span(&ci_, 1));
  fakes::write_file(path_, with_index(bundle, [](std::string& index) { ++index[IndexPlaces(index).row(0) + 40]; }));
  EXPECT_NE(verdict({ci_.public_key()}).find("its signature by ci does not match its contents"), std::string::npos);
  // The digest that was signed, with another index.
  const Digest signed_digest = header_of(bundle).index_digest;
  const std::string changed =
      with_header(fakes::read_file(path_), [&](BundleHeader& header) { header.index_digest = signed_digest; });
  EXPECT_NE(refusal_of(changed), "");
  EXPECT_NE(verdict({ci_.public_key()}).find("its index does not have the SHA-256 of its header"),
            std::string::npos);
  const auto signed_again = sign_bundle(*open(), std::span(&other_, 1));
  ASSERT_FALSE(signed_again) << "nobody signs an index with another digest";
  EXPECT_EQ(signed_again.error().code(), ErrorCode::damaged);
}

TEST_F(BundleSignatures, CoverTheRequests) {
  const std::string bundle = write_samples(std::span(&ci_, 1));
  const TrustList trust({ci_.public_key()}, {});
  EXPECT_EQ(open(&trust)->requests().value().entries().size(), 1U);
  // Another record of the same size, which is valid as a record.
  std::string other = bundle;
  const BundleHeader header = header_of(bundle);
  other.replace(header.record_offset + key::record_begin_bytes, header.record_bytes - key::record_begin_bytes,
                std::string(header.record_bytes - key::record_begin_bytes, '\0'));
  fakes::write_file(path_, other);
  const auto refused = open(&trust)->requests();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ErrorCode::damaged);
  EXPECT_NE(refused.error().message().find(path_.string()), std::string::npos);
  // Without a list of keys, only those who ask compare them.
  EXPECT_TRUE(open()->requests());
  const auto compared = open()->checked_requests();
  ASSERT_FALSE(compared);
  EXPECT_EQ(compared.error().message(), refused.error().message());
  fakes::write_file(path_, bundle);
  EXPECT_EQ(open()->checked_requests().value().entries().size(), 1U);
}

TEST_F(BundleSignatures, CoverWhetherThereAreRequests) {
  const std::string bundle = write_samples(std::span(&ci_, 1));
  fakes::write_file(path_, with_header(bundle, [](BundleHeader& header) {
                      header.record_offset = 0;
                      header.record_bytes = 0;
                    }));
  EXPECT_NE(verdict({ci_.public_key()}).find("its header claims requests of 0 bytes"), std::string::npos);
}

TEST_F(BundleSignatures, ThatAreFalseAreNotTriedForLong) {
  const std::string bundle = write_samples();
  const BundleHeader header = header_of(bundle);
  // Of one trusted name, as many as fit. A writer does not make this, but a reader may get it.
  std::string block;
  while (block.size() + 70 <= max_signature_bytes) block += std::string("\2\0\0\0ci", 6) + std::string(64, 's');
  const auto end = bundle_signatures(bytes_in(block));
  fakes::write_file(path_, bundle.substr(0, header.index_offset + header.index_bytes) + fakes::text_of(end));
  EXPECT_GT(open()->signatures().size(), 900U);
  std::vector<PublicKey> keys;
  for (int i = 0; i < 8; ++i) keys.push_back(key_named("ci").public_key());
  EXPECT_NE(verdict(keys).find("none of its first 16 signatures by trusted keys matches"), std::string::npos)
      << verdict(keys);
  fakes::write_file(path_, bundle.substr(0, header.index_offset + header.index_bytes) +
                               fakes::text_of(bundle_signatures(std::vector<std::byte>(max_signature_bytes + 1))));
  EXPECT_NE(refusal().find("its signatures are malformed"), std::string::npos) << refusal();
}

TEST_F(BundleSignatures, OfAnEntryAreNoneOfABundle) {
  // The same 32 bytes, signed as another kind of message.
  const std::string bundle = write_samples();
  const Digest digest = header_of(bundle).index_digest;
  const Signature signature = ci_.sign(std::span<const std::byte>(digest.bytes)).value();
  const auto block = signature_block(std::span(&signature, 1)).value();
  fakes::write_file(path_, bundle.substr(0, bundle.size() - bundle_signatures_begin_bytes) +
                               fakes::text_of(bundle_signatures(block)));
  EXPECT_NE(verdict({ci_.public_key()}).find("does not match its contents"), std::string::npos);
}

TEST_F(BundleSignatures, LeaveTheEntriesTheirOwn) {
  auto program = sample_programs()[0];
  BundleContents contents = contents_of({program});
  const auto sealed = sign_entry(seal_sample(program), std::span(&other_, 1)).value();
  contents.entries[0].read = [&sealed]() -> Result<std::vector<std::byte>> { return sealed; };
  write_bundle(path_, contents, std::span(&ci_, 1)).value();
  const auto bundle = open();
  EXPECT_EQ(bundle->read(bundle->program(0)).value(), sealed);
}

}  // namespace
}  // namespace kiln::store
