#pragma once

#include <memory>
#include <string>

#include <kiln/result.hpp>

#include "store/object_store.hpp"
#include "store/store_url.hpp"

namespace kiln::store {

/// Opens libkiln_remote, which has the stores of servers, with the first call of the process. Fails with
/// unsupported if the library is not installed or belongs to another version of Kiln; the message says where it was
/// searched. Fails with invalid_request for an option that cannot be used, such as a password_file that cannot be
/// read. Connects to nothing.
Result<std::unique_ptr<ObjectStore>> open_remote_store(const StoreUrl& url);

/// The function that libkiln_remote exports, and its name there.
using OpenRemoteStore = Result<std::unique_ptr<ObjectStore>>(const StoreUrl& url);
inline constexpr const char* remote_function = "kiln_remote_open";

}  // namespace kiln::store
