#include <filesystem>
#include <string>

#include "fakes/files.hpp"
#include "fakes/temporary_folder.hpp"
#include "fuzz/input.hpp"
#include "key/record_writer.hpp"
#include "key/request_record.hpp"

namespace kiln::fuzz {
namespace {

void read(const std::filesystem::path& folder, std::string_view bytes) {
  const auto path = folder / "fuzz.kilnreq";
  fakes::write_file(path, bytes);
  const auto record = key::RequestRecord::read(path);
  if (!record) {
    expect(record.error().code() == ErrorCode::unsupported, "only files that are no record are refused");
    return;
  }
  int number = 0;
  for (const auto& entry : record->entries()) {
    const auto request = record->request(entry);
    expect(request.ok(), "a listed request can be read");
    const auto again = key::RecordedRequest::from_bytes(request->to_bytes());
    expect(again && again->to_bytes() == request->to_bytes(), "a request is read as it was written");
    // Each below the next, so that what leaves its folder is noticed.
    const auto to = folder / "unpacked" / std::to_string(number++);
    static_cast<void>(record->unpack(entry, to));
  }
  for (const auto& item : std::filesystem::directory_iterator(folder)) {
    const auto name = item.path().filename();
    expect(name == "fuzz.kilnreq" || name == "unpacked" || name == "copy.kilnreq", "nothing is written elsewhere");
  }
  key::RecordWriter writer(folder / "copy.kilnreq");
  for (const auto& entry : record->entries()) {
    const auto added = writer.add(*record, entry);
    expect(added || added.error().code() == ErrorCode::damaged, "what is not damaged can be merged");
  }
}

/// The encoding of a request, without the file around it.
void decode(std::span<const std::byte> bytes) {
  const auto request = key::RecordedRequest::from_bytes(bytes);
  if (!request) {
    expect(request.error().code() == ErrorCode::damaged, "a request that cannot be read is damaged");
    return;
  }
  const auto again = key::RecordedRequest::from_bytes(request->to_bytes());
  expect(again && again->to_bytes() == request->to_bytes(), "a request is read as it was written");
}

}  // namespace
}  // namespace kiln::fuzz

// The first byte says what the rest is: a record if it is a NUL, else an encoded request.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace kiln;
  fuzz::Input input(data, size);
  if (input.number<std::uint8_t>() != 0) {
    fuzz::decode(input.rest_bytes());
    return 0;
  }
  const fakes::TemporaryFolder folder(fakes::memory_place());
  fuzz::read(folder.path(), input.rest());
  return 0;
}
